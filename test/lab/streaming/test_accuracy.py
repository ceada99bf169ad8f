# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streaming accuracy by hand: which result counts when, and what that is worth."""

import numpy as np
import pytest

from jetson_dnn_rt.lab.streaming.accuracy import StreamingMetric, Timed, find_newest
from jetson_dnn_rt.results import Detections, Segmentation

LEFT, MIDDLE, RIGHT = (0, 0, 10, 10), (20, 0, 30, 10), (40, 0, 50, 10)


def seen(*places, score=0.9):
    count = len(places)
    boxes = np.array(places, np.float32).reshape(-1, 4)
    return Detections(boxes, np.full(count, score, np.float32), np.zeros(count, np.int64))


def judge(truths, available, kind="detection", classes=1):
    metric = StreamingMetric(kind, classes)
    metric.add_stream([Timed(*one) for one in truths], [Timed(*one) for one in available])
    return metric


MOVING = [(0, seen(LEFT)), (10, seen(MIDDLE)), (20, seen(RIGHT))]
STILL = [(time, seen(LEFT)) for time in (0, 10, 20)]


def test_newest_result_at_each_instant():
    """One counts at the instant at which it comes, and of two at once the later one."""
    assert find_newest([10, 20, 20, 35], [0, 10, 15, 20, 40]).tolist() == [-1, 0, 0, 2, 3]
    assert find_newest([], [0, 10]).tolist() == [-1, -1]


def test_results_that_come_at_once_are_judged_as_offline():
    assert judge(MOVING, MOVING).mean() == 1.0


def test_a_moving_object_is_missed_by_results_that_are_late():
    metric = judge(MOVING, [(time + 5, found) for time, found in MOVING])
    assert metric.to_dict() == {"metric": "sAP", "value": 0.0, "instants": 3, "unanswered": 1}


def test_an_object_that_stands_still_is_missed_only_before_the_first_result():
    # Found at 2 of 3 instants, never wrong: precision 1 at the recalls 0 to 0.66.
    metric = judge(STILL, [(time + 5, found) for time, found in STILL])
    assert metric.mean() == pytest.approx(67 / 101, abs=1e-12)
    assert metric.unanswered == 1


def test_the_newest_result_counts_even_if_an_older_one_was_of_a_newer_frame():
    available = [(18, seen(LEFT)), (15, seen(RIGHT))]
    assert judge([(20, seen(RIGHT))], available).mean() == 0.0
    assert judge([(17, seen(RIGHT))], available).mean() == 1.0


def test_a_result_that_never_came_is_no_detection_anywhere():
    metric = judge(MOVING, [])
    assert (metric.mean(), metric.instants, metric.unanswered) == (0.0, 3, 3)


def test_streams_are_judged_apart_and_counted_together():
    metric = judge(STILL[:1], STILL[:1])
    # The other stream's results are of no use to this one.
    metric.add_stream([Timed(*STILL[1])], [])
    assert metric.mean() == pytest.approx(51 / 101, abs=1e-12)
    assert metric.by_class() == [metric.mean()]


def test_without_a_true_box_the_figure_is_unknown():
    metric = judge([(0, seen())], [(0, seen(LEFT))])
    assert metric.to_dict()["value"] is None
    assert metric.by_class() == [None]


def test_masks():
    def mask(*row):
        return Segmentation(np.array([row], np.uint8))

    truths = [(0, mask(0, 1)), (10, mask(0, 1)), (20, mask(1, 1))]
    # At 0 nothing, at 10 right, at 20 what was right at 10: class 0 is found at 10, missed at 0
    # and wrong at 20, 1 of 3; class 1 is found at 10 and once at 20, 2 of 4.
    metric = judge(truths, [(5, mask(0, 1))], "segmentation", 3)
    assert metric.by_class() == [pytest.approx(1 / 3), pytest.approx(2 / 4), None]
    assert metric.mean() == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert metric.to_dict()["metric"] == "streaming mIoU"


def test_classes_of_whole_frames_are_refused():
    with pytest.raises(ValueError, match="classification"):
        StreamingMetric("classification", 2)
