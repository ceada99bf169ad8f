"""Boxes: suppression, matching, average precision and mean IoU, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.models.heads.boxes import iou_matrix, nms
from jetson_dnn_rt.models.metrics import (
    DetectionMetric,
    SegmentationMetric,
    average_precision,
    match_detections,
)


def boxes_of(*rows):
    return np.array(rows, np.float32).reshape(-1, 4)


def suppress(boxes, scores, class_ids=None, iou_threshold=0.5, max_detections=100):
    scores = np.array(scores, np.float32)
    kinds = np.zeros(len(scores)) if class_ids is None else class_ids
    kept = nms(boxes, scores, np.array(kinds, np.int64), iou_threshold, max_detections)
    assert kept.dtype == np.int64
    return kept.tolist()


def test_iou_of_known_boxes():
    iou = iou_matrix(boxes_of([0, 0, 2, 2]), boxes_of([0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6]))
    assert iou.dtype == np.float32
    assert iou.tolist() == [[1.0, pytest.approx(1 / 3), 0.0]]


def test_iou_of_empty_boxes_is_zero():
    assert iou_matrix(boxes_of([1, 1, 1, 1]), boxes_of([1, 1, 1, 1])).tolist() == [[0.0]]
    assert iou_matrix(boxes_of(), boxes_of([0, 0, 1, 1])).shape == (0, 1)


def test_the_better_box_wins_and_comes_first():
    boxes = boxes_of([0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60])
    assert suppress(boxes, [0.5, 0.9, 0.7]) == [1, 2]


def test_a_chain_is_not_suppressed_by_what_is_gone():
    # b overlaps a and c; a removes b, and b must not take c with it.
    boxes = boxes_of([0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10])
    assert suppress(boxes, [0.9, 0.8, 0.7], iou_threshold=0.3) == [0, 2]


def test_classes_do_not_suppress_each_other():
    boxes = boxes_of([0, 0, 10, 10], [0, 0, 10, 10])
    assert suppress(boxes, [0.9, 0.8], [0, 1]) == [0, 1]
    assert suppress(boxes, [0.9, 0.8], [1, 1]) == [0]


def test_an_overlap_of_just_the_threshold_stays():
    boxes = boxes_of([0, 0, 2, 1], [0, 0, 1, 1])  # IoU exactly 0.5
    assert suppress(boxes, [0.9, 0.8], iou_threshold=0.5) == [0, 1]
    assert suppress(boxes, [0.9, 0.8], iou_threshold=0.49) == [0]


def test_of_equal_scores_the_earlier_box_wins():
    boxes = boxes_of([0, 0, 10, 10], [0, 0, 10, 10], [30, 30, 40, 40])
    assert suppress(boxes, [0.5, 0.5, 0.5]) == [0, 2]


def test_at_most_so_many():
    boxes = boxes_of(*([20 * i, 0, 20 * i + 10, 10] for i in range(5)))
    assert suppress(boxes, [0.1, 0.2, 0.3, 0.4, 0.5], max_detections=2) == [4, 3]
    assert suppress(boxes, [0.1, 0.2, 0.3, 0.4, 0.5], max_detections=0) == []


def test_nothing_in_nothing_out():
    assert suppress(boxes_of(), []) == []


@settings(max_examples=60, deadline=None)
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
    ("change", "message"),
    [
        ({"boxes": np.zeros((2, 5), np.float32)}, r"must be \[N, 4\]"),
        ({"scores": np.zeros(3, np.float32)}, r"must be \[N, 4\]"),
        ({"class_ids": np.zeros(3, np.int64)}, r"must be \[N, 4\]"),
        ({"iou_threshold": 1.5}, r"iou_threshold must be in \[0, 1\]"),
        ({"max_detections": -1}, "max_detections must not be negative"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    arguments = {
        "boxes": np.zeros((2, 4), np.float32),
        "scores": np.zeros(2, np.float32),
        "class_ids": np.zeros(2, np.int64),
        "iou_threshold": 0.5,
        "max_detections": 10,
    }
    with pytest.raises(ValueError, match=message):
        nms(**{**arguments, **change})


def floats(*values):
    return np.array(values, np.float32)


def ids(*values):
    return np.array(values, np.int64)


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
    ],
)
def test_average_precision(scores, right, truths, expected):
    found = average_precision(floats(*scores), np.array(right, bool), truths)
    assert found == pytest.approx(expected, abs=1e-12)


def test_average_precision_without_truth_is_undefined():
    assert math.isnan(average_precision(floats(0.5), np.array([False]), 0))


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


def test_a_box_in_another_image_is_no_match():
    metric = DetectionMetric(1)
    box = boxes_of([0, 0, 10, 10])
    metric.add(box, floats(0.9), ids(0), boxes_of(), ids())
    metric.add(boxes_of(), floats(), ids(), box, ids(0))
    assert metric.mean() == 0.0


def test_no_truth_at_all_is_undefined():
    assert math.isnan(DetectionMetric(2).mean())
    assert math.isnan(SegmentationMetric(2).mean())


def test_iou_of_a_small_mask():
    metric = SegmentationMetric(4)
    metric.add(np.array([[0, 1, 1, 1, 2]], np.uint8), np.array([[0, 0, 1, 1, 1]], np.uint8))
    # 0: 1 shared of 2. 1: 2 shared of 4. 2: 0 of 1. 3: nowhere.
    values = metric.ious()
    assert values[:3].tolist() == [0.5, 0.5, 0.0]
    assert math.isnan(values[3])
    assert metric.mean() == pytest.approx(1 / 3)
    assert metric.confusion.sum() == 5
    assert metric.confusion[1, 2] == 1


def test_pixels_of_all_images_count_together():
    metric = SegmentationMetric(2)
    metric.add(np.zeros((1, 3), np.uint8), np.zeros((1, 3), np.uint8))
    metric.add(np.zeros((1, 1), np.uint8), np.ones((1, 1), np.uint8))
    assert metric.ious().tolist() == [0.75, 0.0]


def test_bad_masks_are_refused():
    metric = SegmentationMetric(2)
    with pytest.raises(ValueError, match="one shape"):
        metric.add(np.zeros((1, 2), np.uint8), np.zeros((2, 1), np.uint8))
    with pytest.raises(ValueError, match="classes below 2"):
        metric.add(np.full((1, 1), 2, np.uint8), np.zeros((1, 1), np.uint8))


@pytest.mark.parametrize("make", [DetectionMetric, SegmentationMetric])
def test_classes_must_be_positive(make):
    with pytest.raises(ValueError, match="classes must be at least 1"):
        make(0)


def test_threshold_must_be_a_share():
    with pytest.raises(ValueError, match=r"iou_threshold must be in \(0, 1\]"):
        DetectionMetric(1, 0.0)
