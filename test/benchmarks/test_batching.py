# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`batching`: both sides get the same frames, and the verdict is that of the figures."""

import benches
import pytest
from traced_jobs import make_record

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from benchmarks.batching import SIDES, describe, judge, rejudge


@pytest.mark.parametrize(
    ("batched", "alone", "formed", "gain", "passed"),
    [
        ([19.5], [20.0], 0.5, -0.025, True),
        ([19.3], [20.0], 0.5, -0.035, False),
        # A machine that halves its speed between two rounds changes nothing.
        ([21.0, 10.5, 0.0], [20.0, 10.0, 0.0], 0.5, 0.05, True),
        # Both sides did the same.
        ([19.5], [20.0], 0.0, -0.025, None),
    ],
)
def test_no_fewer_frames_are_met_with_batches(batched, alone, formed, gain, passed):
    rates = zip(SIDES, (batched, alone), (formed, 0.0), strict=True)
    sides = {side: {"met_per_s_by_round": met, "in_batches": share} for side, met, share in rates}
    drive = judge(1.3, sides, 0.03)
    assert drive["gain"] == pytest.approx(gain)
    assert drive["passed"] is passed
    result = {"variants": [{"drives": [drive]}], "tolerance": 0.03}
    assert rejudge(result) is passed


def test_rounds_are_added():
    rounds = [[make_record(0), make_record(1)], [make_record(2)] * 4]
    figures = describe(rounds, seconds=0.5)
    assert (figures["frames"], figures["met_per_s_by_round"]) == (6, [4.0, 8.0])
    assert figures["met_per_s"] == 6.0
    assert figures["in_batches"] == 0.0
    assert figures["outcomes"] == {"met": 6}


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
