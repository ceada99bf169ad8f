# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Overload: its arithmetic by hand, and one short run from end to end."""

import struct

import benches
import pytest

from benchmarks.harness.processes import BenchmarkError, NotReadyError
from benchmarks.overload import bench
from benchmarks.overload.bench import FrameRow, Played, Rounds, describe, read_sent_ns
from jetson_dnn_rt.safety.children import code_command

MS = 1_000_000


def make_row(stamp, published, *, started=True, admitted=True):
    start_ns = stamp * MS + 1 if started else None
    published_ns = None if published is None else published * MS
    outcome = "met" if published else "x"
    return FrameRow("detector", stamp * MS, start_ns, published_ns, started and admitted, outcome)


def judge(rows, stamps_ns, tasks, deadline, *windows):
    rounds = [Played(rows, first * MS, last * MS) for first, last in windows]
    return describe(Rounds(rounds), stamps_ns, tasks, deadline * MS)


def test_judged_by_hand():
    rows = [
        make_row(0, 5),  # before the window
        make_row(100, 150),  # at the deadline: in time
        make_row(110, 161, admitted=False),  # 1 ms late, on spare time
        make_row(120, None),  # started, never published
        make_row(130, None, started=False),  # skipped
        make_row(200, 210),  # last stamp of the window
        make_row(201, 211),  # after it
    ]
    stamps_ns = [stamp * MS for stamp in (0, 100, 110, 120, 130, 140, 200, 201)]
    figures = judge(rows, stamps_ns, 2, 50, (100, 200))
    assert figures == {
        "seconds": 0.1,
        "frames": 12,
        "started": 4,
        "admitted": 3,
        "published": 3,
        "in_time": 2,
        "met_ratio": 2 / 12,
        "met_ratio_started": 0.5,
        "met_ratio_admitted": 2 / 3,
        "in_time_per_s": 20.0,
        "age_ms": {"p50": 50.0, "p99": 51.0},
        "in_time_by_task": {"detector": 2},
        "outcomes": {"met": 3, "x": 2},
        "failures": [],
        "restarts": 0,
    }


def test_nothing_seen_has_no_ratios():
    figures = judge([], [], 2, 1, (0, 1000))
    assert (figures["met_ratio"], figures["met_ratio_admitted"]) == (None, None)
    assert (figures["in_time_per_s"], figures["age_ms"]) == (0.0, {"p50": None, "p99": None})


def test_rounds_are_added():
    rows = [make_row(0, 1), make_row(200, 209)]
    both = judge(rows, [0, 200 * MS], 1, 5, (0, 100), (200, 300))
    assert (both["seconds"], both["frames"], both["in_time"]) == (0.2, 2, 1)
    assert both["age_ms"] == {"p50": 1.0, "p99": 9.0}
    assert both["outcomes"] == {"met": 2}


def test_a_side_that_no_frame_reaches_is_started_again_once(monkeypatch):
    answers = [NotReadyError("not ready"), Played([], 0, MS)]

    def play_once(*arguments):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(bench, "_play_once", play_once)
    one = bench.play("ours", None, 1.0)
    assert (one.starts, answers) == (2, [])
    assert describe(Rounds([one, Played([], 0, MS)]), [], 1, MS)["restarts"] == 1
    answers[:] = [NotReadyError("once"), NotReadyError("twice"), Played([], 0, MS)]
    with pytest.raises(NotReadyError, match="twice"):
        bench.play("ours", None, 1.0)
    # What fails by itself would fail again.
    answers[:] = [BenchmarkError("ended with exit code 1"), Played([], 0, MS)]
    with pytest.raises(BenchmarkError, match="exit code"):
        bench.play("ours", None, 1.0)


def test_stamps_of_a_camera_that_was_ended_while_writing(tmp_path):
    (tmp_path / "stamps").write_text("10 11\n20 22\n30 3")
    assert read_sent_ns(tmp_path / "stamps") == {10: 11, 20: 22}


def test_stamp_is_read_from_a_serialized_message():
    pytest.importorskip("rclpy")
    from rclpy.serialization import serialize_message
    from std_msgs.msg import Header

    from benchmarks.overload.nodes import read_stamp_ns

    for order, head in (("<", b"\0\1\0\0"), (">", b"\0\0\0\0")):
        data = head + struct.pack(order + "iI", 1_700_000_000, 999_999_999) + b"rest"
        assert read_stamp_ns(data) == 1_700_000_000_999_999_999
    header = Header(frame_id="camera")
    header.stamp.sec, header.stamp.nanosec = 12, 34
    assert read_stamp_ns(serialize_message(header)) == 12_000_000_034


@pytest.mark.nightly
def test_both_sides_deliver():
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    _, result = benches.run(
        "overload",
        "--detector null:10 --segmenter null:10,segmentation --loads 1.5 --rounds 1 --seconds 1 "
        "--deadline-factors 5",
        *benches.fake_peer(),
    )
    assert result["passed"] == "not decided"  # a single round
    (load,) = result["cells"]
    assert (load["load"], load["deadline_factor"]) == (1.5, 5.0)
    for side in ("ours", "sequential", "naive"):
        figures = load[side]
        # Sleeping networks at 75 Hz: both sides start some frames and publish some results.
        assert figures["frames"] > 0
        assert 0 < figures["published"] <= figures["started"] <= figures["frames"] + 4
        assert figures["in_time"] <= figures["published"]
    alone = load["detector"]
    assert list(alone) == ["ours", "sequential", "naive", "peer"]
    for side in ("ours", "sequential", "naive"):
        assert alone[side]["in_time"] == load[side]["in_time_by_task"].get("detector", 0)
    assert alone["peer"]["published"] > 0
    assert alone["peer"]["cores"] > 0
    assert alone["peer"]["failures"] == []
    shown = benches.show("overload", result)
    assert "vision_msgs/msg/Detection2DArray on /peer/detections" in shown
    assert load["listener"]["detections"] > 0
    assert load["listener"]["class_mask"] > 0
    assert result["command"].startswith("python -m benchmarks overload")
    assert result["machine"]["cores"] >= 1


@pytest.mark.nightly
def test_a_consumer_that_fails_does_not_end_the_benchmark(monkeypatch):
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")

    def make_command(module, role, *rest):
        return code_command("raise SystemExit(3)") if role == "ours" else make(module, role, *rest)

    make = bench.python_command
    monkeypatch.setattr(bench, "python_command", make_command)
    code, result = benches.run(
        "overload",
        "--detector null:10 --segmenter null:10,segmentation --loads 0.5 --rounds 1 --seconds 1 "
        "--deadline-factors 5 --no-sequential",
    )
    (cell,) = result["cells"]
    assert "sequential" not in result["sides"]
    assert (code, cell["passed"], result["passed"]) == (1, False, False)
    assert "sequential" not in cell
    assert cell["naive"]["published"] > 0
    assert (cell["naive"]["failures"], cell["ours"]["published"]) == ([], 0)
    (failure,) = cell["ours"]["failures"]
    assert "did not become ready" in failure
    assert f"0.5x, 5x, ours: failed, {failure}" in benches.show("overload", result)
