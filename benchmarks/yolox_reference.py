"""YOLOX by ONNX Runtime and numpy alone, to check the package's results against.

Written from the model's description (letterbox at the top left with 114, BGR, 0 to 255; raw
offsets on strides 8, 16, 32) and sharing no code with the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

SIZE = 416
STRIDES = (8, 16, 32)
NMS_IOU = 0.45

Boxes = npt.NDArray[np.float32]
"""Rows of x1, y1, x2, y2, score, class; [N, 6]."""


class YoloxReference:
    """Runs the network on one image at a time.

    Parameters
    ----------
    path : Path
        The ONNX file.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        grids, strides = [], []
        for stride in STRIDES:
            cells = SIZE // stride
            y, x = np.mgrid[0:cells, 0:cells]
            grids.append(np.stack([x, y], axis=-1).reshape(-1, 2))
            strides.append(np.full((cells * cells, 1), stride))
        self._grid, self._stride = np.concatenate(grids), np.concatenate(strides)

    def __call__(self, image: npt.NDArray[np.uint8], score: float) -> Boxes:
        """Boxes of at least this score, in pixels of the image."""
        height, width = image.shape[:2]
        ratio = min(SIZE / height, SIZE / width)
        size = (int(width * ratio), int(height * ratio))
        padded = np.full((SIZE, SIZE, 3), 114, np.float32)
        padded[: size[1], : size[0]] = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        blob = np.ascontiguousarray(padded.transpose(2, 0, 1)[None])
        output: npt.NDArray[Any] = self._session.run(None, {self._input: blob})[0][0]
        centers = (output[:, :2] + self._grid) * self._stride
        sizes = np.exp(output[:, 2:4]) * self._stride
        scores = output[:, 4:5] * output[:, 5:]
        found = []
        for class_id in range(scores.shape[1]):
            keep = scores[:, class_id] >= score
            corners = np.hstack([centers[keep] - sizes[keep] / 2, centers[keep] + sizes[keep] / 2])
            rows = np.column_stack([corners / ratio, scores[keep, class_id]])
            found += [[*row, class_id] for row in _suppress(rows)]
        boxes = np.array(found, np.float32).reshape(-1, 6)
        boxes[:, 0:4:2] = boxes[:, 0:4:2].clip(0, width)
        boxes[:, 1:4:2] = boxes[:, 1:4:2].clip(0, height)
        return boxes


def iou(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Intersection over union of two boxes x1, y1, x2, y2."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    sides = np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2])
    common = float(np.prod(sides.clip(0)))
    return common / float(np.prod(a[2:4] - a[:2]) + np.prod(b[2:4] - b[:2]) - common)


def read_video(path: Path) -> Iterator[npt.NDArray[np.uint8]]:
    """Frames of a video, BGR."""
    capture = cv2.VideoCapture(str(path))
    while True:
        done, image = capture.read()
        if not done:
            return
        yield np.asarray(image, np.uint8)


def _suppress(rows: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
    """Greedy non-maximum suppression of x1, y1, x2, y2, score; best first."""
    kept: list[npt.NDArray[np.float64]] = []
    for row in rows[np.argsort(-rows[:, 4])]:
        if all(iou(row, other) <= NMS_IOU for other in kept):
            kept.append(row)
    return kept
