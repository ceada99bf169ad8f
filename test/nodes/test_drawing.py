# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results in a picture of their frame."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.tasks.drawing import draw_results
from jetson_dnn_rt.results import Classification, Detections, Segmentation

GREY = np.full((96, 128, 3), 90, np.uint8)
LABELS = ("road", "sky")
MASK = np.zeros((96, 128), np.uint8)
MASK[:, 64:] = 1
SCORES = np.array([0.9, 0.5], np.float32)


@pytest.mark.parametrize(
    ("result", "touched", "untouched"),
    [
        # The second has a class without a name.
        (
            Detections(np.float32([[10, 30, 60, 80], [70, 40, 90, 60]]), SCORES, np.array([1, 7])),
            [(50, 10), (50, 90)],
            [(50, 35), (90, 120)],
        ),
        (Segmentation(MASK), [(10, 10), (10, 100)], []),
        (Classification(np.array([1, 0]), SCORES), [(20, 12)], [(90, 120)]),
    ],
)
def test_results_are_drawn_into_a_copy(result, touched, untouched):
    out = np.empty_like(GREY)
    picture = draw_results(Frame(GREY, "bgr8", 0, 0), [(result, LABELS)], out)
    assert picture is out
    changed = np.any(picture != GREY, axis=2)
    assert all(changed[place] for place in touched)
    assert not any(changed[place] for place in untouched)
    assert np.all(GREY == 90)
