# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results as values for lines of JSON, with the names of the classes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.heads.labels import name_class, name_mask_classes
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation

THUMBNAIL_SIDE = 16
"""Parts of a picture, across and down, whose mean grey level is in its thumbnail."""

_SAMPLES, _LONGEST_STEP = 64, 8
"""Pixels of the shorter side that are looked at, at least: JPEG changes single ones more than
their means. In large pictures one in `_LONGEST_STEP`: 0.2 ms for 1280x720."""


def describe_frame(frame: Frame) -> dict[str, object]:
    """The time of a frame, its size and thumbnail and, of a photo, its file."""
    described: dict[str, object] = {
        "stamp_ns": frame.stamp_ns,
        "width": frame.width,
        "height": frame.height,
        "thumbnail": base64.b64encode(make_thumbnail(frame)).decode(),
    }
    return described | {"file": frame.file} if frame.file else described


def make_thumbnail(frame: Frame) -> bytes:
    """Grey levels of a picture's parts, row by row, that tell it from others.

    They are means of the samples as they are in the frame: those of an encoding with luma and
    chroma differ from those of the same picture in colours. Empty where there are no pixels.
    """
    step = min(max(1, min(frame.height, frame.width) // _SAMPLES), _LONGEST_STEP)
    samples = frame.image[: frame.height : step, ::step]
    if not samples.size:
        return b""
    side = THUMBNAIL_SIDE, THUMBNAIL_SIDE
    small = cv2.resize(np.ascontiguousarray(samples), side, interpolation=cv2.INTER_AREA)
    grey = small if small.ndim == 2 else small[..., :3].mean(axis=2)  # without transparency
    levels: npt.NDArray[np.uint8] = np.rint(grey).astype(np.uint8)
    return levels.tobytes()


def describe_result(
    result: Result | None, kind: Kind, labels: Sequence[str], *, masks: bool = False
) -> dict[str, object]:
    """The result of a frame: ``boxes``, ``class_shares`` or ``classes``.

    Of several masks ``class_shares`` holds those of each, by its name. Without a result, the key
    of `kind` with an empty value. With `masks` also ``mask_png``: the class of each pixel as an
    8-bit PNG in base64; of several masks by their names.
    """
    if isinstance(result, Segmentation):
        several = bool(result.others)
        shares = {mask.name: _share_classes(mask, labels) for mask in result.masks}
        line: dict[str, object] = {"class_shares": shares if several else shares[result.name]}
        if masks:
            pictures = {mask.name: _encode_mask(mask) for mask in result.masks}
            line["mask_png"] = pictures if several else pictures[result.name]
        return line
    if result is not None:
        found: list[dict[str, object]] = [
            {
                "class_id": str(class_id),
                "label": name_class(labels, class_id),
                "score": round(score, 5),
            }
            for class_id, score in zip(
                result.class_ids.tolist(), result.scores.tolist(), strict=True
            )
        ]
        if isinstance(result, Classification):
            return {"classes": found}
        _describe_objects(found, result)
        return {"boxes": found}
    if kind == "segmentation":
        return {"class_shares": {}}
    return {"boxes" if kind == "detection" else "classes": []}


def _describe_objects(entries: list[dict[str, object]], found: Detections) -> None:
    """Add places, and what the network gives beside them: keys that others do not have."""
    columns: dict[str, list[object]] = {"xyxy": _round(found.boxes, 2)}
    if found.rotated is not None:
        angles = _round(found.rotated[:, 4], 5)
        columns["rotated"] = [
            [*box, angle]
            for box, angle in zip(_round(found.rotated[:, :4], 2), angles, strict=True)
        ]
    if found.keypoints is not None:
        columns["keypoints"] = _round(found.keypoints, 2)
    if found.instance_mask is not None:
        counts = np.bincount(found.instance_mask.ravel(), minlength=len(entries) + 1)
        columns["mask_area"] = counts[1 : len(entries) + 1].tolist()
    if found.track_ids is not None:
        columns["track_id"] = [None if i < 0 else i for i in found.track_ids.tolist()]
    for key, values in columns.items():
        for entry, value in zip(entries, values, strict=True):
            entry[key] = value


def _encode_mask(result: Segmentation) -> str:
    _, data = cv2.imencode(".png", result.mask, (cv2.IMWRITE_PNG_COMPRESSION, 1))
    return base64.b64encode(data.tobytes()).decode()


def _round(values: npt.NDArray[np.float32], digits: int) -> list[Any]:
    rounded: list[Any] = values.astype(np.float64).round(digits).tolist()
    return rounded


def _share_classes(result: Segmentation, labels: Sequence[str]) -> dict[str, float]:
    # OpenCV's histogram keeps neither the interpreter's lock nor a copy of the mask.
    mask = np.ascontiguousarray(result.mask)
    names = name_mask_classes(labels, result.name, result.classes)
    counts = cv2.calcHist([mask], [0], None, [256], [0, 256]).ravel().tolist()
    return {
        name_class(names, class_id): round(count / mask.size, 6)
        for class_id, count in enumerate(counts)
        if count
    }
