# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Time of a network inside the node: its arithmetic by hand, and one short run."""

import benches
import pytest

from benchmarks import inside
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import UNDECIDED
from benchmarks.inside import SIDES, describe
from jetson_dnn_rt.tasks import JobRecord, StageRecord


def test_ratios_are_those_of_the_same_round():
    def play(*times_ms):
        return [{"runs": 10, "not_met": 1, "p50": p50, "p99": p99} for p50, p99 in times_ms]

    rounds = {
        "bare": play((10.0, 20.0), (20.0, 40.0), (10.0, 20.0)),
        "paced": play((10.0, 20.0), (21.0, 40.0), (12.0, 20.0)),
        "node": play((11.0, 20.0), (30.0, 60.0), (11.0, 30.0)),
    }
    found = describe("full@x-fp32", 20.0, rounds)
    assert (found["variant"], found["period_ms"]) == ("full@x-fp32", 20.0)
    counts = {"runs": 30, "not_met": 3}
    assert found["sides"]["node"].pop("p99_ratios") == [1.0, 1.5, 1.5]
    for side in ("paced", "node"):
        found["sides"][side] = {
            key: value for key, value in found["sides"][side].items() if "ratios" not in key
        }
    assert found["sides"] == {
        "bare": {**counts, "p50_ms": 10.0, "p50_ratio": 1.0, "p99_ms": 20.0, "p99_ratio": 1.0},
        "paced": {**counts, "p50_ms": 12.0, "p50_ratio": 1.05, "p99_ms": 20.0, "p99_ratio": 1.0},
        "node": {**counts, "p50_ms": 11.0, "p50_ratio": 1.1, "p99_ms": 30.0, "p99_ratio": 1.5},
    }
    assert found["passed"] == UNDECIDED  # three rounds


@pytest.mark.parametrize(
    ("p50", "p99", "passed"), [(11.0, 22.0, True), (11.0, 30.0, False), (11.2, 20.0, False)]
)
def test_the_bar_is_that_of_the_rounds(p50, p99, passed):
    bare = [{"runs": 10, "not_met": 0, "p50": 10.0, "p99": 20.0}] * 10
    node = [{**one, "p50": p50, "p99": p99} for one in bare]
    found = describe("full@x-fp32", 20.0, {"bare": bare, "node": node})
    assert found["passed"] is passed
    assert inside.rejudge({"variants": [found]}) is passed
    node[:3] = [{**one, "p50": 9.0 if p50 > 11.0 else 99.0, "p99": 9.0} for one in node[:3]]
    assert describe("full@x-fp32", 20.0, {"bare": bare, "node": node})["passed"] == UNDECIDED


def make_record(variant="full@x-fp32", end_ns=30, reason=""):
    stages = [
        StageRecord("preprocess", variant, 0, 5),
        StageRecord("inference-1", variant, 5, 15),
        StageRecord("inference-2", variant, 16, 20),
        StageRecord("decode", variant, 20, 30),
    ]
    return JobRecord.alone("detector", 0, variant, (0, end_ns, 100), stages, reason)


def test_frames_that_are_not_met_are_counted():
    records = [make_record(), make_record(end_ns=101), make_record(reason="boom"), make_record()]
    assert inside.take_times("full@x-fp32", records, {}) == ([14, 14], 2)


@pytest.mark.parametrize(
    ("records", "left_out", "message"),
    [
        ([], {}, "no frame was met: none came"),
        ([make_record(reason="boom")] * 3, {}, "no frame was met: 3 boom"),
        ([make_record("full@y-fp32")], {}, "frames ran as full@y-fp32, not as full@x-fp32"),
        ([make_record()], {"full@x-fp32": "x is not installed"}, "x is not installed"),
    ],
)
def test_what_did_not_run_as_asked_is_an_error(records, left_out, message):
    with pytest.raises(BenchmarkError, match=message):
        inside.take_times("full@x-fp32", records, left_out)


def test_a_process_that_does_not_end_is_an_error(monkeypatch):
    """Even one that begins."""
    monkeypatch.setattr(inside, "_LIMIT_S", 0.0)
    with pytest.raises(BenchmarkError, match="bare did not end within 0 s"):
        inside._play("bare", {"seconds": 0.0})


def test_the_reason_of_a_failed_process_is_said(monkeypatch, capsys):
    def fail(spec):
        raise BenchmarkError("no frame was met")

    monkeypatch.setattr(inside, "play_node", fail)
    assert inside.main("node", "{}") == 1
    assert "inside: node: no frame was met" in capsys.readouterr().err


@pytest.mark.nightly
def test_all_sides_run_the_network(shared_data):
    pytest.importorskip("rclpy")
    pytest.importorskip("onnxruntime")
    _, result = benches.run(
        "inside",
        "--variants full@onnxruntime-fp32 --rounds 1 --seconds 0.5 --threads 1",
        f"--data={shared_data}",
    )
    (one,) = result["variants"]
    assert list(one["sides"]) == list(SIDES)
    for figures in one["sides"].values():
        assert figures["runs"] > 0
        assert figures["not_met"] == 0 or figures is one["sides"]["node"]
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
