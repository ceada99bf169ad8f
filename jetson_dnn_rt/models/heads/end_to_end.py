# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detectors whose graph ends with the final boxes: each object is a row, or in lists.

YOLOv10 and YOLO26, Ultralytics' exports with ``nms=True``, networks with TensorRT's EfficientNMS
plug-in or ONNX's NonMaxSuppression at their end, and SSDs of OpenVINO. Nothing is suppressed here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import (
    DecoderSettings,
    Inspected,
    Layout,
    Match,
    Outputs,
    check_scores,
)
from jetson_dnn_rt.models.heads.boxes import select
from jetson_dnn_rt.models.heads.object_parts import finish_keypoints, finish_masks, finish_rotated
from jetson_dnn_rt.models.heads.yolo import ultralytics_input
from jetson_dnn_rt.models.heads.yolo_extras import (
    describe_keypoints,
    find_keypoints,
    find_prototypes,
)
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry, Preprocessing
from jetson_dnn_rt.results import Detections

_MOST_ROWS = 1000


def _read(
    output: Floats, settings: DecoderSettings
) -> tuple[Floats, Floats, npt.NDArray[np.int64], Floats]:
    """Boxes, scores, classes and further values of the rows above the threshold."""
    rows = output[output[:, 4] >= settings.confidence].astype(np.float32)
    return rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64), rows[:, 6:]


def decode_rows(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, N, 6]``: corners in input pixels, score, class."""
    boxes, scores, class_ids, _ = _read(cast(Floats, outputs[0][0]), settings)
    return select(boxes, scores, class_ids, geometry, settings, suppress=False)[0]


class RowsWithMasks:
    """``[1, N, 6 + M]`` with coefficients, and prototypes of masks ``[1, M, h, w]``."""

    def __init__(self, input_size: tuple[int, int], order: tuple[int, int]) -> None:
        self._input_size, self._order = input_size, order

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        rows, prototypes = (cast(Floats, outputs[place][0]) for place in self._order)
        boxes, scores, class_ids, values = _read(rows, settings)
        return finish_masks(
            boxes, scores, class_ids, values, prototypes, self._input_size, geometry, settings,
            suppress=False,
        )  # fmt: skip


def decode_pose_rows(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings, *, shape: tuple[int, int]
) -> Detections:
    """``[1, N, 6 + K * D]`` with keypoints."""
    boxes, scores, class_ids, values = _read(cast(Floats, outputs[0][0]), settings)
    return finish_keypoints(
        boxes, scores, class_ids, values, shape, geometry, settings, suppress=False
    )


def decode_obb_rows(outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Detections:
    """``[1, N, 7]``: cx, cy, w, h in input pixels, score, class, angle."""
    boxes, scores, class_ids, values = _read(cast(Floats, outputs[0][0]), settings)
    rotated = np.concatenate([boxes, values[:, :1]], axis=1)
    return finish_rotated(rotated, scores, class_ids, geometry, settings, suppress=False)


def decode_lists(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings, *, order: tuple[int, ...]
) -> Detections:
    """Boxes ``[1, N, 4]``, scores and classes ``[1, N]``, at the places `order` of the outputs.

    A fourth place is that of how many rows are valid.
    """
    boxes, scores, class_ids = (outputs[place][0] for place in order[:3])
    valid = int(outputs[order[3]].flat[0]) if len(order) > 3 else len(scores)
    kept = np.flatnonzero(scores[:valid] >= settings.confidence)
    return select(
        boxes[kept].astype(np.float32), scores[kept].astype(np.float32),
        class_ids[kept].astype(np.int64), geometry, settings, suppress=False,
    )[0]  # fmt: skip


class SsdDecoder:
    """``[1, 1, N, 7]``: picture, class, score, corners from 0 to 1; picture -1 ends the list."""

    def __init__(self, input_size: tuple[int, int]) -> None:
        height, width = input_size
        self._sides = np.array([width, height, width, height], np.float32)

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        rows = cast(Floats, outputs[0].reshape(-1, 7))
        if (ends := np.flatnonzero(rows[:, 0] < 0)).size:
            rows = rows[: ends[0]]
        rows = rows[rows[:, 2] >= settings.confidence]
        boxes = rows[:, 3:].astype(np.float32) * self._sides
        class_ids = rows[:, 1].astype(np.int64)
        return select(boxes, rows[:, 2], class_ids, geometry, settings, suppress=False)[0]


def _check_rows(rows: npt.NDArray[Any], centres: bool = False) -> str:
    """Fault of values that are read as rows; empty when there is none."""
    if not len(rows):
        return ""
    with np.errstate(invalid="ignore"):
        classes = rows[:, 5]
        if np.any(classes != np.rint(classes)) or np.any(classes < 0):
            return "its classes would not be whole numbers"
        sizes = rows[:, 2:4] if centres else rows[:, 2:4] - rows[:, :2]
        # Of rows that are no objects some may be: distances to sides are not always positive.
        if np.mean(sizes < -0.01) > 0.3:
            return "many widths or heights would be negative"
    return check_scores(rows[:, 4])


def _find_rows(seen: Inspected, columns: int | None = None) -> npt.NDArray[Any] | None:
    match seen.shapes:
        case [(1, rows, found)] if rows <= _MOST_ROWS and (found == columns or columns is None):
            output: npt.NDArray[Any] = seen.outputs[0][0]
            return output
    return None


def _match_rows(seen: Inspected) -> Match | None:
    rows = _find_rows(seen, 6)
    if rows is None:
        return None
    return Match(
        lambda: decode_rows,
        0,
        f"{len(rows)} rows of box, score and class",
        fault=_check_rows(rows),
        pixels=rows[:, :4],
    )


def _match_mask_rows(seen: Inspected) -> Match | None:
    if (order := find_prototypes(seen, 3)) is None:
        return None
    (_, rows, columns), masks = seen.shapes[order[0]], seen.shapes[order[1]][1]
    if rows > _MOST_ROWS or columns != 6 + masks:
        return None
    return Match(
        partial(RowsWithMasks, seen.input_size, order),
        0,
        f"{rows} rows of box, score, class and {masks} coefficients",
        fault=_check_rows(seen.outputs[order[0]][0]),
        pixels=seen.outputs[order[0]][0, :, :4],
    )


def _match_pose_rows(seen: Inspected) -> Match | None:
    rows = _find_rows(seen)
    if rows is None or rows.shape[1] < 8 or _check_rows(rows):
        return None
    shape = find_keypoints(rows.shape[1] - 6, seen)
    if shape is None or 6 + shape[0] * shape[1] != rows.shape[1]:
        return None
    return Match(
        lambda: partial(decode_pose_rows, shape=shape),
        0,
        f"{len(rows)} rows of box, score, class and {describe_keypoints(shape)}",
        "" if seen.metadata.keypoint_shape else "no metadata say so",
        pixels=rows[:, :4],
    )


def _match_obb_rows(seen: Inspected) -> Match | None:
    rows = _find_rows(seen, 7)
    if rows is None or _check_rows(rows, centres=True):
        return None
    doubt = "" if seen.metadata.task == "obb" else "no metadata say so"
    return Match(
        lambda: decode_obb_rows,
        0,
        f"{len(rows)} rows of box, score, class and angle",
        doubt,
        pixels=rows[:, :4],
    )


def _match_lists(seen: Inspected) -> Match | None:
    places: dict[str, int] = {}
    for place, output in enumerate(seen.outputs):
        shape = output.shape
        is_whole = np.issubdtype(output.dtype, np.integer)
        if output.size == 1 and is_whole and len(seen.outputs) == 4:
            role = "count"
        elif len(shape) == 3 and shape[::2] == (1, 4):
            role = "boxes"
        elif len(shape) == 2 and shape[0] == 1:
            named = seen.index("classes", "det_classes", "labels", "detection_classes")
            role = "classes" if is_whole or place == named else "scores"
        else:
            return None
        if role in places:
            return None
        places[role] = place
    if not {"boxes", "scores", "classes"} <= set(places):
        return None
    order = tuple(
        places[role] for role in ("boxes", "scores", "classes", "count") if role in places
    )
    rows = {seen.outputs[place].shape[1] for place in order[:3]}
    if len(rows) != 1:
        return None
    counted = ", and how many are valid" if "count" in places else ""
    return Match(
        lambda: partial(decode_lists, order=order),
        0,
        f"{rows.pop()} boxes, scores and classes as lists{counted}",
        scores=seen.outputs[places["scores"]],
        pixels=seen.outputs[places["boxes"]],
    )


def is_ssd(output: npt.NDArray[Any]) -> bool:
    """Whether the values can be rows of an SSD: pictures 0 or -1, whole classes, scores."""
    pictures, classes, scores = output.reshape(-1, 7).T[:3]
    whole = np.all(classes == np.rint(classes)) and np.all((pictures == 0) | (pictures == -1))
    return bool(whole) and not check_scores(scores)


def _match_ssd(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, 1, rows, 7)] if is_ssd(seen.outputs[0]):
            return Match(
                partial(SsdDecoder, seen.input_size),
                0,
                f"{rows} rows of class, score and box",
                shares=seen.outputs[0].reshape(-1, 7)[:, 3:],
            )
    return None


_STRETCHED = partial(Preprocessing, resize="stretch")

LAYOUTS = (
    Layout(
        "end_to_end", "[1, N, 6] x1, y1, x2, y2 in input pixels, score, class (YOLOv10, YOLO26)",
        _match_rows, ultralytics_input, task="detect", default_classes=80,
    ),
    Layout(
        "end_to_end_seg", "[1, N, 6+M] the same with M coefficients, and [1, M, h, w]",
        _match_mask_rows, ultralytics_input, task="segment", default_classes=80,
    ),
    Layout(
        "end_to_end_pose", "[1, N, 6+K*D] the same with K keypoints of D values, 2 or 3",
        _match_pose_rows, ultralytics_input, task="pose", default_classes=1,
    ),
    Layout(
        "end_to_end_obb", "[1, N, 7] cx, cy, w, h, score, class, angle in radians",
        _match_obb_rows, ultralytics_input, task="obb", default_classes=15,
    ),
    Layout(
        "box_lists", "boxes [1, N, 4] corners in input pixels, scores [1, N], classes [1, N], and "
        "perhaps how many are valid [1, 1] (EfficientNMS, RT-DETR, D-FINE)",
        _match_lists, _STRETCHED, default_classes=80,
    ),
    Layout(
        "ssd", "[1, 1, N, 7] picture, class, score, corners from 0 to 1 (OpenVINO)",
        _match_ssd, partial(Preprocessing, resize="stretch", color="bgr", scale=1.0),
        default_classes=91,
    ),
)  # fmt: skip
