# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A decoder of one's own: FastestDet (github.com/dog-qiuqiu/FastestDet), ``[1, 85, h, w]``.

``PYTHONPATH=examples``, and in the parameter file ``head: fastestdet:FastestDet``.
"""

import numpy as np

from jetson_dnn_rt.models.heads.boxes import finish


class FastestDet:
    """Per cell: objectness, then x, y, width, height before tanh and sigmoid, then classes."""

    kind = "detection"
    preprocessing = {"resize": "stretch", "color": "bgr", "scale": 1 / 255}

    def __init__(self, network):
        _, planes, self.rows, self.columns = network.outputs[0].shape
        self.classes = planes - 5
        self.height, self.width = network.input_size

    def __call__(self, outputs, geometry, settings):
        """Decode one frame: boxes in pixels of the input, the rest is common to all detectors."""
        cells = outputs[0][0].reshape(5 + self.classes, -1)
        scores = cells[0] ** 0.6 * cells[5:].max(axis=0) ** 0.4
        kept = np.flatnonzero(scores >= settings.confidence)
        cells, y, x = cells[:, kept], kept // self.columns, kept % self.columns
        centre = (np.tanh(cells[1]) + x) / self.columns, (np.tanh(cells[2]) + y) / self.rows
        half = 0.5 / (1 + np.exp(-cells[3:5]))
        boxes = np.stack([*(centre - half), *(centre + half)], axis=1) * (
            [self.width, self.height] * 2
        )
        return finish(boxes, scores[kept], cells[5:].argmax(axis=0), geometry, settings)
