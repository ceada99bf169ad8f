# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What some detectors give beside a box: an instance mask, keypoints, an angle."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.boxes import select
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry
from jetson_dnn_rt.results import Detections

Integers = npt.NDArray[np.integer]


def finish_masks(
    boxes: Floats,
    scores: Floats,
    class_ids: Integers,
    coefficients: Floats,
    prototypes: Floats,
    input_size: tuple[int, int],
    geometry: Geometry,
    settings: DecoderSettings,
    *,
    suppress: bool = True,
) -> Detections:
    """Finish boxes whose masks are sums of prototypes.

    The mask of row k is where ``coefficients[k] @ prototypes`` is above 0, inside its box:
    coefficients [N, M], prototypes [M, h, w] over the whole input of `input_size`.
    """
    found, rows = select(boxes, scores, class_ids, geometry, settings, suppress=suppress)
    planes, height, width = prototypes.shape
    logits = coefficients[rows].astype(np.float32) @ prototypes.reshape(planes, -1)
    found.instance_mask = paint_instances(
        logits.reshape(-1, height, width), found.boxes, input_size, geometry
    )
    return found


def paint_instances(
    logits: Floats, boxes: Floats, input_size: tuple[int, int], geometry: Geometry
) -> npt.NDArray[np.uint16]:
    """Paint the masks of the objects of a frame into one picture of the source's size.

    `logits`, [N, h, w], cover the input of `input_size`, `boxes`, [N, 4], are in pixels of the
    source. Only the pixels of a box are computed, between the logits by bilinear interpolation.
    """
    import cv2  # here alone: heads are imported where there is no OpenCV

    picture = np.zeros((geometry.source_height, geometry.source_width), np.uint16)
    height, width = logits.shape[1:]
    scale_x = geometry.scale_x * width / input_size[1]
    scale_y = geometry.scale_y * height / input_size[0]
    shift_x = geometry.offset_x * width / input_size[1]
    shift_y = geometry.offset_y * height / input_size[0]
    # The worst first: the best is on top.
    for k in reversed(range(len(boxes))):
        left, top = (int(value) for value in np.floor(boxes[k, :2]))
        right, bottom = (int(value) for value in np.ceil(boxes[k, 2:]))
        region = picture[top:bottom, left:right]
        if not region.size:
            continue
        # The centre of source pixel i is at (i + 0.5) * scale + shift of the logits, whose own
        # centres are at j + 0.5.
        to_logits = np.array(
            [
                [scale_x, 0.0, (left + 0.5) * scale_x + shift_x - 0.5],
                [0.0, scale_y, (top + 0.5) * scale_y + shift_y - 0.5],
            ]
        )
        values = cv2.warpAffine(
            logits[k],
            to_logits,
            region.shape[::-1],
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
        region[values > 0.0] = k + 1
    return picture


def finish_keypoints(
    boxes: Floats,
    scores: Floats,
    class_ids: Integers,
    keypoints: Floats,
    shape: tuple[int, int],
    geometry: Geometry,
    settings: DecoderSettings,
    *,
    suppress: bool = True,
) -> Detections:
    """Finish boxes with keypoints in input pixels, [N, K * D]; `shape` is K and D, 2 or 3."""
    found, rows = select(boxes, scores, class_ids, geometry, settings, suppress=suppress)
    count, values = shape
    points = np.ones((len(rows), count, 3), np.float32)
    points[..., :values] = keypoints[rows].reshape(-1, count, values)
    found.keypoints = move_keypoints(points, geometry)
    return found


def move_keypoints(points: Floats, geometry: Geometry) -> Floats:
    """Keypoints ``[N, K, 3]`` of the input in pixels of the source, in place."""
    points[..., 0] = (points[..., 0] - geometry.offset_x) / geometry.scale_x
    points[..., 1] = (points[..., 1] - geometry.offset_y) / geometry.scale_y
    return points


def finish_rotated(
    rotated: Floats,
    scores: Floats,
    class_ids: Integers,
    geometry: Geometry,
    settings: DecoderSettings,
    *,
    suppress: bool = True,
) -> Detections:
    """Finish boxes that are turned: cx, cy, w, h in input pixels and the angle, [N, 5]."""
    found, rows = select(
        _enclose(rotated),
        scores,
        class_ids,
        geometry,
        settings,
        suppress=suppress,
        rotated=rotated,
    )
    x, y, width, height, angle = rotated[rows].T
    # The sides as vectors of the source: a picture that was distorted turns them.
    along_x, along_y = (
        np.cos(angle) * width / geometry.scale_x,
        np.sin(angle) * width / geometry.scale_y,
    )
    across_x, across_y = (
        np.sin(angle) * height / geometry.scale_x,
        np.cos(angle) * height / geometry.scale_y,
    )
    found.rotated = np.stack(
        [
            (x - geometry.offset_x) / geometry.scale_x,
            (y - geometry.offset_y) / geometry.scale_y,
            np.hypot(along_x, along_y),
            np.hypot(across_x, across_y),
            np.arctan2(along_y, along_x),
        ],
        axis=1,
    ).astype(np.float32)
    return found


def _enclose(rotated: Floats) -> Floats:
    """The least upright boxes around turned ones, xyxy [N, 4]."""
    x, y, width, height, angle = rotated.T
    cos, sin = np.abs(np.cos(angle)), np.abs(np.sin(angle))
    half_x = (cos * width + sin * height) / 2.0
    half_y = (sin * width + cos * height) / 2.0
    return np.stack([x - half_x, y - half_y, x + half_x, y + half_y], axis=1).astype(np.float32)
