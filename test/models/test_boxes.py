# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boxes: suppression, matching, average precision and mean IoU, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.models.heads.boxes import iou_matrix, nms
from jetson_dnn_rt.models.metrics import (
    COCO_RECALLS,
    DetectionMetric,
    SegmentationMetric,
    average_precision,
    match_detections,
)


def boxes_of(*rows):
    return np.array(rows, np.float32).reshape(-1, 4)


def floats(*values):
    return np.array(values, np.float32)


def ids(*values):
    return np.array(values, np.int64)


def test_iou_of_known_boxes():
    iou = iou_matrix(boxes_of([0, 0, 2, 2]), boxes_of([0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6]))
    assert iou.dtype == np.float32
    assert iou.tolist() == [[1.0, pytest.approx(1 / 3), 0.0]]
    assert iou_matrix(boxes_of([1, 1, 1, 1]), boxes_of([1, 1, 1, 1])).tolist() == [[0.0]]
    assert iou_matrix(boxes_of(), boxes_of([0, 0, 1, 1])).shape == (0, 1)


@pytest.mark.parametrize(
    ("boxes", "scores", "class_ids", "iou", "most", "kept"),
    [
        # b overlaps a and c; a removes b, and b must not take c with it.
        (
            [[0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]],
            [0.9, 0.8, 0.7],
            [0] * 3,
            0.3,
            9,
            [0, 2],
        ),
        ([[0, 0, 2, 1], [0, 0, 1, 1]], [0.8, 0.9], [1, 1], 0.5, 9, [1, 0]),  # IoU exactly 0.5
        ([[0, 0, 2, 1], [0, 0, 1, 1]], [0.8, 0.9], [1, 1], 0.49, 9, [1]),
        ([[0, 0, 2, 1], [0, 0, 1, 1]], [0.8, 0.9], [0, 1], 0.49, 9, [1, 0]),
        ([[0, 0, 9, 9], [20, 0, 29, 9], [40, 0, 49, 9]], [0.1, 0.2, 0.3], [0] * 3, 0.5, 2, [2, 1]),
        ([[0, 0, 9, 9]], [0.1], [0], 0.5, 0, []),
    ],
)
def test_suppression_by_hand(boxes, scores, class_ids, iou, most, kept):
    found = nms(boxes_of(*boxes), floats(*scores), ids(*class_ids), iou, most)
    assert found.dtype == np.int64
    assert found.tolist() == kept


@settings(max_examples=60)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_agrees_with_the_plain_definition(count, seed, threshold):
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 30, (count, 2))
    boxes = np.concatenate((low, low + rng.integers(1, 20, (count, 2))), 1).astype(np.float32)
    scores = rng.choice([0.1, 0.2, 0.5, 0.9], count).astype(np.float32)
    kinds = rng.integers(0, 3, count)
    iou = iou_matrix(boxes, boxes)
    kept = []
    for i in sorted(range(count), key=lambda i: (-scores[i], i)):
        if all(kinds[i] != kinds[j] or iou[i, j] <= threshold for j in kept):
            kept.append(i)
    assert nms(boxes, scores, kinds, threshold, 1000).tolist() == kept


@pytest.mark.parametrize(
    ("scores", "right", "truths", "expected"),
    [
        # Found 1 of 3 at precision 1, 2 of 3 at precision 2/3: 1/3 * 1 + 1/3 * 2/3.
        ((0.9, 0.8, 0.7), (True, False, True), 3, 5 / 9),
        # Precision 1/2 at recall 1/2 is raised to the 2/3 that recall 1 still has.
        ((0.9, 0.8, 0.7), (False, True, True), 2, 2 / 3),
        # The order of the rows does not matter, only the scores.
        ((0.7, 0.9, 0.8), (True, False, True), 2, 2 / 3),
        # Of equal scores none comes first: one point with precision 1/2.
        ((0.5, 0.5), (True, False), 1, 1 / 2),
        ((0.5, 0.5), (False, True), 1, 1 / 2),
        ((0.9, 0.8), (True, True), 2, 1.0),
        ((0.9,), (False,), 4, 0.0),
        ((), (), 4, 0.0),
        ((0.5,), (False,), 0, math.nan),
    ],
)
def test_average_precision(scores, right, truths, expected):
    found = average_precision(floats(*scores), np.array(right, bool), truths)
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("scores", "right", "truths", "expected"),
    [
        # Precision 1 at the recalls 0 to 0.33, 2/3 from there to 0.66, 0 beyond.
        ((0.9, 0.8, 0.7), (True, False, True), 3, (34 + 33 * 2 / 3) / 101),
        # Of equal scores the first one comes first.
        ((0.5, 0.5), (True, False), 1, 1.0),
        ((0.5, 0.5), (False, True), 1, 1 / 2),
        ((), (), 4, 0.0),
        ((0.5,), (False,), 0, math.nan),
    ],
)
def test_average_precision_at_the_recalls_of_coco(scores, right, truths, expected):
    found = average_precision(floats(*scores), np.array(right, bool), truths, COCO_RECALLS)
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_true_box_is_found_once():
    boxes = boxes_of([0, 0, 10, 10], [0, 0, 10, 9])
    right = match_detections(boxes, floats(0.6, 0.9), boxes_of([0, 0, 10, 10]), 0.5)
    assert right.tolist() == [False, True]


def test_a_detection_takes_the_best_of_the_free_boxes():
    truths = boxes_of([0, 0, 10, 10], [2, 0, 12, 10])
    boxes = boxes_of([2, 0, 12, 10], [1, 0, 11, 10])
    assert match_detections(boxes, floats(0.9, 0.8), truths, 0.5).tolist() == [True, True]


def test_overlap_must_reach_the_threshold():
    truths = boxes_of([0, 0, 2, 1])
    boxes = boxes_of([0, 0, 1, 1])  # IoU exactly 0.5
    assert match_detections(boxes, floats(0.9), truths, 0.5).tolist() == [True]
    assert match_detections(boxes, floats(0.9), truths, 0.51).tolist() == [False]


def test_each_threshold_has_a_row():
    truths = boxes_of([0, 0, 10, 10], [0, 0, 10, 6])
    boxes = boxes_of([0, 0, 10, 8], [0, 0, 10, 10])
    found = match_detections(boxes, floats(0.9, 0.8), truths, [0.5, 0.7, 0.9])
    # The first overlaps 0.8 and 0.75, the second 1.0 and 0.6. It takes what the first one leaves.
    assert found.tolist() == [[True, True], [True, False], [False, True]]


def test_of_equal_overlaps_the_last_is_taken():
    truths = boxes_of([0, 0, 10, 10], [10, 0, 20, 10])
    boxes = boxes_of([5, 0, 15, 10], [0, 0, 10, 10])
    assert match_detections(boxes, floats(0.9, 0.8), truths, 0.3).tolist() == [True, True]


def test_coco_takes_the_mean_over_thresholds_and_classes():
    metric = DetectionMetric.coco(3)
    true, near, far = [0, 0, 100, 1], [0, 0, 78, 1], [500, 0, 600, 1]
    # Class 0: an overlap of 0.78, right at 6 of 10 thresholds. Class 1: 101 boxes of which the
    # last would be right, but is one too many. Class 2 is not in the truth.
    many = boxes_of(near, *[far] * 100, true, far)
    scores = floats(0.9, *[0.8] * 100, 0.7, 0.9)
    kinds = ids(0, *[1] * 101, 2)
    metric.add(many, scores, kinds, boxes_of(true, true), ids(0, 1))
    assert metric.precisions().shape == (10, 3)
    assert metric.average_precisions()[:2] == pytest.approx([0.6, 0.0], abs=1e-12)
    assert metric.mean() == pytest.approx(0.3, abs=1e-12)


def test_mean_average_precision_of_two_images():
    metric = DetectionMetric(3)
    here, there = [0, 0, 10, 10], [50, 50, 60, 60]
    # Class 0: one right at 0.9, one box of the second image missed: 1/2.
    # Class 1: right at 0.3, wrong at 0.8: 1/2. Class 2 never occurs: not in the mean.
    metric.add(boxes_of(here, there), floats(0.9, 0.8), ids(0, 1), boxes_of(here), ids(0))
    metric.add(boxes_of(there), floats(0.3), ids(1), boxes_of(here, there), ids(0, 1))
    assert metric.truths.tolist() == [2, 1, 0]
    values = metric.average_precisions()
    assert values[:2].tolist() == [0.5, 0.5]
    assert math.isnan(values[2])
    assert metric.mean() == 0.5
    assert math.isnan(DetectionMetric(2).mean())


def test_iou_of_a_small_mask():
    metric = SegmentationMetric(4)
    metric.add(np.array([[0, 1, 1, 1, 2]], np.uint8), np.array([[0, 0, 1, 1, 1]], np.uint8))
    # 0: 1 shared of 2. 1: 2 shared of 4. 2: 0 of 1. 3: nowhere.
    values = metric.ious()
    assert values[:3].tolist() == [0.5, 0.5, 0.0]
    assert math.isnan(values[3])
    assert metric.mean() == pytest.approx(1 / 3)
    assert metric.confusion.sum() == 5
    # An image without a mask adds to the union alone: 2 of 6 of class 1, and class 3 occurs.
    metric.add_unseen(np.array([[1, 1, 3]], np.uint8))
    assert metric.ious() == pytest.approx([1 / 2, 2 / 6, 0.0, 0.0])
    assert metric.confusion[1, 2] == 1
    metric.add(np.zeros((1, 2), np.uint8), np.array([[0, 1]], np.uint8))  # pixels count together
    assert metric.ious()[0] == 2 / 4
    assert math.isnan(SegmentationMetric(2).mean())


def test_pixels_without_a_label_are_not_judged():
    metric = SegmentationMetric(4, unjudged={3, 255})
    metric.add(np.array([[0, 3, 1, 1, 9]], np.uint8), np.array([[0, 0, 1, 3, 255]], np.uint8))
    # 0: 1 of 2, since a class that is not judged was found in its place. 1: 1 of 1.
    assert metric.ious()[:2].tolist() == [0.5, 1.0]
    assert np.isnan(metric.ious()[2:]).all()
    metric.add_unseen(np.array([[1, 255]], np.uint8))
    assert metric.ious()[1] == 0.5


MASK = np.zeros((1, 2), np.uint8)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (SegmentationMetric(2).add, (MASK, MASK.T), "one shape"),
        (SegmentationMetric(2).add, (MASK + 2, MASK), "classes below 2"),
        (DetectionMetric, (0,), "classes must be at least 1"),
        (SegmentationMetric, (0,), "classes must be at least 1"),
        (DetectionMetric, (1, 0.0), r"iou_threshold must be in \(0, 1\]"),
    ],
)
def test_bad_arguments_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
