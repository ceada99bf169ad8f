# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Accuracy of results at the time when they are available, in place of that of their frames.

At every instant of which the truth is known it is compared with the newest result that was
available by then, whichever frame that was made of; before the first result there is none, and
every object is missed (Li, Wang, Ramanan, "Towards Streaming Perception", ECCV 2020). One figure
thus holds accuracy and delay. For boxes it is COCO's AP (sAP), for masks the mIoU.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.metrics import DetectionMetric, SegmentationMetric
from jetson_dnn_rt.results import Detections, Result, Segmentation

METRICS = {"detection": ("sAP", "AP"), "segmentation": ("streaming mIoU", "mIoU")}
"""Name of the figure by kind of task, and that of results by their own frames' truth."""


@dataclass(frozen=True, eq=False)
class Timed:
    """A result and when it was available, or the truth and when it held; on one clock."""

    time_ns: int
    result: Result


def find_newest(
    available_ns: npt.ArrayLike, instants_ns: npt.ArrayLike
) -> npt.NDArray[np.signedinteger]:
    """Find the newest of some results, whose times do not decrease, at each instant.

    Indices into `available_ns`, -1 before the first one. A result counts at the instant at which
    it becomes available.
    """
    return np.searchsorted(np.asarray(available_ns), np.asarray(instants_ns), side="right") - 1


class StreamingMetric:
    """Streaming accuracy of one task over one or several streams.

    `kind` is one of `METRICS`; `instants` have been judged, `unanswered` of them without a result.
    Pixels whose true number is in `unjudged` are left out.
    """

    def __init__(self, kind: Kind, classes: int, unjudged: Collection[int] = ()) -> None:
        if kind not in METRICS:
            raise ValueError(f"kind must be one of {', '.join(METRICS)}: {kind!r}")
        self.kind = kind
        self.instants = self.unanswered = 0
        self._boxes = DetectionMetric.coco(classes)
        self._masks = SegmentationMetric(classes, unjudged)
        self._pixels = 0

    def add_stream(self, truths: Sequence[Timed], available: Sequence[Timed]) -> None:
        """Judge the results of one stream, in any order, at every instant of its truth."""
        results = sorted(available, key=lambda one: one.time_ns)
        newest = find_newest(
            [one.time_ns for one in results], [truth.time_ns for truth in truths]
        ).tolist()
        for truth, place in zip(truths, newest, strict=True):
            self.add(truth.result, results[place].result if place >= 0 else None)

    def add(self, truth: Result, found: Result | None) -> None:
        """Judge what was available at one instant; None = nothing yet."""
        self.instants += 1
        self.unanswered += found is None
        if isinstance(truth, Detections):
            answer = Detections.empty() if found is None else found
            assert isinstance(answer, Detections)
            # Overlaps at a threshold are decided in the precision of pycocotools.
            boxes, true_boxes = (one.boxes.astype(np.float64) for one in (answer, truth))
            self._boxes.add(boxes, answer.scores, answer.class_ids, true_boxes, truth.class_ids)
            return
        assert isinstance(truth, Segmentation)
        self._pixels += truth.mask.size
        if found is None:
            self._masks.add_unseen(truth.mask)
        else:
            assert isinstance(found, Segmentation)
            self._masks.add(found.mask, truth.mask)

    @property
    def judged(self) -> float | None:
        """Share of the pixels of true masks that were judged; None where there was no mask."""
        judged = int(self._masks.confusion.sum() + self._masks.unseen.sum())
        return judged / self._pixels if self._pixels else None

    def mean(self) -> float:
        """The figure of `METRICS`, in [0, 1]; NaN where the truth has no class."""
        return self._boxes.mean() if self.kind == "detection" else self._masks.mean()

    def by_class(self) -> list[float | None]:
        """The figure of each class; None where the truth, or of masks neither side, has it."""
        boxes = self.kind == "detection"
        values = self._boxes.average_precisions() if boxes else self._masks.ious()
        return [None if math.isnan(value) else value for value in values.tolist()]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the figure is None where it is unknown."""
        value = self.mean()
        return {
            "metric": METRICS[self.kind][0],
            "value": None if math.isnan(value) else value,
            "instants": self.instants,
            "unanswered": self.unanswered,
        }
