# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results of tasks, in pixels of the source image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True, eq=False)
class Detections:
    """Boxes found in one frame, best first."""

    boxes: npt.NDArray[np.float32]  # [N, 4]: x1, y1, x2, y2 in pixels, clipped to the image
    scores: npt.NDArray[np.float32]  # [N], confidence in [0, 1]
    class_ids: npt.NDArray[np.int64]  # [N], index into the model's labels

    def __len__(self) -> int:
        return len(self.scores)

    @staticmethod
    def empty() -> Detections:
        """No box at all: published too, so that silence always means a fault."""
        return Detections(
            np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)
        )


@dataclass(slots=True, eq=False)
class Segmentation:
    """A class for every pixel of one frame."""

    mask: npt.NDArray[np.uint8]  # [H, W] of the source image, index into the model's labels
    confidence: npt.NDArray[np.uint8] | None = None
    """[H, W], probability of that class after softmax times 255; None = not asked for."""


@dataclass(slots=True, eq=False)
class Classification:
    """The classes of one frame, best first."""

    class_ids: npt.NDArray[np.int64]  # [K], index into the model's labels
    scores: npt.NDArray[np.float32]  # [K], probability after softmax


Result = Detections | Segmentation | Classification
