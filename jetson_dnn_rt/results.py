"""What a task says about a frame, in pixels of the source image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True, eq=False)
class Detections:
    """Boxes found in one frame, best first.

    Attributes
    ----------
    boxes : ndarray of float32, [N, 4]
        ``x1, y1, x2, y2`` in pixels of the source image, clipped to it.
    scores : ndarray of float32, [N]
        Confidence in [0, 1].
    class_ids : ndarray of int64, [N]
        Index into the model's labels.
    """

    boxes: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    class_ids: npt.NDArray[np.int64]

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
    """A class for every pixel of one frame.

    Attributes
    ----------
    mask : ndarray of uint8, [H, W]
        Index into the model's labels, at the size of the source image.
    """

    mask: npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Classification:
    """The classes of one frame, best first.

    Attributes
    ----------
    class_ids : ndarray of int64, [K]
        Index into the model's labels.
    scores : ndarray of float32, [K]
        Probability after softmax.
    """

    class_ids: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


Result = Detections | Segmentation | Classification
