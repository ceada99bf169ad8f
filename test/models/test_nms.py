"""Non-maximum suppression against hand-made cases and a plain reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.models.heads.boxes import iou_matrix, nms


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
