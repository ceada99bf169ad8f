"""`batching`: both sides get the same frames, and the verdict is that of the figures."""

from collections import Counter

import benches
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from benchmarks.batching import SIDES, Tally, _judge


def make_tally(met, runs):
    return Tally(10, met, [5.0, 15.0], Counter(met=10), Counter(runs))


@pytest.mark.parametrize(("batched", "passed"), [(19.5, True), (19.3, False), (30.0, True)])
def test_no_fewer_frames_are_met_with_batches(batched, passed):
    tallies = {
        (1.3, SIDES[0]): make_tally([batched], {1: 5, 2: 15}),
        (1.3, SIDES[1]): make_tally([20.0], {1: 10}),
    }
    drive = _judge(1.3, tallies, tolerance=0.03)
    assert drive["passed"] is passed
    assert drive["gain"] == pytest.approx(batched / 20.0 - 1.0)
    assert drive["sides"][SIDES[0]]["in_batches"] == 0.75
    assert drive["sides"][SIDES[1]]["in_batches"] == 0.0
    assert drive["sides"][SIDES[0]]["response_p50_ms"] == 10.0


def test_rounds_are_compared_one_by_one():
    """A machine that halves its speed between two rounds changes nothing."""
    tallies = {
        (1.3, side): make_tally(met, {1: 5})
        for side, met in zip(SIDES, ([21.0, 10.5, 0.0], [20.0, 10.0, 0.0]), strict=True)
    }
    assert _judge(1.3, tallies, 0.03)["gain"] == pytest.approx(0.05)


def test_both_sides_run_all_frames():
    options = "--variants full@onnxruntime-fp32 --cameras 2 --loads 1.5 --runs 1 --rounds 1"
    _, result = benches.run("batching", f"{options} --seconds=0.3 --max-share=9")
    (row,) = result["variants"]
    assert [size["size"] for size in row["sizes"]] == [2]
    assert row["sizes"][0]["batch_ms"] > 0
    assert row["single_ms"] > 0
    (drive,) = row["drives"]
    frames = [drive["sides"][side]["frames"] for side in SIDES]
    assert frames[0] == frames[1] > 0
    for side in SIDES:
        figures = drive["sides"][side]
        assert sum(figures["outcomes"].values()) == figures["frames"]
