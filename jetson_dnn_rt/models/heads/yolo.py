# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""YOLO detectors of one output: YOLOX, YOLOv5, YOLOv8 and YOLO11.

Rows are filtered by score before anything else is computed, so the cost follows the number of
objects, not of anchors.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.base import (
    STRIDE_SETS,
    DecoderSettings,
    Grid,
    Layout,
    Match,
    Outputs,
    count_cells,
)
from jetson_dnn_rt.models.heads.boxes import finish, to_corners
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry, Preprocessing
from jetson_dnn_rt.results import Detections


class YoloxDecoder:
    """YOLOX ``[1, N, 5+C]``: ``cx, cy, w, h, objectness, C class scores`` per cell.

    `raw`: centres are offsets in cells and sizes logarithms (the usual export), else pixels.
    """

    def __init__(self, input_size: tuple[int, int], raw: bool) -> None:
        self._input_size = input_size
        self._raw = raw
        self._cells: Floats | None = None

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        rows = cast(Floats, outputs[0][0])
        kept, class_ids, scores = _filter_objectness(rows, settings.confidence)
        boxes = rows[kept, :4].astype(np.float32)
        if self._raw:
            cells = self._cells if self._cells is not None else self._make_cells(len(rows))
            cell = cells[kept]
            boxes[:, :2] = (boxes[:, :2] + cell[:, :2]) * cell[:, 2:]
            with np.errstate(over="ignore"):  # `finish` drops what is not finite
                boxes[:, 2:] = np.exp(boxes[:, 2:]) * cell[:, 2:]
        return finish(to_corners(boxes), scores, class_ids, geometry, settings)

    def _make_cells(self, count: int) -> Floats:
        """Column, row and stride of every cell, in the order of the outputs, [N, 3]."""
        if count not in [count_cells(*self._input_size, strides) for strides in STRIDE_SETS]:
            raise ModelError(f"{count} rows do not fit an input of {self._input_size}")
        levels = []
        for stride in STRIDE_SETS[-1]:
            height, width = (-(-side // stride) for side in self._input_size)
            y, x = np.mgrid[:height, :width]
            levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], axis=1))
        self._cells = np.concatenate(levels)[:count].astype(np.float32)
        return self._cells


def decode_yolov5(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, N, 5+C]``: centre and size in input pixels, objectness, class scores."""
    rows = cast(Floats, outputs[0][0])
    kept, class_ids, scores = _filter_objectness(rows, settings.confidence)
    boxes = to_corners(rows[kept, :4].astype(np.float32))
    return finish(boxes, scores, class_ids, geometry, settings)


def decode_yolov8(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, 4+C, N]``: centre and size in input pixels, class scores."""
    columns = cast(Floats, outputs[0][0])
    best = columns[4:].max(axis=0)
    kept = np.flatnonzero(best >= settings.confidence)
    class_ids = columns[4:, kept].argmax(axis=0)
    boxes = to_corners(np.ascontiguousarray(columns[:4, kept].T, dtype=np.float32))
    return finish(boxes, best[kept], class_ids, geometry, settings)


def _filter_objectness(
    rows: Floats, confidence: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """Rows whose objectness times best class score reaches `confidence`.

    A class score is at most 1, so objectness alone rules out nearly all rows at once.
    """
    kept = np.flatnonzero(rows[:, 4] >= confidence)
    classes = rows[kept, 5:]
    class_ids = classes.argmax(axis=1)
    scores = rows[kept, 4] * classes[np.arange(len(kept)), class_ids]
    sure = scores >= confidence
    return kept[sure], class_ids[sure], scores[sure]


def _match_yolox(outputs: Outputs, grid: Grid, *, raw: bool) -> Match | None:
    match [output.shape for output in outputs]:
        case [(1, grid.cells, columns)] if columns > 5:
            if bool(np.any(outputs[0][0, :, 2:4] <= 0.0)) != raw:
                return Match(columns - 5, "asked for", likely=False)
            sizes = f"{'some' if raw else 'no'} width or height <= 0"
            return Match(columns - 5, f"{grid.cells} rows = {grid.text}, {sizes}")
    return None


def _match_yolov5(outputs: Outputs, grid: Grid) -> Match | None:
    match [output.shape for output in outputs]:
        case [(1, rows, columns)] if rows == 3 * grid.cells and columns > 5:
            return Match(columns - 5, f"{rows} rows = 3 x {grid.text}")
    return None


def _match_yolov8(outputs: Outputs, grid: Grid) -> Match | None:
    match [output.shape for output in outputs]:
        case [(1, rows, grid.cells)] if rows > 4:
            return Match(rows - 4, f"{grid.cells} columns = {grid.text}")
    return None


_YOLOX = partial(Preprocessing, resize="letterbox_topleft", color="bgr", scale=1.0)
_ULTRALYTICS = partial(Preprocessing, resize="letterbox_center", color="rgb")

LAYOUTS = (
    Layout(
        "yolox", "[1, N, 5+C] raw offsets, N = one row per cell of strides 8, 16, 32",
        partial(_match_yolox, raw=True), partial(YoloxDecoder, raw=True), _YOLOX,
    ),
    Layout(
        "yolox_decoded", "[1, N, 5+C] the same with cx, cy, w, h in input pixels",
        partial(_match_yolox, raw=False), partial(YoloxDecoder, raw=False), _YOLOX,
    ),
    Layout(
        "yolov5", "[1, N, 5+C] cx, cy, w, h in input pixels, N = three rows per cell",
        _match_yolov5, lambda input_size: decode_yolov5, _ULTRALYTICS,
    ),
    Layout(
        "yolov8", "[1, 4+C, N] cx, cy, w, h in input pixels (YOLOv8, YOLO11)",
        _match_yolov8, lambda input_size: decode_yolov8, _ULTRALYTICS,
    ),
)  # fmt: skip
