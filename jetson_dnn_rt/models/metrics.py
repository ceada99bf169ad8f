# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Accuracy of detectors and segmenters: average precision and intersection over union.

By default mAP@0.5 over all points of the curve; `DetectionMetric.coco` is COCO's AP, as its
pycocotools compute it.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.boxes import AnyFloats, iou_matrix

__all__ = ["DetectionMetric", "SegmentationMetric", "average_precision", "match_detections"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

COCO_THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""Overlaps from which on a box is right, over which COCO takes the mean."""
COCO_RECALLS = np.linspace(0.0, 1.0, 101)
"""Recalls at which COCO reads the curve."""
COCO_MOST = 100
"""Boxes of one class in one image that COCO looks at, the best ones."""


def match_detections(
    boxes: AnyFloats, scores: Floats, true_boxes: AnyFloats, iou_threshold: npt.ArrayLike
) -> Flags:
    """Mask of the correct detections of one class in one image, in the order of `boxes` (xyxy).

    As COCO does it: best score first, each detection takes the true box it overlaps most
    among those not taken yet (of equal overlaps the last), if the IoU reaches the threshold, in
    (0, 1]. Several thresholds [T] give masks [T, N].
    """
    thresholds = np.asarray(iou_threshold, np.float64)
    right = np.zeros((thresholds.size, len(boxes)), np.bool_)
    if len(boxes) and len(true_boxes):
        # Last first, since argmax takes the first of equal ones.
        overlaps = iou_matrix(boxes, true_boxes)[:, ::-1].astype(np.float64)
        free = np.repeat(overlaps[None], thresholds.size, axis=0)
        rows = np.arange(thresholds.size)
        for i in np.argsort(-scores, kind="stable"):
            best = free[:, i].argmax(axis=1)
            hit = rows[free[rows, i, best] >= thresholds.ravel()]
            right[hit, i] = True
            free[hit, :, best[hit]] = -1.0
    return right.reshape(*thresholds.shape, len(boxes))


def average_precision(
    scores: Floats, right: Flags, truths: int, recalls: npt.NDArray[np.float64] | None = None
) -> float:
    """Area under the interpolated precision-recall curve, over all its points; in [0, 1].

    Precision at a recall is the best precision at that recall or a higher one (PASCAL VOC
    2010 and later). Detections of equal score enter the curve together. `truths` counts the true
    boxes; without one the result is NaN.

    With `recalls` it is the mean of the precisions there, 0 where the curve does not reach, as in
    COCO: detections of equal score then enter one by one, in the order of the rows.
    """
    if truths <= 0:
        return float("nan")
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    enters = np.append(np.diff(scores[order]) != 0.0, True) | (recalls is not None)
    hits_at = hits[enters].astype(np.float64)
    precision = hits_at / (np.flatnonzero(enters) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    if recalls is None:
        return float(np.sum(np.diff(hits_at, prepend=0.0) * envelope) / truths)
    reached = np.searchsorted(hits_at / truths, recalls)
    return float(np.append(envelope, 0.0)[reached].mean())


class DetectionMetric:
    """Average precision per class over many images; right from an overlap of `iou_threshold`.

    Of several thresholds it is the mean. `recalls` are those of `average_precision`; `most` keeps
    the best boxes of each class in each image. `truths` counts the true boxes of each class so
    far, [classes].
    """

    def __init__(
        self,
        classes: int,
        iou_threshold: npt.ArrayLike = 0.5,
        recalls: npt.NDArray[np.float64] | None = None,
        most: int | None = None,
    ) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        thresholds = np.atleast_1d(np.asarray(iou_threshold, np.float64))
        if not (thresholds.size and np.all((thresholds > 0.0) & (thresholds <= 1.0))):
            raise ValueError(f"iou_threshold must be in (0, 1], got {thresholds}")
        self.classes = classes
        self.thresholds = thresholds
        self._recalls, self._most = recalls, most
        self._scores: list[list[Floats]] = [[] for _ in range(classes)]
        self._right: list[list[Flags]] = [[] for _ in range(classes)]
        self.truths: Integers = np.zeros(classes, np.int64)

    @classmethod
    def coco(cls, classes: int) -> DetectionMetric:
        """Make COCO's metric: the mean over overlaps of 0.5 to 0.95, read at 101 recalls."""
        return cls(classes, COCO_THRESHOLDS, COCO_RECALLS, COCO_MOST)

    def add(
        self, boxes: AnyFloats, scores: Floats, class_ids: Integers,
        true_boxes: AnyFloats, true_class_ids: Integers,
    ) -> None:  # fmt: skip
        """Add the detections and the truth of one image (xyxy boxes in the same pixels)."""
        for kind in range(self.classes):
            mine, true = class_ids == kind, true_class_ids == kind
            self.truths[kind] += int(np.count_nonzero(true))
            if mine.any():
                best = np.argsort(-scores[mine], kind="stable")[: self._most]
                found = (boxes[mine][best], scores[mine][best])
                self._scores[kind].append(found[1])
                self._right[kind].append(
                    match_detections(*found, true_boxes[true], self.thresholds)
                )

    def precisions(self) -> npt.NDArray[np.float64]:
        """The average precision at each threshold of each class, [T, classes]; see below."""
        values = np.full((self.thresholds.size, self.classes), np.nan)
        for kind in range(self.classes):
            scores = np.concatenate([np.zeros(0, np.float32), *self._scores[kind]])
            nothing = np.zeros((self.thresholds.size, 0), np.bool_)
            right = np.concatenate([nothing, *self._right[kind]], axis=1)
            for row, mask in enumerate(right):
                values[row, kind] = average_precision(
                    scores, mask, int(self.truths[kind]), self._recalls
                )
        return values

    def average_precisions(self) -> npt.NDArray[np.float64]:
        """The average precision of each class, [classes]; NaN without a truth."""
        averages: npt.NDArray[np.float64] = self.precisions().mean(axis=0)
        return averages

    def mean(self) -> float:
        """The mean over the classes that occur in the truth; NaN when none does."""
        return _mean_of_present(self.average_precisions())


class SegmentationMetric:
    """Intersection over union per class, of the pixels of many images together.

    `confusion` counts pixels by true class (row) and found class (column), `unseen` those of
    images without a mask by true class. Pixels whose true number is in `unjudged` are left out,
    whatever was found there.
    """

    def __init__(self, classes: int, unjudged: Collection[int] = ()) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        self.classes = classes
        self._judged = np.isin(np.arange(256), list(unjudged), invert=True)
        self.confusion: Integers = np.zeros((classes, classes), np.int64)
        self.unseen: Integers = np.zeros(classes, np.int64)

    def add(self, mask: npt.NDArray[np.uint8], true_mask: npt.NDArray[np.uint8]) -> None:
        """Add the mask and the true mask of one image, both [H, W].

        `ValueError` for masks of unequal shape, or a class that does not exist.
        """
        if mask.shape != true_mask.shape:
            raise ValueError(f"masks must be of one shape, got {mask.shape}, {true_mask.shape}")
        kept = self._judged[true_mask]
        found, true = mask[kept], true_mask[kept]
        if found.size and max(found.max(), true.max()) >= self.classes:
            raise ValueError(f"masks must hold classes below {self.classes}")
        pairs = true.astype(np.int64) * self.classes + found
        counts = np.bincount(pairs, minlength=self.classes**2)
        self.confusion += counts.reshape(self.classes, self.classes)

    def add_unseen(self, true_mask: npt.NDArray[np.uint8]) -> None:
        """Add the true mask [H, W] of an image of which there is no mask: every pixel is wrong."""
        true = true_mask[self._judged[true_mask]]
        if true.size and true.max() >= self.classes:
            raise ValueError(f"masks must hold classes below {self.classes}")
        self.unseen += np.bincount(true, minlength=self.classes)

    def ious(self) -> npt.NDArray[np.float64]:
        """The IoU of each class, [classes]; NaN where it does not occur or is not judged."""
        shared = np.diag(self.confusion).astype(np.float64)
        union = self.confusion.sum(0) + self.confusion.sum(1) + self.unseen - shared
        values = np.full(self.classes, np.nan)
        judged = self._judged[: self.classes]
        np.divide(shared, union, out=values, where=(union > 0) & judged)
        return values

    def mean(self) -> float:
        """The mean over the classes that occur; NaN when none does."""
        return _mean_of_present(self.ious())


def _mean_of_present(values: npt.NDArray[np.float64]) -> float:
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else float("nan")
