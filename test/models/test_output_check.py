# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Outputs that cannot be right are said once, with the parameter to look at."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.boxes import finish
from jetson_dnn_rt.models.input.preprocessing import Geometry
from jetson_dnn_rt.models.output_check import (
    FIRST_FRAMES,
    LEAST_BOXES,
    LEAST_FRAMES,
    THOROUGH_FRAMES,
)
from jetson_dnn_rt.models.output_check import OutputCheck as Check
from jetson_dnn_rt.results import Classification, Detections, Segmentation

FRAME = Frame(np.zeros((96, 128, 3), np.uint8), "bgr8", 0, 0)
MODEL = SimpleNamespace(
    source="onnx:net.onnx",
    head=SimpleNamespace(name="yolov8"),
    input_size=(96, 128),
    labels=tuple(f"class_{i}" for i in range(80)),
)
SETTINGS = DecoderSettings(confidence=0.3)
GEOMETRY = Geometry(96, 128, 96, 128, 0, 0)
FINE = [np.zeros((1, 2), np.float32)]


def decode(*rows):
    """What a head makes of rows of corners in input pixels and a score."""
    rows = np.array(rows, np.float32).reshape(-1, 5)
    ids = np.arange(len(rows))  # so that none suppresses another
    return finish(rows[:, :4].copy(), rows[:, 4], ids, GEOMETRY, SETTINGS)


def look(results, outputs=FINE):
    check = Check(MODEL)
    for result in results:
        check.observe(outputs, result, SETTINGS, FRAME)
    return check


GOOD = (10, 20, 60, 70, 0.9)
CENTRES = (90, 60, 20, 30, 0.9)  # centre and size, read as corners
OUTSIDE = (900, 900, 950, 960, 0.9)
TINY = (0.2, 0.3, 0.6, 0.9, 0.9)  # from 0 to 1, read as pixels
BROKEN = (0, 0, np.inf, 10, 0.9)
EMPTY = Detections.empty()
MASK = Segmentation(np.zeros((96, 128), np.uint8))
CLASSES = Classification(np.arange(2), np.float32([0.7, 0.3]))


@pytest.mark.parametrize(
    ("results", "cause", "words"),
    [
        ([decode((10, 20, 60, 70, 314))], "scores", ("314", "`head`", "yolov8", "activation")),
        ([Classification(np.arange(2), np.float32([7, -3]))], "scores", ("7", "`head`")),
        ([decode(CENTRES)] * LEAST_BOXES, "boxes", ("20 of 20", "`head`", "centre and size")),
        ([decode(OUTSIDE)] * LEAST_BOXES, "boxes", ("`input_size`", "`preprocessing.resize`")),
        ([decode(TINY)] * LEAST_BOXES, "boxes", ("first pixel", "from 0 to 1", "as pixels")),
        ([decode(BROKEN)] * LEAST_BOXES, "boxes", ("`head`",)),
        ([EMPTY] * FIRST_FRAMES, "nothing", ("0.3", "`preprocessing.color`", "inspect onnx:net")),
    ],
)
def test_what_cannot_be_right_is_found_once(results, cause, words):
    check = look(results)
    assert list(check.findings) == [cause]
    assert all(word in check.findings[cause] for word in words)
    assert check.take_news() == [check.findings[cause]]
    for result in results:
        check.observe(FINE, result, SETTINGS, FRAME)
    assert check.take_news() == []


def test_boxes_from_0_to_1_are_found_in_a_large_picture_too():
    """Where the input is small, its first pixel is many of the picture, and no box is thin."""
    frame = Frame(np.zeros((2160, 3840, 3), np.uint8), "bgr8", 0, 0)
    geometry = Geometry(2160, 3840, 96, 128, 0, 0)
    boxes, scores = np.float32([TINY[:4], [0, 0, 1, 1]]), np.float32([0.9, 0.8])
    found = finish(boxes, scores, np.arange(2), geometry, SETTINGS)
    assert (found.boxes[:, 2:] - found.boxes[:, :2] > 10).all()
    check = Check(MODEL)
    for _ in range(LEAST_BOXES // 2):
        check.observe(FINE, found, SETTINGS, frame)
    assert check.findings["boxes"].startswith("20 of 20 boxes lie in the first pixel of the inp")


def test_a_class_without_a_name_tells_that_all_names_may_be_one_off():
    """An SSD that counts the background: its cars were motorcycles, and nobody was told."""
    boxes, scores = np.float32([GOOD[:4]]), np.float32([0.9])
    found = [finish(boxes, scores, np.array([i]), GEOMETRY, SETTINGS) for i in (79, 80)]
    assert not look(found[:1]).findings
    text = look(found).findings["labels"]
    assert text.startswith("class 80 was found, and `labels` are 80 names, 0 to 79: does the net")


def test_a_run_that_ends_early_says_that_all_boxes_lie_in_one_pixel():
    """Three frames of one object each: all in the first pixel, and nobody was told."""
    check = look([decode(TINY)] * 3)
    assert not check.findings
    assert check.conclude()["boxes"].startswith("3 of 3 boxes lie in the first pixel")
    assert not look([decode(TINY)] * 2).conclude()
    assert not look([decode(TINY)] * 3 + [decode(GOOD)]).conclude()


@pytest.mark.parametrize(
    "results",
    [
        [decode(GOOD)] * 300,
        [decode(GOOD, OUTSIDE)] * 300,  # half of them in the bars of a letterbox
        [decode(CENTRES)] * (LEAST_BOXES - 1),
        [EMPTY] * (FIRST_FRAMES - 1),
        [decode(GOOD), *[EMPTY] * 2 * FIRST_FRAMES],
        [MASK] * 2 * FIRST_FRAMES,
        [CLASSES] * 2 * FIRST_FRAMES,
    ],
)
def test_what_may_be_right_is_not_blamed(results):
    assert not look(results).findings


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([EMPTY] * LEAST_FRAMES, True),
        ([EMPTY] * (LEAST_FRAMES - 1), False),
        ([EMPTY] * LEAST_FRAMES + [decode(GOOD)], False),
        ([MASK] * LEAST_FRAMES, False),
    ],
)
def test_a_run_that_ends_early_says_that_there_was_nothing(results, says):
    """A wrong class or preprocessing was silent in the tutorial's three seconds."""
    check = look(results)
    assert check.findings == {}
    text = check.conclude().get("nothing", "")
    assert (
        text.startswith(f"nothing above confidence_threshold (0.3) in the first {len(results)} ")
        is says
    )


def test_an_object_that_comes_later_takes_back_that_there_was_none():
    check = look([EMPTY] * FIRST_FRAMES)
    assert check.findings
    check.observe(FINE, decode(GOOD), SETTINGS, FRAME)
    assert not check.findings
    assert len(check.take_news()) == 1  # that had been seen, and is logged


def test_infinity_and_nan_are_said_with_what_to_try():
    check = look([EMPTY], [np.zeros(0, np.float32), np.float32([[1, np.inf]]), np.arange(2)])
    check.note_nan()
    assert list(check.findings) == ["infinity", "nan"]
    assert all("fp32 (`variants`)" in text for text in check.findings.values())
    # Where something is masked out -inf is usual.
    assert not look([EMPTY], [np.float32([[1, -np.inf]])]).findings


def test_after_many_frames_only_some_are_looked_at():
    check = look([decode(GOOD)] * THOROUGH_FRAMES)
    wrong = decode((10, 20, 60, 70, 314))
    seen = []
    for _ in range(40):
        check.observe(FINE, wrong, SETTINGS, FRAME)
        seen.append(bool(check.findings))
    assert not seen[0]
    assert seen[-1]
