"""Results as values for JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jetson_dnn_rt.models.heads.result_lines import describe_result
from jetson_dnn_rt.results import Classification, Detections, Segmentation

LABELS = ("car", "truck")


def test_boxes():
    result = Detections(
        np.array([[1.0, 2.125, 3.0, 4.0]], np.float32),
        np.array([0.123456], np.float32),
        np.array([1], np.int64),
    )
    assert describe_result(result, "detection", LABELS) == {
        "boxes": [
            {"class_id": "1", "label": "truck", "score": 0.12346, "xyxy": [1.0, 2.12, 3.0, 4.0]}
        ]
    }


def test_shares_of_a_mask():
    mask = np.array([[0, 0, 0], [1, 1, 2]], np.uint8)
    described = describe_result(Segmentation(mask), "segmentation", LABELS)
    assert described == {
        "class_shares": {"car": 0.5, "truck": pytest.approx(1 / 3, 1e-5), "class_2": 0.166667}
    }
    json.dumps(described)


def test_classes():
    result = Classification(np.array([1, 0]), np.array([0.75, 0.25], np.float32))
    assert describe_result(result, "classification", LABELS)["classes"] == [
        {"class_id": "1", "label": "truck", "score": 0.75},
        {"class_id": "0", "label": "car", "score": 0.25},
    ]


@pytest.mark.parametrize(
    ("kind", "nothing"),
    [
        ("detection", {"boxes": []}),
        ("segmentation", {"class_shares": {}}),
        ("classification", {"classes": []}),
    ],
)
def test_nothing_has_the_same_key(kind, nothing):
    assert describe_result(None, kind, LABELS) == nothing
