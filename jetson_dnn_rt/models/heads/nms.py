"""Non-maximum suppression per class, in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["iou_matrix", "nms"]

_BLOCK = 256  # boxes compared with each other at a time


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
    ranked = boxes[order].astype(np.float32, copy=False)
    kinds = class_ids[order]
    kept: list[int] = []
    # Blocks keep the matrices of overlaps small; most frames have one block.
    for start in range(0, count, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, count))
        if kept:
            gone = _overlaps(ranked, kinds, np.array(kept), rows, iou_threshold).any(0)
            rows = rows[~gone]
        overlaps = _overlaps(ranked, kinds, rows, rows, iou_threshold)
        alive = np.ones(len(rows), np.bool_)
        for i, row in enumerate(rows.tolist()):
            if not alive[i]:
                continue
            if len(kept) == max_detections:
                return order[kept].astype(np.int64, copy=False)
            kept.append(row)
            alive &= ~overlaps[i]
    return order[kept].astype(np.int64, copy=False)


def _overlaps(
    boxes: npt.NDArray[np.float32],
    kinds: npt.NDArray[np.int64],
    first: npt.NDArray[np.intp],
    second: npt.NDArray[np.intp],
    iou_threshold: float,
) -> npt.NDArray[np.bool_]:
    """Say which boxes of one class overlap too much, bool [len(first), len(second)]."""
    overlaps: npt.NDArray[np.bool_] = iou_matrix(boxes[first], boxes[second]) > iou_threshold
    overlaps &= kinds[first][:, None] == kinds[second][None, :]
    return overlaps
