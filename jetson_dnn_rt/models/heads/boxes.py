# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boxes of detectors: overlap, non-maximum suppression, and mapping to the source image."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.config.task import MAX_DETECTIONS
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry
from jetson_dnn_rt.results import Detections

Integers = npt.NDArray[np.integer]
AnyFloats = npt.NDArray[np.floating]
"""Floats of any precision."""

_BLOCK = 256  # boxes compared with each other at a time


def iou_matrix(a: AnyFloats, b: AnyFloats) -> AnyFloats:
    """Intersection over union of each box of `a` with each of `b`.

    xyxy boxes [N, 4] and [M, 4] give floats [N, M] in [0, 1], in the precision of the boxes; 0
    where both boxes are empty.
    """
    ax0, ay0, ax1, ay1 = a.T[:, :, None]
    bx0, by0, bx1, by1 = b.T[:, None, :]
    wide = np.minimum(ax1, bx1) - np.maximum(ax0, bx0)
    high = np.minimum(ay1, by1) - np.maximum(ay0, by0)
    shared = np.maximum(wide, 0.0) * np.maximum(high, 0.0)
    area_a = np.maximum(ax1 - ax0, 0.0) * np.maximum(ay1 - ay0, 0.0)
    area_b = np.maximum(bx1 - bx0, 0.0) * np.maximum(by1 - by0, 0.0)
    union = area_a + area_b - shared
    iou: AnyFloats = np.zeros_like(shared)
    np.divide(shared, union, out=iou, where=union > 0.0)
    return iou


def rotated_overlap(a: Floats, b: Floats) -> Floats:
    """Overlap of boxes that are turned, as of two normal distributions, float32 [N, M] in [0, 1].

    1 minus the Hellinger distance (Murrugarra-Llerena et al., "Gaussian Bounding Boxes and
    Probabilistic Intersection-over-Union for Object Detection", 2021), which YOLO's oriented boxes
    are suppressed by. Boxes are cx, cy, w, h, angle, [N, 5] and [M, 5].
    """
    ax, ay, axx, ayy, axy = (column[:, None] for column in _covariance(a))
    bx, by, bxx, byy, bxy = (column[None, :] for column in _covariance(b))
    xx, yy, xy = axx + bxx, ayy + byy, axy + bxy
    tiny = 1e-7
    determinant = np.maximum(xx * yy - xy * xy, tiny)
    distance = (xx * (ay - by) ** 2 + yy * (ax - bx) ** 2) / determinant * 0.25
    distance += xy * (bx - ax) * (ay - by) / determinant * 0.5
    own = np.maximum(axx * ayy - axy**2, 0.0) * np.maximum(bxx * byy - bxy**2, 0.0)
    distance += 0.5 * np.log(determinant / (4.0 * np.sqrt(own) + tiny) + tiny)
    overlap = 1.0 - np.sqrt(1.0 - np.exp(-np.clip(distance, tiny, 100.0)) + tiny)
    return cast("Floats", overlap.astype(np.float32))


def rotated_nms(
    boxes: Floats, scores: Floats, class_ids: Integers, iou_threshold: float,
    max_detections: int, *, agnostic: bool = False,
) -> npt.NDArray[np.int64]:  # fmt: skip
    """Suppression of boxes that are turned, [N, 5]: indices of those that survive, best first.

    As Ultralytics does it ("fast NMS"): a box goes where any better one overlaps it, also one that
    goes itself.
    """
    order = np.argsort(-scores, kind="stable")
    overlaps = rotated_overlap(boxes[order], boxes[order]) >= iou_threshold
    if not agnostic:
        overlaps &= class_ids[order][:, None] == class_ids[order][None, :]
    alive = ~np.triu(overlaps, 1).any(axis=0)
    return order[alive][:max_detections].astype(np.int64, copy=False)


def _covariance(boxes: Floats) -> tuple[npt.NDArray[np.float64], ...]:
    """Centre and covariance of boxes as normal distributions: x, y, xx, yy, xy, [N] each."""
    x, y, width, height, angle = boxes.T.astype(np.float64)
    along, across = width**2 / 12.0, height**2 / 12.0
    cos, sin = np.cos(angle), np.sin(angle)
    return (
        x, y, along * cos**2 + across * sin**2, along * sin**2 + across * cos**2,
        (along - across) * cos * sin,
    )  # fmt: skip


def nms(
    boxes: Floats,
    scores: Floats,
    class_ids: Integers,
    iou_threshold: float,
    max_detections: int,
    *,
    agnostic: bool = False,
) -> npt.NDArray[np.int64]:
    """Non-maximum suppression: indices of the boxes that survive, best score first.

    A box is removed when a better one *of its class*, or of any if `agnostic`, overlaps it by more
    than `iou_threshold`, in [0, 1]. Of equal scores the earlier box wins. Boxes are xyxy, float32
    [N, 4].
    """
    order = np.argsort(-scores, kind="stable")
    ranked = boxes[order].astype(np.float32, copy=False)
    kinds = class_ids[order]

    def overlap(first: Integers, second: Integers) -> npt.NDArray[np.bool_]:
        too_much: npt.NDArray[np.bool_] = iou_matrix(ranked[first], ranked[second]) > iou_threshold
        if not agnostic:
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
    return select(boxes, scores, class_ids, geometry, settings)[0]


def select(
    boxes: Floats, scores: npt.NDArray[np.floating], class_ids: Integers,
    geometry: Geometry, settings: DecoderSettings, *, suppress: bool = True,
    rotated: Floats | None = None,
) -> tuple[Detections, npt.NDArray[np.intp]]:  # fmt: skip
    """Do the same as `finish`, and return also which rows were kept.

    Without `suppress` overlaps stay: of networks that give each object once. Boxes that enclose
    `rotated` ones, [N, 5], are suppressed by the overlap of those.
    """
    kept, rejected = _choose(boxes, scores, class_ids, settings)
    boxes, scores, class_ids = boxes[kept], scores[kept].astype(np.float32), class_ids[kept]
    ids = class_ids.astype(np.int64)
    limits = settings.nms_iou, settings.max_detections
    if suppress and rotated is not None:
        best = rotated_nms(rotated[kept], scores, ids, *limits, agnostic=settings.class_agnostic)
    elif suppress:
        best = nms(boxes, scores, ids, *limits, agnostic=settings.class_agnostic)
    else:
        best = np.argsort(-scores, kind="stable")[: settings.max_detections]
    boxes = geometry.to_source(boxes[best])
    # A box in the padding has no area once clipped: it shows nothing of the image.
    inside = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    rejected += len(best) - int(np.count_nonzero(inside))
    best = best[inside]
    return Detections(boxes[inside], scores[best], ids[best], rejected=rejected), kept[best]


def _choose(
    boxes: Floats, scores: npt.NDArray[np.floating], class_ids: Integers, settings: DecoderSettings
) -> tuple[npt.NDArray[np.intp], int]:
    """Rows that are finite and wanted, the best of them where they are very many.

    Returns also how many are not finite.
    """
    # Classes that were not finite before they were whole are negative.
    wanted = np.isfinite(boxes).all(axis=1) & (class_ids >= 0)
    broken = len(wanted) - int(np.count_nonzero(wanted))
    if settings.thresholds is not None:
        # A model may have more classes than names.
        known = wanted & (class_ids < len(settings.thresholds))
        limits = settings.thresholds[np.where(known, class_ids, 0)]
        wanted &= known & (scores >= limits)
    kept = np.flatnonzero(wanted)
    if len(kept) > MAX_DETECTIONS:
        kept = kept[np.argpartition(-scores[kept], MAX_DETECTIONS)[:MAX_DETECTIONS]]
    return kept, broken
