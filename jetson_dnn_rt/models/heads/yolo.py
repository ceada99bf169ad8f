# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""YOLO detectors of one output with a row per anchor: YOLOX, YOLOv5, YOLOv8 and YOLO11.

Rows are filtered by score before anything else is computed, so the cost follows the number of
objects, not of anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import (
    DecoderSettings,
    Inspected,
    Layout,
    Match,
    Outputs,
    describe_cells,
)
from jetson_dnn_rt.models.heads.boxes import finish, to_corners
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry, Preprocessing
from jetson_dnn_rt.results import Detections


class YoloxDecoder:
    """YOLOX ``[1, N, 5+C]``: ``cx, cy, w, h, objectness, C class scores`` per cell.

    `raw`: centres are offsets in cells and sizes logarithms (the usual export), else pixels.
    """

    def __init__(self, input_size: tuple[int, int], strides: Sequence[int], raw: bool) -> None:
        self._cells = _make_cells(input_size, strides) if raw else None

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        rows = cast(Floats, outputs[0][0])
        kept, class_ids, scores = filter_objectness(rows, settings.confidence)
        boxes = rows[kept, :4].astype(np.float32)
        if self._cells is not None:
            cell = self._cells[kept]
            boxes[:, :2] = (boxes[:, :2] + cell[:, :2]) * cell[:, 2:]
            with np.errstate(over="ignore"):  # `finish` drops what is not finite
                boxes[:, 2:] = np.exp(boxes[:, 2:]) * cell[:, 2:]
        return finish(to_corners(boxes), scores, class_ids, geometry, settings)


def _make_cells(input_size: tuple[int, int], strides: Sequence[int]) -> Floats:
    """Column, row and stride of every cell, in the order of the outputs, [N, 3]."""
    levels = []
    for stride in strides:
        height, width = (-(-side // stride) for side in input_size)
        y, x = np.mgrid[:height, :width]
        levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], axis=1))
    return np.concatenate(levels).astype(np.float32)


def decode_yolov5(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, N, 5+C]``: centre and size in input pixels, objectness, class scores."""
    rows = cast(Floats, outputs[0][0])
    kept, class_ids, scores = filter_objectness(rows, settings.confidence)
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


def decode_yolov8_rows(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings
) -> Detections:
    """``[1, N, 4+C]``: the same, transposed."""
    return decode_yolov8([outputs[0].transpose(0, 2, 1)], geometry, settings)


def filter_objectness(
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


def _match_yolox(seen: Inspected, *, raw: bool) -> Match | None:
    match seen.shapes:
        case [(1, cells, columns)] if columns > 5 and (strides := seen.find_strides(cells)):
            rows = seen.outputs[0][0]
            doubt = ""
            if bool(np.any(rows[:, 2:4] < 0.0)) != raw:
                doubt = f"{'no' if raw else 'some'} width or height is < 0"
            sizes = f"{'some' if raw else 'no'} width or height < 0"
            return Match(
                partial(YoloxDecoder, seen.input_size, strides, raw),
                columns - 5,
                f"{cells} rows = {describe_cells(strides)}" + ("" if doubt else f", {sizes}"),
                doubt or _find_rows_of_v8(seen, columns, raw),
                "" if raw else _check_classes(rows[:, 5:]),
                scores=rows[:, 4:],
                pixels=None if raw else rows[:, :4],
            )
    return None


def _check_classes(scores: npt.NDArray[np.floating]) -> str:
    """Fault of values that are read as the scores of classes; empty where there is none."""
    if np.any(scores) and np.all(scores == np.rint(scores)):
        return "its class scores would be whole numbers: a class"
    return ""


_USUAL = (1, 80)
"""Numbers of classes by which a row with an objectness is told from one without."""


def _find_rows_of_v8(seen: Inspected, columns: int, raw: bool) -> str:
    """Doubt whether decoded rows have an objectness: those of YOLOv8, transposed, have none."""
    if raw or (columns - 5 in _USUAL and columns - 4 not in _USUAL):
        return ""
    if seen.metadata.names is not None and len(seen.metadata.names) == columns - 5:
        return ""
    return "it may be YOLOv8's output, transposed, without an objectness"


def _match_yolov8_rows(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, cells, columns)] if columns > 4 and (strides := seen.find_strides(cells)):
            rows = seen.outputs[0][0]
            names = seen.metadata.names
            known = (names is not None and len(names) == columns - 4) or columns - 4 == 80
            if names is not None and len(names) != columns - 4:
                return None
            if np.any(rows[:, 2:4] < 0.0):
                return None  # of YOLOX, raw
            return Match(
                lambda: decode_yolov8_rows,
                columns - 4,
                f"{cells} rows = {describe_cells(strides)}, no objectness",
                "" if known else "it may be YOLOX's, decoded, with an objectness",
                scores=rows[:, 4:],
                pixels=rows[:, :4],
            )
    return None


def _match_yolov5(seen: Inspected) -> Match | None:
    # Old exports return their three feature maps, of five dimensions, after the boxes.
    shapes = seen.shapes[:1] if all(len(s) == 5 for s in seen.shapes[1:]) else seen.shapes
    match shapes:
        case [(1, rows, columns)] if rows % 3 == 0 and columns > 5:
            if strides := seen.find_strides(rows // 3):
                return Match(
                    lambda: decode_yolov5,
                    columns - 5,
                    f"{rows} rows = 3 x {describe_cells(strides)}",
                    scores=seen.outputs[0][0, :, 4:],
                    pixels=seen.outputs[0][0, :, :4],
                )
    return None


def _match_yolov8(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, cells)] if rows > 4 and (strides := seen.find_strides(cells)):
            scores = seen.outputs[0][0, 4:]
            return Match(
                lambda: decode_yolov8,
                rows - 4,
                f"{cells} columns = {describe_cells(strides)}",
                find_angle(scores),
                scores=scores,
                pixels=seen.outputs[0][0, :4].T,
            )
    return None


def find_angle(scores: npt.NDArray[np.floating]) -> str:
    """Doubt about a last row that cannot be a class; empty where there is none.

    No class is seen in each cell of a grey picture; the angle of oriented boxes is about 0.8 where
    the network has no reason to turn a box.
    """
    if len(scores) > 1 and scores[-1].min() > 0.15 and scores[:-1].max() < scores[-1].min():
        least = float(scores[-1].min())
        return f"its last class would score {least:.2g} or more in every cell of a grey picture"
    return ""


_YOLOX = partial(Preprocessing, resize="letterbox_topleft", color="bgr", scale=1.0)
ultralytics_input = partial(Preprocessing, resize="letterbox_center", color="rgb")
ULTRALYTICS_INPUTS = {
    "semantic": ultralytics_input,
    "classify": partial(Preprocessing, resize="stretch"),
}
"""Of tasks whose layouts do not tell that they are Ultralytics'."""

LAYOUTS = (
    Layout(
        "yolox", "[1, N, 5+C] raw offsets, N = one row per cell of strides 8, 16, 32",
        partial(_match_yolox, raw=True), _YOLOX,
    ),
    Layout(
        "yolox_decoded", "[1, N, 5+C] the same with cx, cy, w, h in input pixels",
        partial(_match_yolox, raw=False), _YOLOX,
    ),
    Layout(
        "yolov5", "[1, N, 5+C] cx, cy, w, h in input pixels, N = three rows per cell",
        _match_yolov5, ultralytics_input, task="detect",
    ),
    Layout(
        "yolov8", "[1, 4+C, N] cx, cy, w, h in input pixels (YOLOv5u, YOLOv8, YOLO11)",
        _match_yolov8, ultralytics_input, task="detect",
    ),
    Layout(
        "yolov8_rows", "[1, N, 4+C] the same as yolov8, transposed",
        _match_yolov8_rows, ultralytics_input,
    ),
)  # fmt: skip
