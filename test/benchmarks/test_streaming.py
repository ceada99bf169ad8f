# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streaming: truth placed in time and the bars by hand, and one short run from end to end."""

import benches
import pytest

from benchmarks.harness.processes import BenchmarkError
from benchmarks.overload.peer import PEER
from benchmarks.streaming import NAIVE, OURS, Cell, Drive, judge_cell, read_shown


def test_the_truth_is_that_of_the_frame_and_evenly_on_to_the_next_one(tmp_path):
    drive = Drive(tmp_path, 60.0, ["a", "b", "c", "d"])
    # Two instants a frame; the third frame came 10 late, and the drive began again with it.
    placed = list(drive.place([(0, 0), (20, 2), (50, 0)], 30.0))
    assert placed == [(0, "a"), (10, "b"), (20, "c"), (35, "d")]
    assert list(drive.place([(0, 3), (20, 0)], 60.0)) == [(0, "d")]
    for rate_hz in (25.0, 15.0 / 2, 120.0):
        with pytest.raises(BenchmarkError, match="does not fit a grid of 60 Hz and 4 instants"):
            drive.step(rate_hz)


def test_a_painted_drive_has_its_truth(tmp_path):
    drive = Drive.paint(tmp_path / "0", 0, 4.0, 1.0)
    assert sorted(file.name for file in drive.folder(2.0).iterdir()) == [
        "000000.bmp",
        "000002.bmp",
    ]
    assert len(drive.truths) == 4
    assert drive.truths[0]["segmenter"].mask.shape == (120, 160)
    boxes = drive.truths[0]["detector"]
    assert len(boxes) == len(boxes.scores) == len(boxes.class_ids)


def test_frames_shown_by_a_camera_that_was_ended_while_writing(tmp_path):
    (tmp_path / "stamps").write_text("10 11 000003.bmp\n20 22 000006.bmp\n30 3")
    assert read_shown(tmp_path / "stamps") == [(10, 3), (20, 6)]


@pytest.mark.parametrize(
    ("load", "ours", "naive", "failures", "passed"),
    [
        (1.0, 0.5, 0.5, [], True),
        (1.0, 0.4, 0.5, [], False),
        (2.0, 0.6, 0.5, [], True),
        (2.0, 0.55, 0.5, [], False),
        (2.0, 0.6, 0.5, ["ended with exit code 1"], False),
        (2.0, None, None, [], False),
    ],
)
def test_bars(load, ours, naive, failures, passed):
    def side(value):
        return {"accuracy": {"detector": {"value": value}}, "failures": []}

    sides = {OURS: side(ours), NAIVE: side(naive) | {"failures": failures}}
    cell = judge_cell(Cell(30.0, load, 0.0), sides, {"detector": 0.8})
    assert cell["passed"] is passed
    left = cell["sides"][OURS]["accuracy"]["detector"]["left"]
    assert left == (None if ours is None else ours / 0.8)


def test_a_peer_is_judged_as_the_naive_node_is():
    def judge(peer, failures=()):
        values = {OURS: 0.6, NAIVE: 0.5, PEER: peer}
        sides = {
            side: {"accuracy": {"detector": {"value": value}}, "failures": []}
            for side, value in values.items()
        }
        sides[PEER]["failures"] = failures
        return judge_cell(Cell(30.0, 2.0, 0.0), sides, {"detector": 0.8})

    good = judge(0.4)
    assert (good["passed"], good["ours_to_peer"]) == (True, 0.6 / 0.4)
    assert not judge(0.55)["passed"]
    assert not judge(0.4, ["ended with exit code 1"])["passed"]


@pytest.mark.slow
def test_sides_are_judged_by_the_truth():
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    _, result = benches.run(
        "streaming",
        "--rates 5 --loads 0.001 2 --policies none --seeds 3 --seconds 1 --drive-seconds 1",
        "--variants", "full@torch-fp32", *benches.fake_peer(),
    )  # fmt: skip
    assert result["left_out"] == [{"rate_hz": 5.0, "load": 0.001}]
    (cell,) = result["cells"]
    assert list(cell["sides"]) == list(cell["detector"]) == [OURS, "full@torch-fp32", NAIVE, PEER]
    assert list(cell["sides"][PEER]["accuracy"]) == ["detector"]
    assert cell["detector"][PEER]["published"] > 0
    for figures in cell["sides"].values():
        for found in figures["accuracy"].values():
            assert found["instants"] > 0
            assert found["value"] is None or 0.0 <= found["value"] <= 1.0
    assert result["offline"]["detector"] > 0.3
