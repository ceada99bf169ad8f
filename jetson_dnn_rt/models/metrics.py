# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Accuracy of detectors and segmenters: average precision and intersection over union."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.boxes import iou_matrix

__all__ = ["DetectionMetric", "SegmentationMetric", "average_precision", "match_detections"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


def match_detections(
    boxes: Floats, scores: Floats, true_boxes: Floats, iou_threshold: float
) -> Flags:
    """Mask of the correct detections of one class in one image, in the order of `boxes` (xyxy).

    As COCO does it: best score first, each detection takes the true box it overlaps most
    among those not taken yet, if the IoU reaches the threshold, in (0, 1].
    """
    right = np.zeros(len(boxes), np.bool_)
    if not len(boxes) or not len(true_boxes):
        return right
    overlaps = iou_matrix(boxes, true_boxes)
    for i in np.argsort(-scores, kind="stable"):
        best = int(np.argmax(overlaps[i]))
        if overlaps[i, best] >= iou_threshold:
            right[i] = True
            overlaps[:, best] = -1.0
    return right


def average_precision(scores: Floats, right: Flags, truths: int) -> float:
    """Area under the interpolated precision-recall curve, over all its points; in [0, 1].

    Precision at a recall is the best precision at that recall or a higher one (PASCAL VOC
    2010 and later). Detections of equal score enter the curve together. `truths` counts the true
    boxes; without one the result is NaN.
    """
    if truths <= 0:
        return float("nan")
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    last_of_score = np.append(np.diff(scores[order]) != 0.0, True)
    hits_at = hits[last_of_score].astype(np.float64)
    precision = hits_at / (np.flatnonzero(last_of_score) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(hits_at, prepend=0.0) * envelope) / truths)


class DetectionMetric:
    """Average precision per class over many images; right from an overlap of `iou_threshold`.

    `truths` counts the true boxes of each class so far, [classes].
    """

    def __init__(self, classes: int, iou_threshold: float = 0.5) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        if not 0.0 < iou_threshold <= 1.0:
            raise ValueError(f"iou_threshold must be in (0, 1], got {iou_threshold}")
        self.classes = classes
        self.iou_threshold = iou_threshold
        self._scores: list[list[Floats]] = [[] for _ in range(classes)]
        self._right: list[list[Flags]] = [[] for _ in range(classes)]
        self.truths: Integers = np.zeros(classes, np.int64)

    def add(
        self, boxes: Floats, scores: Floats, class_ids: Integers,
        true_boxes: Floats, true_class_ids: Integers,
    ) -> None:  # fmt: skip
        """Add the detections and the truth of one image (xyxy boxes in the same pixels)."""
        for kind in range(self.classes):
            mine, true = class_ids == kind, true_class_ids == kind
            self.truths[kind] += int(np.count_nonzero(true))
            if mine.any():
                found, threshold = (boxes[mine], scores[mine]), self.iou_threshold
                self._scores[kind].append(scores[mine])
                self._right[kind].append(match_detections(*found, true_boxes[true], threshold))

    def average_precisions(self) -> npt.NDArray[np.float64]:
        """The average precision of each class, [classes]; NaN without a truth."""
        values = []
        for kind in range(self.classes):
            scores = np.concatenate([np.zeros(0, np.float32), *self._scores[kind]])
            right = np.concatenate([np.zeros(0, np.bool_), *self._right[kind]])
            values.append(average_precision(scores, right, int(self.truths[kind])))
        return np.array(values, np.float64)

    def mean(self) -> float:
        """The mean over the classes that occur in the truth; NaN when none does."""
        return _mean_of_present(self.average_precisions())


class SegmentationMetric:
    """Intersection over union per class, of the pixels of many images together.

    `confusion` counts pixels by true class (row) and found class (column).
    """

    def __init__(self, classes: int) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        self.classes = classes
        self.confusion: Integers = np.zeros((classes, classes), np.int64)

    def add(self, mask: npt.NDArray[np.uint8], true_mask: npt.NDArray[np.uint8]) -> None:
        """Add the mask and the true mask of one image, both [H, W].

        `ValueError` for masks of unequal shape, or a class that does not exist.
        """
        if mask.shape != true_mask.shape:
            raise ValueError(f"masks must be of one shape, got {mask.shape}, {true_mask.shape}")
        found, true = mask.ravel(), true_mask.ravel()
        if found.size and max(found.max(), true.max()) >= self.classes:
            raise ValueError(f"masks must hold classes below {self.classes}")
        pairs = true.astype(np.int64) * self.classes + found
        counts = np.bincount(pairs, minlength=self.classes**2)
        self.confusion += counts.reshape(self.classes, self.classes)

    def ious(self) -> npt.NDArray[np.float64]:
        """The IoU of each class, [classes]; NaN where it does not occur."""
        shared = np.diag(self.confusion).astype(np.float64)
        union = self.confusion.sum(0) + self.confusion.sum(1) - shared
        values = np.full(self.classes, np.nan)
        np.divide(shared, union, out=values, where=union > 0)
        return values

    def mean(self) -> float:
        """The mean over the classes that occur; NaN when none does."""
        return _mean_of_present(self.ious())


def _mean_of_present(values: npt.NDArray[np.float64]) -> float:
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else float("nan")
