# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results as values for lines of JSON, with the names of the classes."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.results import Classification, Result, Segmentation


def describe_result(result: Result | None, kind: Kind, labels: Sequence[str]) -> dict[str, object]:
    """The result of a frame: ``boxes``, ``class_shares`` or ``classes``.

    Without a result, the key of `kind` with an empty value.
    """
    if isinstance(result, Segmentation):
        return {"class_shares": _share_classes(result, labels)}
    if result is not None:
        found: list[dict[str, object]] = [
            {"class_id": str(class_id), "label": _name(labels, class_id), "score": round(score, 5)}
            for class_id, score in zip(
                result.class_ids.tolist(), result.scores.tolist(), strict=True
            )
        ]
        if isinstance(result, Classification):
            return {"classes": found}
        for entry, corners in zip(found, result.boxes.tolist(), strict=True):
            entry["xyxy"] = [round(value, 2) for value in corners]
        return {"boxes": found}
    if kind == "segmentation":
        return {"class_shares": {}}
    return {"boxes" if kind == "detection" else "classes": []}


def _name(labels: Sequence[str], class_id: int) -> str:
    return labels[class_id] if class_id < len(labels) else f"class_{class_id}"


def _share_classes(result: Segmentation, labels: Sequence[str]) -> dict[str, float]:
    # OpenCV's histogram keeps neither the interpreter's lock nor a copy of the mask.
    mask = np.ascontiguousarray(result.mask)
    counts = cv2.calcHist([mask], [0], None, [256], [0, 256]).ravel().tolist()
    return {
        _name(labels, class_id): round(count / mask.size, 6)
        for class_id, count in enumerate(counts)
        if count
    }
