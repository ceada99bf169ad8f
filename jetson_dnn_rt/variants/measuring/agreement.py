"""How far a variant agrees with the full model, frame by frame and without labels.

The full model's answer stands in for the truth: boxes give mAP@0.5, masks mIoU, classes the share
of frames whose best class is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np

from jetson_dnn_rt.models.metrics import DetectionMetric, SegmentationMetric
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.safety.records import Count, within

METRICS = {"detection": "mAP@0.5", "segmentation": "mIoU", "classification": "top-1"}
"""Name of the measure by kind of task."""

_R = TypeVar("_R", Detections, Segmentation, Classification)


@dataclass(frozen=True)
class Agreement:
    """What `compare` found."""

    value: Annotated[float, within(0, 1)]
    metric: str  # one of `METRICS`
    frames: Count  # compared
    # what the full model saw: boxes, frames times classes of a mask, classes; where it is small
    # the value says little
    evidence: Count
    reference: str  # the variant of the full model


def compare(
    kind: str, full: Sequence[Result], variant: Sequence[Result], reference: str
) -> Agreement:
    """Compare a variant's results with those of the full model on the same frames.

    Where the full model sees no box at all, the value is 1.0 if the variant sees none either, else
    0.0, with `evidence` 0.

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
    value, evidence = _MEASURES[kind](full, variant)
    return Agreement(value, METRICS[kind], len(full), evidence, reference)


def _compare_boxes(full: Sequence[Result], variant: Sequence[Result]) -> tuple[float, int]:
    pairs = [
        (_expect(a, Detections), _expect(b, Detections))
        for a, b in zip(full, variant, strict=True)
    ]
    classes = 1 + max(
        (int(r.class_ids.max()) for pair in pairs for r in pair if len(r)), default=0
    )
    metric = DetectionMetric(classes)
    for true, found in pairs:
        metric.add(found.boxes, found.scores, found.class_ids, true.boxes, true.class_ids)
    boxes = int(metric.truths.sum())
    if not boxes:
        return float(not any(len(found) for _, found in pairs)), 0
    return metric.mean(), boxes


def _compare_masks(full: Sequence[Result], variant: Sequence[Result]) -> tuple[float, int]:
    pairs = [
        (_expect(a, Segmentation).mask, _expect(b, Segmentation).mask)
        for a, b in zip(full, variant, strict=True)
    ]
    metric = SegmentationMetric(1 + max(int(mask.max()) for pair in pairs for mask in pair))
    for true, found in pairs:
        metric.add(found, true)
    return metric.mean(), sum(len(np.unique(true)) for true, _ in pairs)


def _compare_classes(full: Sequence[Result], variant: Sequence[Result]) -> tuple[float, int]:
    same = [
        np.array_equal(
            _expect(a, Classification).class_ids[:1], _expect(b, Classification).class_ids[:1]
        )
        for a, b in zip(full, variant, strict=True)
    ]
    return sum(same) / len(same), len(same)


def _expect(result: Result, kind: type[_R]) -> _R:
    if not isinstance(result, kind):
        raise TypeError(f"a {kind.__name__} is expected, not {type(result).__name__}")
    return result


_MEASURES = {
    "detection": _compare_boxes,
    "segmentation": _compare_masks,
    "classification": _compare_classes,
}
