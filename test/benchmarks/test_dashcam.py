# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The reference of `dashcam`, and how boxes are compared with it."""

import numpy as np
import pytest

from benchmarks.dashcam import YoloxReference, best_iou, iou, read_video
from benchmarks.harness.options import VIDEO, YOLOX


def test_iou_by_hand():
    assert iou([0, 0, 2, 2], [1, 1, 3, 3]) == pytest.approx(1 / 7)
    assert iou([0, 0, 1, 1], [2, 2, 3, 3]) == 0.0
    assert iou([0, 0, 4, 2], [0, 0, 4, 2]) == 1.0


def test_a_box_of_another_class_does_not_count():
    box = np.array([0, 0, 2, 2, 0.9, 2])
    here = {"class_id": "2", "xyxy": [0, 0, 2, 1]}
    other = {"class_id": "7", "xyxy": [0, 0, 2, 2]}
    assert best_iou(box, [here, other]) == 0.5
    assert best_iou(box, [other]) == 0.0
    assert best_iou(box, []) == 0.0


def test_reference_finds_the_cars_that_were_published(shared_data):
    pytest.importorskip("onnxruntime")
    reference = YoloxReference(shared_data / YOLOX)
    frames = list(read_video(shared_data / VIDEO))
    assert len(frames) == 221
    boxes = reference(frames[119], 0.4)
    for corners, score in (([0, 294, 148, 384], 0.89), ([184, 295, 246, 339], 0.62)):
        best = max(boxes, key=lambda box: iou(box, corners))
        # The figures are published in whole pixels.
        assert iou(best, corners) > 0.9
        assert best[4] == pytest.approx(score, abs=0.01)
        assert best[5] == 2  # car
