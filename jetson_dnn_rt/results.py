# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results of tasks, in pixels of the source image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True, eq=False)
class Detections:
    """Objects found in one frame, best first; row k of every array is the same object."""

    boxes: npt.NDArray[np.float32]  # [N, 4]: x1, y1, x2, y2 in pixels, clipped to the image
    scores: npt.NDArray[np.float32]  # [N], confidence in [0, 1]
    class_ids: npt.NDArray[np.int64]  # [N], index into the model's labels
    # The others are None where the network does not give them, however many objects there are.
    rotated: npt.NDArray[np.float32] | None = None
    """[N, 5]: centre x, y, width, height in pixels, and the angle in radians by which the width is
    turned from the x axis towards the y axis; `boxes` enclose them."""
    keypoints: npt.NDArray[np.float32] | None = None
    """[N, K, 3]: x and y in pixels, not clipped, and a score in [0, 1]: 1 where there is none."""
    instance_mask: npt.NDArray[np.uint16] | None = None
    """[H, W] of the image: k + 1 where object k is, 0 where none is; the best is on top."""
    track_ids: npt.NDArray[np.int64] | None = None
    """[N], the same number for the same object from frame to frame; -1 = not tracked yet."""
    rejected: int = 0
    """Boxes beside these that scored high enough, but are not finite or not in the image."""

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def outlines(self) -> npt.NDArray[np.float32]:
        """Corners of the objects, [N, 4, 2] in pixels: of `rotated` where the network gives it."""
        if self.rotated is None:
            return self.boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        centre, (width, height, angle) = self.rotated[:, None, :2], self.rotated[:, 2:].T
        along = np.stack([np.cos(angle) * width, np.sin(angle) * width], axis=1) / 2.0
        across = np.stack([-np.sin(angle) * height, np.cos(angle) * height], axis=1) / 2.0
        corners = [-along - across, along - across, along + across, across - along]
        return centre + np.stack(corners, axis=1).astype(np.float32)

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
    name: str = ""
    """Output that it comes from, where the network gives several masks of a frame."""
    others: tuple[Segmentation, ...] = ()
    """The further masks of a network that gives several."""
    classes: int = 0
    """Number of its classes; 0 = as many as the model has labels."""

    @property
    def masks(self) -> tuple[Segmentation, ...]:
        """All masks of the frame, this one first."""
        return (self, *self.others)


@dataclass(slots=True, eq=False)
class Classification:
    """The classes of one frame, best first."""

    class_ids: npt.NDArray[np.int64]  # [K], index into the model's labels
    scores: npt.NDArray[np.float32]  # [K], probability after softmax


Result = Detections | Segmentation | Classification
