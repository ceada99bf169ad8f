# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boxes of detectors: overlap, non-maximum suppression, and mapping to the source image."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry
from jetson_dnn_rt.results import Detections

Integers = npt.NDArray[np.integer]

_BLOCK = 256  # boxes compared with each other at a time
# Suppression compares every pair: a threshold near 0 must not make a frame take a second.
_MAX_CANDIDATES = 1000


def iou_matrix(a: Floats, b: Floats) -> Floats:
    """Intersection over union of each box of `a` with each of `b`.

    xyxy boxes [N, 4] and [M, 4] give float32 [N, M] in [0, 1]; 0 where both boxes are empty.
    """
    ax0, ay0, ax1, ay1 = a.T[:, :, None]
    bx0, by0, bx1, by1 = b.T[:, None, :]
    wide = np.minimum(ax1, bx1) - np.maximum(ax0, bx0)
    high = np.minimum(ay1, by1) - np.maximum(ay0, by0)
    shared = np.maximum(wide, 0.0) * np.maximum(high, 0.0)
    area_a = np.maximum(ax1 - ax0, 0.0) * np.maximum(ay1 - ay0, 0.0)
    area_b = np.maximum(bx1 - bx0, 0.0) * np.maximum(by1 - by0, 0.0)
    union = area_a + area_b - shared
    iou = np.zeros(shared.shape, np.float32)
    np.divide(shared, union, out=iou, where=union > 0.0)
    return iou


def nms(
    boxes: Floats, scores: Floats, class_ids: Integers, iou_threshold: float, max_detections: int
) -> npt.NDArray[np.int64]:
    """Non-maximum suppression per class: indices of the boxes that survive, best score first.

    A box is removed when a better one *of its class* overlaps it by more than `iou_threshold`, in
    [0, 1]. Of equal scores the earlier box wins. Boxes are xyxy, float32 [N, 4].
    """
    order = np.argsort(-scores, kind="stable")
    ranked = boxes[order].astype(np.float32, copy=False)
    kinds = class_ids[order]

    def overlap(first: Integers, second: Integers) -> npt.NDArray[np.bool_]:
        too_much: npt.NDArray[np.bool_] = iou_matrix(ranked[first], ranked[second]) > iou_threshold
        too_much &= kinds[first][:, None] == kinds[second][None, :]
        return too_much

    kept: list[int] = []
    # Blocks keep the matrices of overlaps small; most frames have one block.
    for start in range(0, len(boxes), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(boxes)))
        if kept:
            rows = rows[~overlap(np.array(kept), rows).any(0)]
        overlaps = overlap(rows, rows)
        alive = np.ones(len(rows), np.bool_)
        for i, row in enumerate(rows.tolist()):
            if not alive[i]:
                continue
            if len(kept) == max_detections:
                return order[kept].astype(np.int64, copy=False)
            kept.append(row)
            alive &= ~overlaps[i]
    return order[kept].astype(np.int64, copy=False)


def to_corners(boxes: Floats) -> Floats:
    """Centre and size to corners, in place."""
    with np.errstate(invalid="ignore", over="ignore"):  # `finish` drops what is not finite
        boxes[:, 2:] *= 0.5
        boxes[:, :2] -= boxes[:, 2:]
        boxes[:, 2:] = boxes[:, :2] + 2.0 * boxes[:, 2:]
    return boxes


def finish(
    boxes: Floats, scores: npt.NDArray[np.floating], class_ids: Integers,
    geometry: Geometry, settings: DecoderSettings,
) -> Detections:  # fmt: skip
    """Drop what is not finite, suppress overlaps, map to the source image and clip."""
    if not len(scores):
        return Detections.empty()
    finite = np.isfinite(boxes).all(axis=1)
    if not finite.all():
        boxes, scores, class_ids = boxes[finite], scores[finite], class_ids[finite]
    scores = scores.astype(np.float32)
    if len(scores) > _MAX_CANDIDATES:
        best = np.argpartition(-scores, _MAX_CANDIDATES)[:_MAX_CANDIDATES]
        boxes, scores, class_ids = boxes[best], scores[best], class_ids[best]
    ids = class_ids.astype(np.int64)
    kept = nms(boxes, scores, ids, settings.nms_iou, settings.max_detections)
    boxes = geometry.to_source(boxes[kept])
    # A box in the padding has no area once clipped: it shows nothing of the image.
    inside = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return Detections(boxes[inside], scores[kept][inside], ids[kept][inside])
