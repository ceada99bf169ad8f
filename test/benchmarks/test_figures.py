"""The arithmetic of the benchmarks, by hand."""

from __future__ import annotations

import argparse
import importlib
import struct
from pathlib import Path

import numpy as np
import pytest

from benchmarks import dashcam, overhead, overload
from benchmarks.harness import BENCHMARKS
from benchmarks.protocol import (
    ConsumerSpec,
    FrameLog,
    FrameRow,
    TaskSpec,
    read_stamps_ns,
)
from benchmarks.yolox_reference import YoloxReference, iou, read_video
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord

MS = 1_000_000


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_the_interface(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.__doc__
    assert callable(module.run)
    assert callable(module.format_table)
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    parser.parse_args([])


# -- overload ----------------------------------------------------------------------------------


def make_row(
    stamp: int, published: int | None, *, started: bool = True, admitted: bool = True
) -> FrameRow:
    start_ns = stamp * MS + 1 if started else None
    published_ns = None if published is None else published * MS
    outcome = "met" if published else "x"
    return FrameRow("detector", stamp * MS, start_ns, published_ns, started and admitted, outcome)


def test_judged_by_hand() -> None:
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
    figures = overload.judge(rows, stamps_ns, 2, 50 * MS, (100 * MS, 200 * MS))
    assert (figures.frames, figures.started, figures.published, figures.in_time) == (12, 4, 3, 2)
    assert figures.to_dict() == {
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
    }


def test_nothing_seen_has_no_ratios() -> None:
    figures = overload.judge([], [], 2, MS, (0, 1000 * MS)).to_dict()
    assert figures["met_ratio"] is None
    assert figures["met_ratio_admitted"] is None
    assert figures["in_time_per_s"] == 0.0
    assert figures["age_ms"] == {"p50": None, "p99": None}


def test_rounds_are_added() -> None:
    one = overload.judge([make_row(0, 1)], [0], 1, 5 * MS, (0, 100 * MS))
    two = overload.judge([make_row(0, 9)], [0], 1, 5 * MS, (0, 100 * MS))
    both = overload.join([one, two])
    assert (both.seconds, both.frames, both.in_time) == (0.2, 2, 1)
    assert both.ages_ms == [1.0, 9.0]
    assert both.outcomes == {"met": 2}


def test_specification_survives_the_command_line(tmp_path: Path) -> None:
    tasks = (
        TaskSpec("detector", "detection", "null:1"),
        TaskSpec("segmenter", "segmentation", "onnx:x", "full@openvino-fp32", "none", (3, 4)),
    )
    spec = ConsumerSpec(tasks, "/image_raw", 640, 480, 2, 12.5, tmp_path / "log")
    assert ConsumerSpec.from_json(spec.to_json()) == spec


def test_log_survives_its_file(tmp_path: Path) -> None:
    rows = [make_row(1, 2), make_row(3, None, started=False)]
    log = FrameLog()
    for row in rows:
        log.add(row)
    log.write(tmp_path / "log")
    assert FrameLog.read(tmp_path / "log") == rows


def test_stamps_of_a_camera_that_was_ended_while_writing(tmp_path: Path) -> None:
    (tmp_path / "stamps").write_text("10\n20\n3")
    assert read_stamps_ns(tmp_path / "stamps") == [10, 20]


@pytest.mark.parametrize("order", ["<", ">"])
def test_stamp_is_read_from_a_serialized_message(order: str) -> None:
    pytest.importorskip("rclpy")
    from benchmarks.listener_node import read_stamp_ns

    head = b"\0\1\0\0" if order == "<" else b"\0\0\0\0"
    data = head + struct.pack(order + "iI", 1_700_000_000, 999_999_999) + b"rest"
    assert read_stamp_ns(data) == 1_700_000_000_999_999_999


def test_stamp_is_read_from_what_rclpy_serializes() -> None:
    pytest.importorskip("rclpy")
    from rclpy.serialization import serialize_message
    from std_msgs.msg import Header

    from benchmarks.listener_node import read_stamp_ns

    header = Header(frame_id="camera")
    header.stamp.sec, header.stamp.nanosec = 12, 34
    assert read_stamp_ns(serialize_message(header)) == 12_000_000_034


def test_table_of_overload() -> None:
    figures = overload.judge([make_row(0, 1)], [0], 1, 5 * MS, (0, 100 * MS)).to_dict()
    result = {
        "models": {"detector": "null:1", "segmenter": "null:1"},
        "execution_alone_ms": {"detector": 1.0, "segmenter": 2.0},
        "deadline_ms": 5.0,
        "loads": [{"load": 1.5, "ours": figures, "naive": figures, "passed": False}],
    }
    *_, ours, naive = overload.format_table(result).splitlines()
    expected = "1 100.0 100.0 100.0 10.0 10.0 + 0.0 1.0"
    assert ours.split() == ["1.5x", "ours", *expected.split(), "NO"]
    assert naive.split() == ["1.5x", "naive", *expected.split()]


# -- overhead ----------------------------------------------------------------------------------


def test_overhead_is_neither_execution_nor_waiting() -> None:
    stages = (StageRecord("a", "v", 10, 30), StageRecord("b", "v", 35, 45))
    record = JobRecord(
        "detector", 0, "v", Outcome.MET, "", 2, 5, 10, 50, 100, 4, 0, Admission.BUDGET, stages
    )
    assert overhead.overhead_ns(record, 2, 60) == 60 - 2 - 30 - 4


def test_frames_sent_before_and_after_do_not_count_as_lost() -> None:
    assert overhead.count_sent([1, 2, 3, 4, 5, 6], {2, 5}) == 4
    assert overhead.count_sent([1, 2], set()) == 2


def test_table_of_overhead() -> None:
    times = {"p50": 0.4, "p99": 1.9, "max": 3.0}
    part = {
        "jobs": 10,
        "overhead_ms": times,
        "response_overhead_ms": times,
        "bars_ms": overhead.COMPOSED_BARS_MS,
    }
    table = overhead.format_table({"composed": part, "two_processes": {**part, "lost": 0}})
    *_, composed, two = table.splitlines()
    assert composed.split()[:5] == ["composed", "10", "0.400", "1.900", "3.000"]
    assert composed.split()[-1] == "-"
    assert two.split()[-1] == "0"


# -- dashcam -----------------------------------------------------------------------------------


def test_iou_by_hand() -> None:
    assert iou([0, 0, 2, 2], [1, 1, 3, 3]) == pytest.approx(1 / 7)
    assert iou([0, 0, 1, 1], [2, 2, 3, 3]) == 0.0
    assert iou([0, 0, 4, 2], [0, 0, 4, 2]) == 1.0


def test_a_box_of_another_class_does_not_count() -> None:
    box = np.array([0, 0, 2, 2, 0.9, 2])
    here = {"class_id": "2", "xyxy": [0, 0, 2, 1]}
    other = {"class_id": "7", "xyxy": [0, 0, 2, 2]}
    assert dashcam.best_iou(box, [here, other]) == 0.5
    assert dashcam.best_iou(box, [other]) == 0.0
    assert dashcam.best_iou(box, []) == 0.0


def test_table_of_dashcam() -> None:
    figures = {
        "released": 221,
        "met_ratio": 0.99,
        "response_ms": {"p50": 10.0, "p99": 20.0},
        "boxes_checked": 500,
        "boxes_missing": 0,
        "worst_iou": 0.97,
        "passed": True,
    }
    result = {"frames": 221, "variants": {"full@openvino-fp32": figures}}
    last = dashcam.format_table(result).splitlines()[-1]
    expected = "full@openvino-fp32 221 of 221 99.0 10.0 20.0 500 0 0.97 yes"
    assert last.split() == expected.split()


def test_missing_data_are_an_error_with_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jetson_dnn_rt.cli.main import main

    assert main(["bench", "dashcam", "--data", str(tmp_path)]) == 2
    assert "--data" in capsys.readouterr().err


def test_reference_finds_the_cars_that_were_published(shared_data: Path) -> None:
    pytest.importorskip("onnxruntime")
    reference = YoloxReference(shared_data / dashcam.MODEL)
    frames = list(read_video(shared_data / dashcam.VIDEO))
    assert len(frames) == 221
    boxes = reference(frames[119], 0.4)
    for corners, score in (([0, 294, 148, 384], 0.89), ([184, 295, 246, 339], 0.62)):
        best = max(boxes, key=lambda box: iou(box, corners))
        # The figures are published in whole pixels.
        assert iou(best, corners) > 0.9
        assert best[4] == pytest.approx(score, abs=0.01)
        assert best[5] == 2  # car
