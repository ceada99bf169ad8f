# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results drawn into a picture of their frame: masks below boxes, with the classes' names."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import cv2
import numpy as np

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation

Color = tuple[int, int, int]
"""Blue, green, red."""

_GOLDEN_RATIO = 0.618033988749895
_MASK_WEIGHT = 0.35
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def class_color(class_id: int, value: float = 1.0) -> Color:
    """A colour for a class; neighbouring numbers get distant hues."""
    red, green, blue = colorsys.hsv_to_rgb(class_id * _GOLDEN_RATIO % 1.0, 0.85, value)
    return round(255 * blue), round(255 * green), round(255 * red)


_PALETTE = np.array([class_color(class_id, 0.9) for class_id in range(256)], np.uint8)


def draw_results(
    frame: Frame, results: Sequence[tuple[Result, Sequence[str]]], picture: Image | None = None
) -> Image:
    """Draw results, each with its labels, into a BGR copy of a frame: `picture`, if given."""
    picture = copy_as_bgr(frame, picture)
    for result, labels in results:
        if isinstance(result, Segmentation):
            _draw_mask(picture, result, labels)
    for result, labels in results:
        if isinstance(result, Detections):
            _draw_boxes(picture, result, labels)
        elif isinstance(result, Classification) and len(result.class_ids):
            text = f"{labels[int(result.class_ids[0])]} {result.scores[0]:.2f}"
            draw_label(picture, text, (8, 24), class_color(int(result.class_ids[0])))
    return picture


def _draw_mask(picture: Image, result: Segmentation, labels: Sequence[str]) -> None:
    overlay = _PALETTE[result.mask]
    cv2.addWeighted(overlay, _MASK_WEIGHT, picture, 1.0 - _MASK_WEIGHT, 0.0, dst=picture)
    counts = np.bincount(result.mask.ravel(), minlength=256)
    row = picture.shape[0] - 10
    # A legend of the classes present, from the bottom up, the largest first.
    for class_id in np.argsort(counts)[::-1]:
        if counts[class_id] and class_id < len(labels):
            draw_label(picture, labels[class_id], (6, row), class_color(int(class_id), 0.9))
            row -= 20


def _draw_boxes(picture: Image, result: Detections, labels: Sequence[str]) -> None:
    thickness = max(2, round(picture.shape[1] / 480))
    # Worst first, so that the best are on top.
    for i in reversed(range(len(result))):
        x1, y1, x2, y2 = (round(float(value)) for value in result.boxes[i])
        class_id = int(result.class_ids[i])
        color = class_color(class_id)
        cv2.rectangle(picture, (x1, y1), (x2, y2), color, thickness, cv2.LINE_AA)
        name = labels[class_id] if class_id < len(labels) else str(class_id)
        draw_label(picture, f"{name} {result.scores[i]:.2f}", (x1, max(16, y1 - 4)), color)


def draw_label(picture: Image, text: str, origin: tuple[int, int], color: Color) -> None:
    """Draw text, black or white, whichever is readable, on a filled background."""
    (width, height), baseline = cv2.getTextSize(text, _FONT, 0.45, 1)
    x, y = min(origin[0], max(0, picture.shape[1] - width - 4)), origin[1]
    top, bottom = (x, y - height - 3), (x + width + 4, y + baseline)
    cv2.rectangle(picture, top, bottom, color, cv2.FILLED)
    luminance = 0.114 * color[0] + 0.587 * color[1] + 0.299 * color[2]
    ink = (0, 0, 0) if luminance > 110 else (255, 255, 255)
    cv2.putText(picture, text, (x + 2, y), _FONT, 0.45, ink, 1, cv2.LINE_AA)
