# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""YOLO networks with more than boxes per anchor: -seg, -pose and -obb.

``[1, 4 + C + E, N]``: centre and size in input pixels, class scores, then E values of the part: 32
coefficients of a mask, keypoints, or an angle in radians. YOLOv5-seg has rows with an objectness.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np

from jetson_dnn_rt.models.heads.base import (
    DecoderSettings,
    Inspected,
    Layout,
    Match,
    Outputs,
    check_scores,
    describe_cells,
)
from jetson_dnn_rt.models.heads.boxes import to_corners
from jetson_dnn_rt.models.heads.object_parts import (
    Integers,
    finish_keypoints,
    finish_masks,
    finish_rotated,
)
from jetson_dnn_rt.models.heads.yolo import filter_objectness, find_angle, ultralytics_input
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry
from jetson_dnn_rt.results import Detections

Rows = tuple[Floats, Floats, Integers, Floats]
"""Of the anchors above the threshold: cx, cy, w, h; score; class; values of the part."""


def _read_columns(output: Floats, classes: int, settings: DecoderSettings) -> Rows:
    """Rows of ``[4 + C + E, N]``."""
    scores = output[4 : 4 + classes]
    best = scores.max(axis=0)
    kept = np.flatnonzero(best >= settings.confidence)
    centres = np.ascontiguousarray(output[:4, kept].T, dtype=np.float32)
    return centres, best[kept], scores[:, kept].argmax(axis=0), output[4 + classes :, kept].T


def _read_rows(output: Floats, classes: int, settings: DecoderSettings) -> Rows:
    """Rows of ``[N, 5 + C + E]``."""
    kept, class_ids, scores = filter_objectness(output[:, : 5 + classes], settings.confidence)
    return output[kept, :4].astype(np.float32), scores, class_ids, output[kept, 5 + classes :]


class SegDecoder:
    """Boxes with coefficients, and prototypes of masks ``[1, M, h, w]``."""

    def __init__(
        self,
        input_size: tuple[int, int],
        classes: int,
        order: tuple[int, int],
        read: Callable[[Floats, int, DecoderSettings], Rows] = _read_columns,
    ) -> None:
        self._input_size, self._classes, self._order, self._read = input_size, classes, order, read

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        boxes, prototypes = (cast(Floats, outputs[place][0]) for place in self._order)
        centres, scores, class_ids, values = self._read(boxes, self._classes, settings)
        return finish_masks(
            to_corners(centres), scores, class_ids, values, prototypes,
            self._input_size, geometry, settings,
        )  # fmt: skip


def decode_pose(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings, *,
    classes: int, shape: tuple[int, int],
) -> Detections:  # fmt: skip
    """Boxes with keypoints; `shape` is their number and the values of each, 2 or 3."""
    centres, scores, class_ids, values = _read_columns(
        cast(Floats, outputs[0][0]), classes, settings
    )
    corners = to_corners(centres)
    return finish_keypoints(corners, scores, class_ids, values, shape, geometry, settings)


def decode_obb(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings, *, classes: int
) -> Detections:
    """Boxes with an angle."""
    centres, scores, class_ids, values = _read_columns(
        cast(Floats, outputs[0][0]), classes, settings
    )
    rotated = np.concatenate([centres, values[:, :1].astype(np.float32)], axis=1)
    return finish_rotated(rotated, scores, class_ids, geometry, settings)


def find_prototypes(seen: Inspected, dimensions: int) -> tuple[int, int] | None:
    """Places of the boxes, with so many dimensions, and of the prototypes among two outputs."""
    for order in ((0, 1), (1, 0)) if len(seen.shapes) == 2 else ():
        boxes, prototypes = (seen.shapes[place] for place in order)
        if len(boxes) == dimensions and len(prototypes) == 4 and prototypes[0] == boxes[0] == 1:
            return order
    return None


def _match_seg(seen: Inspected) -> Match | None:
    if (order := find_prototypes(seen, 3)) is None:
        return None
    (_, rows, cells), masks = seen.shapes[order[0]], seen.shapes[order[1]][1]
    classes = rows - 4 - masks
    if classes < 1 or not (strides := seen.find_strides(cells)):
        return None
    return Match(
        partial(SegDecoder, seen.input_size, classes, order),
        classes,
        f"{cells} columns = {describe_cells(strides)}, {masks} prototypes of masks",
        scores=seen.outputs[order[0]][0, 4 : 4 + classes],
        pixels=seen.outputs[order[0]][0, :4].T,
    )


def _match_v5_seg(seen: Inspected) -> Match | None:
    if (order := find_prototypes(seen, 3)) is None:
        return None
    (_, rows, columns), masks = seen.shapes[order[0]], seen.shapes[order[1]][1]
    classes = columns - 5 - masks
    if classes < 1 or rows % 3 or not (strides := seen.find_strides(rows // 3)):
        return None
    return Match(
        partial(SegDecoder, seen.input_size, classes, order, _read_rows),
        classes,
        f"{rows} rows = 3 x {describe_cells(strides)}, {masks} prototypes of masks",
        scores=seen.outputs[order[0]][0, :, 4 : 5 + classes],
        pixels=seen.outputs[order[0]][0, :, :4],
    )


def find_keypoints(values: int, seen: Inspected) -> tuple[int, int] | None:
    """Number of keypoints and values of each among so many; None where there is no such."""
    shape = seen.metadata.keypoint_shape
    if shape is None:
        each = next((n for n in (3, 2) if values and values % n == 0), 0)
        return (values // each, each) if each else None
    fits = shape[1] in (2, 3) and shape[0] * shape[1] <= values
    return shape if fits else None


def describe_keypoints(shape: tuple[int, int]) -> str:
    """``17 keypoints of 3 values``."""
    return f"{shape[0]} keypoints of {shape[1]} values"


def _match_pose(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, cells)] if rows > 6 and (strides := seen.find_strides(cells)):
            known = seen.metadata.keypoint_shape is not None
            # A file that says nothing: one class is by far the most usual.
            shape = find_keypoints(rows - 5, seen)
            if shape is None:
                return None
            classes = rows - 4 - shape[0] * shape[1] if known else 1
            output = seen.outputs[0][0]
            if classes < 1 or (not known and not check_scores(output[4 + classes :])):
                return None  # coordinates of keypoints that all lie in one pixel
            return Match(
                lambda: partial(decode_pose, classes=classes, shape=shape),
                classes,
                f"{cells} columns = {describe_cells(strides)}, {describe_keypoints(shape)}",
                "" if known else "no metadata say so",
                scores=output[4 : 4 + classes],
                pixels=output[:4].T,
            )
    return None


def _match_obb(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, cells)] if rows > 5 and (strides := seen.find_strides(cells)):
            said = seen.metadata.task == "obb"
            output = seen.outputs[0][0]
            if not said and not (find_angle(output[4:]) or check_scores(output[-1])):
                return None
            if not -np.pi <= float(output[-1].min()) <= float(output[-1].max()) <= np.pi:
                return None
            return Match(
                lambda: partial(decode_obb, classes=rows - 5),
                rows - 5,
                f"{cells} columns = {describe_cells(strides)}, the last row angles",
                "" if said else "no metadata say so",
                scores=output[4:-1],
                pixels=output[:4].T,
            )
    return None


LAYOUTS = (
    Layout(
        "yolov8_seg", "[1, 4+C+M, N] as yolov8 with M coefficients, and [1, M, h, w]",
        _match_seg, ultralytics_input, task="segment",
    ),
    Layout(
        "yolov5_seg", "[1, N, 5+C+M] as yolov5 with M coefficients, and [1, M, h, w]",
        _match_v5_seg, ultralytics_input, task="segment",
    ),
    Layout(
        "yolov8_pose", "[1, 4+C+K*D, N] as yolov8 with K keypoints of x, y and a score (D = 2, 3)",
        _match_pose, ultralytics_input, task="pose", default_classes=1,
    ),
    Layout(
        "yolov8_obb", "[1, 4+C+1, N] as yolov8 with an angle in radians",
        _match_obb, ultralytics_input, task="obb",
    ),
)  # fmt: skip
