# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detectors that return boxes and scores apart: the built-in one, and torchvision's."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from jetson_dnn_rt.models.heads.base import (
    DecoderSettings,
    Inspected,
    Layout,
    Match,
    Outputs,
    check_scores,
)
from jetson_dnn_rt.models.heads.boxes import finish
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry, Preprocessing
from jetson_dnn_rt.results import Detections


def decode_boxes_scores(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings
) -> Detections:
    """Boxes ``[1, N, 4]`` as corners in input pixels and scores ``[1, N, C]`` in [0, 1]."""
    boxes, scores = cast(Floats, outputs[0][0]), cast(Floats, outputs[1][0])
    best = scores.max(axis=1)
    kept = np.flatnonzero(best >= settings.confidence)
    class_ids = scores[kept].argmax(axis=1)
    return finish(boxes[kept].astype(np.float32), best[kept], class_ids, geometry, settings)


def decode_torchvision(
    outputs: Outputs, geometry: Geometry, settings: DecoderSettings
) -> Detections:
    """Boxes ``[N, 4]`` in input pixels, integer labels ``[N]``, scores ``[N]``, in any order.

    The network has already removed overlapping boxes by its own threshold; `nms_iou` can only
    remove more.
    """
    boxes = next(output for output in outputs if output.ndim == 2)
    labels = next(o for o in outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.integer))
    scores = next(o for o in outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.floating))
    kept = np.flatnonzero(scores >= settings.confidence)
    return finish(boxes[kept].astype(np.float32), scores[kept], labels[kept], geometry, settings)


def _match_boxes_scores(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, 4), (1, scored, classes)] if rows == scored:
            if seen.names[:1] in (("logits",), ("dets",)) or "box" in "".join(seen.names[1:]):
                return None  # of the DETR family
            return Match(
                lambda: decode_boxes_scores,
                classes,
                f"{rows} boxes with {classes} scores each",
                fault=check_scores(seen.outputs[1]),
            )
    return None


def _match_torchvision(seen: Inspected) -> Match | None:
    integers = [o for o in seen.outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.integer)]
    match sorted(seen.shapes, key=len):
        case [(_,), (_,), (_, 4)] if len(integers) == 1:
            return Match(
                lambda: decode_torchvision, 0, "boxes, integer labels and scores as lists"
            )
    return None


LAYOUTS = (
    Layout(
        "torchvision", "boxes [N, 4], labels [N] integer, scores [N]", _match_torchvision,
        partial(Preprocessing, resize="stretch"),
        default_classes=91,  # COCO's numbering
    ),
    Layout(
        "boxes_scores", "boxes [1, N, 4] x1, y1, x2, y2 in input pixels, [1, N, C]",
        _match_boxes_scores, Preprocessing,
    ),
)  # fmt: skip
