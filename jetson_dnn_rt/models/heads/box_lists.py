# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detectors that return boxes and scores apart: the built-in one, and torchvision's."""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from jetson_dnn_rt.models.heads.base import DecoderSettings, Inspected, Layout, Match, Outputs
from jetson_dnn_rt.models.heads.boxes import finish, select
from jetson_dnn_rt.models.heads.object_parts import move_keypoints, paint_instances
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


class TorchvisionDecoder:
    """Boxes ``[N, 4]`` in input pixels, integer labels ``[N]``, scores ``[N]``, in any order.

    With `part` also masks ``[N, 1, H, W]`` of probabilities, or keypoints ``[N, K, 3]``. The
    network has already removed overlapping boxes by its own threshold; `nms_iou` can only remove
    more.
    """

    def __init__(self, input_size: tuple[int, int], part: str = "") -> None:
        self._input_size, self._part = input_size, part

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        boxes = next(output for output in outputs if output.ndim == 2 and output.shape[1] == 4)
        labels = next(o for o in outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.integer))
        scores = next(o for o in outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.floating))
        kept = np.flatnonzero(scores >= settings.confidence)
        corners = boxes[kept].astype(np.float32)
        found, rows = select(corners, scores[kept], labels[kept], geometry, settings)
        if self._part == "masks":
            masks = next(output for output in outputs if output.ndim == 4)[kept[rows], 0]
            found.instance_mask = paint_instances(
                masks.astype(np.float32) - 0.5, found.boxes, self._input_size, geometry
            )
        elif self._part == "keypoints":
            points = next(output for output in outputs if output.ndim == 3)[kept[rows]]
            found.keypoints = move_keypoints(points.astype(np.float32), geometry)
        return found


def _match_boxes_scores(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, 4), (1, scored, classes)] if rows == scored:
            if seen.names[:1] in (("logits",), ("dets",)) or "box" in "".join(seen.names[1:]):
                return None  # of the DETR family
            return Match(
                lambda: decode_boxes_scores,
                classes,
                f"{rows} boxes with {classes} scores each",
                scores=seen.outputs[1],
                pixels=seen.outputs[0],
            )
    return None


_PARTS: dict[str, list[int]] = {"": [], "masks": [4], "keypoints": [2, 3]}
"""Dimensions of the outputs beside boxes, labels and scores; of keypoints also their scores."""


def _match_torchvision(seen: Inspected, *, part: str) -> Match | None:
    dimensions = sorted(output.ndim for output in seen.outputs)
    integers = [o for o in seen.outputs if o.ndim == 1 and np.issubdtype(o.dtype, np.integer)]
    boxes = [output for output in seen.outputs if output.ndim == 2 and output.shape[1] == 4]
    scores = [output for output in seen.outputs if output.ndim == 1 and output.dtype.kind == "f"]
    if (
        dimensions != sorted([1, 1, 2, *_PARTS[part]])
        or len(integers) != 1
        or not boxes
        or not scores
    ):
        return None
    and_part = f", and {part}" if part else ""
    return Match(
        partial(TorchvisionDecoder, seen.input_size, part),
        0,
        f"boxes, integer labels and scores as lists{and_part}",
        scores=scores[0],
        pixels=boxes[0],
    )


_STRETCHED = partial(Preprocessing, resize="stretch")

LAYOUTS = (
    Layout(
        "torchvision", "boxes [N, 4], labels [N] integer, scores [N]",
        partial(_match_torchvision, part=""), _STRETCHED,
        default_classes=91,  # COCO's numbering
    ),
    Layout(
        "torchvision_seg", "the same and masks [N, 1, H, W] (Mask R-CNN)",
        partial(_match_torchvision, part="masks"), _STRETCHED, default_classes=91,
    ),
    Layout(
        "torchvision_pose", "the same and keypoints [N, K, 3] and their scores (Keypoint R-CNN)",
        partial(_match_torchvision, part="keypoints"), _STRETCHED, default_classes=2,
    ),
    Layout(
        "boxes_scores", "boxes [1, N, 4] x1, y1, x2, y2 in input pixels, [1, N, C]",
        _match_boxes_scores, Preprocessing,
    ),
)  # fmt: skip
