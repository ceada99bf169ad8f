# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Agreement of a variant with the full model, frame by frame and without labels.

The full model's answer stands in for the truth: boxes give mAP@0.5, masks mIoU, classes the share
of frames whose best class is the same. Of several masks all count alike. Of a network with
instance masks, keypoints or turned boxes the upright boxes are compared, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from jetson_dnn_rt.models.metrics import DetectionMetric, SegmentationMetric
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.safety.records import Count, within

METRICS = {"detection": "mAP@0.5", "segmentation": "mIoU", "classification": "top-1"}
"""Name of the measure by kind of task."""

_NOTHING = {"mAP@0.5": "no boxes", "mIoU": "one class"}
"""What the full model sees in frames that show nothing to agree on."""


@dataclass(frozen=True)
class Agreement:
    """Result of `compare`; ``str`` gives it for people."""

    value: Annotated[float, within(0, 1)] | None  # None = unknown, without any evidence
    metric: str  # one of `METRICS`
    frames: Count  # compared
    # findings of the full model: boxes, frames times classes of a mask, classes; where they are
    # few the value means little
    evidence: Count
    reference: str  # the variant of the full model

    def __post_init__(self) -> None:
        # Earlier versions stored 1.0 or 0.0 for frames in which the full model finds nothing.
        if not self.evidence:
            object.__setattr__(self, "value", None)

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.value:.3f} {self.metric}"
        return f"unknown: {_NOTHING.get(self.metric, 'nothing')} in {self.frames} frames"


def compare(
    kind: str, full: Sequence[Result], variant: Sequence[Result], reference: str
) -> Agreement:
    """Compare a variant's results with those of the full model on the same frames.

    Where the full model sees no box at all, or one class all over all masks, there is nothing to
    agree on, whatever the variant sees: the value is unknown.

    Raises
    ------
    ValueError
        When the kind is unknown, there is no frame, or there are not equally many.
    TypeError
        When a result is not of that kind.
    """
    if kind not in METRICS:
        raise ValueError(f"kind must be one of {', '.join(METRICS)}: {kind!r}")
    if not full or len(full) != len(variant):
        raise ValueError(
            f"full and variant must be equally many and at least one: {len(full)}, {len(variant)}"
        )
    expected, measure = _MEASURES[kind]
    for result in (*full, *variant):
        if not isinstance(result, expected):
            raise TypeError(f"a {expected.__name__} is expected, not {type(result).__name__}")
    value, evidence = measure(full, variant)
    return Agreement(value, METRICS[kind], len(full), evidence, reference)


def _compare_boxes(full: Sequence[Any], variant: Sequence[Any]) -> tuple[float, int]:
    highest = max((int(r.class_ids.max()) for r in (*full, *variant) if len(r)), default=0)
    metric = DetectionMetric(1 + highest)
    for true, found in zip(full, variant, strict=True):
        metric.add(found.boxes, found.scores, found.class_ids, true.boxes, true.class_ids)
    boxes = int(metric.truths.sum())
    return (metric.mean() if boxes else 0.0), boxes


def _compare_masks(full: Sequence[Any], variant: Sequence[Any]) -> tuple[float, int]:
    """Compare masks of the same name: the classes of one have nothing to do with another's."""
    values: list[float] = []
    evidence = 0
    # The results of one network have the same masks in the same order.
    by_name = zip(*(result.masks for result in full), strict=True)
    found_by_name = zip(*(result.masks for result in variant), strict=True)
    for truths, finds in zip(by_name, found_by_name, strict=True):
        metric = SegmentationMetric(1 + max(int(m.mask.max()) for m in (*truths, *finds)))
        for true, found in zip(truths, finds, strict=True):
            metric.add(found.mask, true.mask)
        values.append(metric.mean())
        seen = [np.unique(true.mask) for true in truths]
        if len(np.unique(np.concatenate(seen))) > 1:
            evidence += sum(map(len, seen))
    return sum(values) / len(values), evidence


def _compare_classes(full: Sequence[Any], variant: Sequence[Any]) -> tuple[float, int]:
    pairs = zip(full, variant, strict=True)
    same = [np.array_equal(a.class_ids[:1], b.class_ids[:1]) for a, b in pairs]
    return sum(same) / len(same), len(same)


_MEASURES: dict[str, tuple[type, Callable[..., tuple[float, int]]]] = {
    "detection": (Detections, _compare_boxes),
    "segmentation": (Segmentation, _compare_masks),
    "classification": (Classification, _compare_classes),
}
