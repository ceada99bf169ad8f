# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streaming: truth placed in time and the bars by hand, and one short run from end to end."""

import benches
import pytest

from benchmarks import streaming
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import UNDECIDED
from benchmarks.overload.peer import PEER
from benchmarks.streaming import CHOOSER, NAIVE, OURS, Cell, Drive, judge_cell, read_shown

FULL, SMALL = "full@torch-fp32", "tucker-0.50@torch-fp32"


def judge(load, values, failures=None, rounds=10):
    """Judge a cell of 30 Hz by the sAP of its sides, the same in all rounds, and failures."""
    sides = {
        side: {
            "accuracy": {"detector": {"value": value, "by_round": [value] * rounds}},
            "failures": [] if side != failures else ["ended with exit code 1"],
        }
        for side, value in values.items()
    }
    variants = [side for side in (FULL, SMALL) if side in sides]
    return judge_cell(Cell(30.0, load, 0.0, 100.0 * load), sides, {"detector": 0.8}, variants)


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


def test_a_rate_that_does_not_fit_is_refused_before_anything_is_painted(monkeypatch):
    monkeypatch.setattr(Drive, "paint", lambda *args: pytest.fail("a drive is painted"))
    args = benches.parse("streaming", "--rates 30 25")
    with pytest.raises(
        BenchmarkError, match="25 Hz does not fit a grid of 60 Hz and 300 instants"
    ):
        streaming.run(args)


def test_frames_shown_by_a_camera_that_was_ended_while_writing(tmp_path):
    (tmp_path / "stamps").write_text("10 11 000003.bmp\n20 22 000006.bmp\n30 3")
    assert read_shown(tmp_path / "stamps") == [(10, 3), (20, 6)]


@pytest.mark.parametrize(
    ("load", "ours", "naive", "failures", "passed"),
    [
        (1.0, 0.5, 0.5, None, True),
        (1.0, 0.4, 0.5, None, False),
        (2.0, 0.6, 0.5, None, True),
        (2.0, 0.55, 0.5, None, False),
        (2.0, 0.6, 0.5, NAIVE, False),
        (2.0, None, None, None, False),
        # Nothing found, against nothing found.
        (3.0, 0.0, 0.0, None, False),
        (3.0, 0.0, None, None, False),
        (3.0, 0.1, 0.0, None, True),
    ],
)
def test_bars(load, ours, naive, failures, passed):
    cell = judge(load, {OURS: ours, NAIVE: naive}, failures)
    assert cell["passed"] is passed
    left = cell["sides"][OURS]["accuracy"]["detector"]["left"]
    assert left == (None if ours is None else ours / 0.8)
    assert (cell["deadline_ms"], cell["ours_to_best_variant"]) == (100.0 * load, None)


def test_drives_are_held_against_the_same_drive():
    drives = [0.2, 0.9, 0.4, 0.7, 0.3, 0.8, 0.5, 0.6, 0.25, 0.85]
    sides = {
        side: {"accuracy": {"detector": {"value": 0.5, "by_round": by_round}}, "failures": []}
        for side, by_round in ((OURS, [1.01 * value for value in drives]), (NAIVE, drives))
    }

    def judge_sides():
        return judge_cell(Cell(30.0, 1.0, 0.0, 100.0), sides, {"detector": 0.8}, [])["passed"]

    assert judge_sides() is True
    sides[NAIVE]["accuracy"]["detector"]["by_round"] = drives[1:] + drives[:1]
    assert judge_sides() == UNDECIDED


def test_few_drives_decide_nothing_but_a_failure_does():
    assert judge(1.0, {OURS: 0.6, NAIVE: 0.5}, rounds=9)["passed"] == UNDECIDED
    assert judge(1.0, {OURS: 0.6, NAIVE: 0.5}, NAIVE, rounds=9)["passed"] is False


def test_a_peer_is_judged_as_the_naive_node_is():
    def with_peer(peer, failures=None):
        return judge(2.0, {OURS: 0.6, NAIVE: 0.5, PEER: peer}, failures)

    good = with_peer(0.4)
    assert (good["passed"], good["ours_to_peer"]) == (True, 0.6 / 0.4)
    assert with_peer(0.55)["passed"] is False
    assert with_peer(0.4, PEER)["passed"] is False


def test_sides_are_compared_with_the_best_variant_that_did_not_fail():
    values = {OURS: 0.6, FULL: 0.5, SMALL: 0.8, CHOOSER: 0.4, NAIVE: 0.5}
    cell = judge(1.0, values)
    assert cell["ours_to_best_variant"] == 0.6 / 0.8
    ratios = {side: one["to_best_variant"] for side, one in cell["sides"].items()}
    assert ratios == {side: value / 0.8 for side, value in values.items()}
    assert judge(1.0, values, SMALL)["ours_to_best_variant"] == 0.6 / 0.5


@pytest.mark.parametrize(
    ("chooser", "best", "failures", "passed"),
    [
        (0.38, 0.4, None, True),
        (0.37, 0.4, None, False),
        (None, 0.4, None, False),
        (0.0, 0.0, None, False),
        (0.38, 0.4, CHOOSER, False),
        # Nothing to compare it with.
        (0.37, None, None, True),
        (0.37, 0.4, FULL, True),
    ],
)
def test_the_policy_for_streaming_comes_near_the_best_variant(chooser, best, failures, passed):
    cell = judge(1.0, {OURS: 0.6, FULL: best, CHOOSER: chooser, NAIVE: 0.5}, failures)
    assert cell["passed"] is passed


def test_results_from_before_the_bar_of_policies_have_a_table():
    cell = judge(1.0, {OURS: 0.6, FULL: 0.5, NAIVE: 0.3})
    for one in cell["sides"].values():
        one |= {"seconds": 1.0, "frames": 30, "published": 30, "age_ms": {"p50": 1.0, "p99": 2.0}}
    result = {
        "seeds": [0], "seconds": 1.0, "grid": 60.0, "policies": [CHOOSER], "left_out": [],
        "execution_alone_ms": {"detector": 1.0}, "offline": {"detector": 0.8}, "cells": [cell],
        "bars": {"ours_to_naive": 1.0, "at_load_2": 1.2}, "passed": True,
    }  # fmt: skip
    new = result | {"bars": {**result["bars"], f"{CHOOSER}_to_best_variant": 0.95}}
    shown = benches.show("streaming", new)
    assert "x best variant" in shown
    assert f"that of {CHOOSER} at least 0.95 times" in shown
    for key in ("deadline_ms", "ours_to_best_variant"):
        del cell[key]
    for one in cell["sides"].values():
        del one["to_best_variant"]
    assert "best variant" not in benches.show("streaming", result)


@pytest.mark.nightly
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
