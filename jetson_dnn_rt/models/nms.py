"""Non-maximum suppression per class, in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["iou_matrix", "nms"]


def iou_matrix(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the intersection over union of each box of `a` with each of `b`.

    Parameters
    ----------
    a, b : numpy.ndarray
        float32 [N, 4] and [M, 4], xyxy.

    Returns
    -------
    numpy.ndarray
        float32 [N, M] in [0, 1]; 0 where both boxes are empty.
    """
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = np.clip(high - low, 0.0, None)
    shared = sides[..., 0] * sides[..., 1]
    area_a = np.prod(np.clip(a[:, 2:] - a[:, :2], 0.0, None), axis=1)
    area_b = np.prod(np.clip(b[:, 2:] - b[:, :2], 0.0, None), axis=1)
    union = area_a[:, None] + area_b[None, :] - shared
    iou = np.zeros(shared.shape, np.float32)
    np.divide(shared, union, out=iou, where=union > 0.0)
    return iou


def nms(
    boxes: npt.NDArray[np.float32],
    scores: npt.NDArray[np.float32],
    class_ids: npt.NDArray[np.int64],
    iou_threshold: float,
    max_detections: int,
) -> npt.NDArray[np.int64]:
    """Return the indices of the boxes that survive, best score first.

    A box goes when a better one *of its class* overlaps it by more than `iou_threshold`.
    Of equal scores the earlier box wins.

    Parameters
    ----------
    boxes : numpy.ndarray
        float32 [N, 4], xyxy.
    scores : numpy.ndarray
        float [N].
    class_ids : numpy.ndarray
        int [N].
    iou_threshold : float
        In [0, 1].
    max_detections : int
        At most so many indices are returned, not negative.

    Returns
    -------
    numpy.ndarray
        int64 [K], K <= max_detections.

    Raises
    ------
    ValueError
        Arrays of unequal length, a threshold outside [0, 1], a negative maximum.
    """
    count = len(boxes)
    if boxes.shape != (count, 4) or scores.shape != (count,) or class_ids.shape != (count,):
        raise ValueError(
            f"boxes, scores and class_ids must be [N, 4], [N] and [N], "
            f"got {boxes.shape}, {scores.shape} and {class_ids.shape}"
        )
    if not 0.0 <= iou_threshold <= 1.0:
        raise ValueError(f"iou_threshold must be in [0, 1], got {iou_threshold}")
    if max_detections < 0:
        raise ValueError(f"max_detections must not be negative, got {max_detections}")
    order = np.argsort(-scores, kind="stable")
    x0, y0, x1, y1 = np.ascontiguousarray(boxes[order].astype(np.float32, copy=False).T)
    kinds = class_ids[order]
    areas = np.maximum(x1 - x0, 0.0) * np.maximum(y1 - y0, 0.0)
    alive = np.ones(count, np.bool_)
    kept: list[int] = []
    for i in range(count):
        if not alive[i]:
            continue
        if len(kept) == max_detections:
            break
        kept.append(i)
        rest = i + 1 + np.flatnonzero(alive[i + 1 :] & (kinds[i + 1 :] == kinds[i]))
        wide = np.minimum(x1[rest], x1[i]) - np.maximum(x0[rest], x0[i])
        high = np.minimum(y1[rest], y1[i]) - np.maximum(y0[rest], y0[i])
        shared = np.maximum(wide, 0.0) * np.maximum(high, 0.0)
        alive[rest[shared > iou_threshold * (areas[rest] + areas[i] - shared)]] = False
    return order[kept].astype(np.int64, copy=False)
