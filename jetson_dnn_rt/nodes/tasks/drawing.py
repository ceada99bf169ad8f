# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results drawn into a picture of their frame: masks below objects, with the classes' names.

What is background is not painted over.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.heads.labels import find_background, name_class, name_mask_classes
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation

Color = tuple[int, int, int]
"""Blue, green, red."""

KEYPOINT_SCORE = 0.5
"""Keypoints below it are not drawn: most of them are hidden or outside the picture."""

SMALLEST_TEXT = 0.35
"""Of OpenCV's font, about 11 pixels high."""

_COLORS = (
    (255, 38, 38), (0, 255, 0), (38, 38, 255), (77, 210, 255), (140, 140, 42), (255, 140, 241),
    (0, 255, 191), (255, 159, 0), (191, 105, 105), (255, 0, 255), (0, 128, 255), (201, 230, 0),
    (255, 0, 128), (42, 140, 116), (42, 91, 140), (0, 140, 0), (255, 198, 140), (124, 57, 191),
    (165, 230, 126), (140, 77, 140),
)  # fmt: skip
"""Red, green, blue: each as far in CIELAB from all before it as there is a colour. Hues alone, a
step of the golden ratio apart, made car (2), truck (7) and a mask beside them one green."""

_FIRST_OF_MASKS = 10
"""Place of the colour of a mask's first class: those of boxes beside it begin at 0."""

_MASK_WEIGHT = 0.35
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def class_color(class_id: int) -> Color:
    """A colour for a class; the first 20 are all unlike, then they come again."""
    red, green, blue = _COLORS[class_id % len(_COLORS)]
    return blue, green, red


def mask_color(class_id: int) -> Color:
    """A colour for a class of a mask, a little darker than those of boxes."""
    blue, green, red = class_color(_FIRST_OF_MASKS + class_id)
    return round(0.9 * blue), round(0.9 * green), round(0.9 * red)


def draw_results(
    frame: Frame,
    results: Sequence[tuple[Result, Sequence[str]]],
    picture: Image | None = None,
    status: str = "",
) -> Image:
    """Draw results, each with its labels, into a BGR copy of a frame: `picture`, if given.

    Lines and text grow with the picture. `status` is a line at the top. No text covers another: a
    caption that has no place beside, in, above or below its object is left out.
    """
    picture = copy_as_bgr(frame, picture)
    texts = _Texts(picture)
    if status:
        texts.place(status, (255, 255, 255), [(0, 0)])
    legend: list[tuple[str, Color]] = []
    for result, labels in results:
        if isinstance(result, Segmentation):
            first = 0  # so that classes of different masks have different colours
            for mask in result.masks:
                names = name_mask_classes(labels, mask.name, mask.classes)
                legend += _paint_mask(picture, mask, names, first, several=bool(result.others))
                first += len(names)
        elif isinstance(result, Classification) and len(result.class_ids):
            best = int(result.class_ids[0])
            text = f"{name_class(labels, best)} {result.scores[0]:.2f}"
            texts.place(text, class_color(best), texts.rows())
    for text, color in legend:
        texts.place(text, color, texts.rows(from_below=True))
    for result, labels in results:
        if isinstance(result, Detections):
            _draw_objects(picture, result, labels, texts)
    texts.draw()
    return picture


def draw_lines(lines: Sequence[tuple[str, Color]], width: int) -> Image:
    """Draw lines of text, each on a background of its colour: uint8 [H, width, 3], H even."""
    picture = np.zeros((20 * len(lines), width, 3), np.uint8)
    texts = _Texts(picture)
    for place, (text, color) in enumerate(lines):
        texts.place(text, color, [(0, 20 * place + 2)])
    texts.draw()
    return picture


def caption_objects(found: Detections, labels: Sequence[str]) -> list[str]:
    """Make a text for each object: ``car 0.92``, and the number of one that is tracked."""
    tracks = [-1] * len(found) if found.track_ids is None else found.track_ids.tolist()
    return [
        f"{name_class(labels, class_id)} {score:.2f}" + ("" if track < 0 else f" #{track}")
        for class_id, score, track in zip(
            found.class_ids.tolist(), found.scores.tolist(), tracks, strict=True
        )
    ]


def color_objects(found: Detections) -> list[Color]:
    """Choose a colour for each object: of its class.

    With instance masks, which touch, it is one of its own: of its track, or of its place.
    """
    numbers = found.class_ids.tolist()
    if found.instance_mask is not None:
        tracks = [-1] * len(found) if found.track_ids is None else found.track_ids.tolist()
        numbers = [place if track < 0 else track for place, track in enumerate(tracks)]
    return [class_color(number) for number in numbers]


def _paint_mask(
    picture: Image, result: Segmentation, labels: Sequence[str], first: int, several: bool
) -> list[tuple[str, Color]]:
    """Paint a mask; returns a legend of the classes in it, the largest first.

    The colours are those of the classes from `first` on.
    """
    background = find_background(labels)
    colors = [mask_color(first + class_id) for class_id in range(256)]
    painted = np.array([class_id not in background for class_id in range(256)])
    _blend(picture, result.mask, colors, painted)
    counts = np.bincount(result.mask.ravel(), minlength=256)
    legend: list[tuple[str, Color]] = []
    for class_id in np.argsort(counts)[::-1].tolist():
        if counts[class_id] and class_id < len(labels) and class_id not in background:
            apart = several and labels[class_id] != result.name
            text = f"{result.name}: {labels[class_id]}" if apart else labels[class_id]
            legend.append((text, colors[class_id]))
    return legend


def _blend(
    picture: Image,
    mask: npt.NDArray[np.integer],
    colors: Sequence[Color],
    painted: npt.NDArray[np.bool_],
) -> None:
    """Mix the colours of the pixels' numbers into a picture, those of the `painted` numbers."""
    overlay = np.array(colors, np.uint8).take(mask, axis=0, mode="clip")
    mixed = cv2.addWeighted(overlay, _MASK_WEIGHT, picture, 1.0 - _MASK_WEIGHT, 0.0)
    np.copyto(picture, mixed, where=painted.take(mask, mode="clip")[..., None])


def _draw_objects(picture: Image, found: Detections, labels: Sequence[str], texts: _Texts) -> None:
    """Draw the objects, and find places for their captions, those of the best first."""
    thickness = max(1, round(min(picture.shape[:2]) / 360))
    colors = color_objects(found)
    if found.instance_mask is not None:
        painted = np.arange(len(found) + 1) > 0
        _blend(picture, found.instance_mask, [(0, 0, 0), *colors], painted)
    corners = np.rint(np.nan_to_num(found.outlines).clip(-(2**14), 2**14)).astype(np.int32)
    # Worst first, so that the best are on top.
    for i in reversed(range(len(found))):
        cv2.polylines(picture, [corners[i]], True, colors[i], thickness, cv2.LINE_AA)
        if found.keypoints is not None:
            _draw_keypoints(picture, found.keypoints[i], colors[i], thickness + 1)
    captions = caption_objects(found, labels)
    for caption, color, outline in zip(captions, colors, corners, strict=True):
        low, high = outline.min(axis=0).tolist(), outline.max(axis=0).tolist()
        texts.place_at(caption, color, (*low, *high))


def _draw_keypoints(
    picture: Image, keypoints: npt.NDArray[np.float32], color: Color, radius: int
) -> None:
    for x, y, score in keypoints.tolist():
        # A number that is not finite is in no range.
        if score >= KEYPOINT_SCORE and 0 <= x < picture.shape[1] and 0 <= y < picture.shape[0]:
            place = round(x), round(y)
            cv2.circle(picture, place, radius, color, cv2.FILLED, cv2.LINE_AA)
            cv2.circle(picture, place, radius, (255, 255, 255), 1, cv2.LINE_AA)


class _Texts:
    """Texts on filled backgrounds, none of which covers another; drawn when all have a place."""

    def __init__(self, picture: Image) -> None:
        self._picture = picture
        self._scale = max(SMALLEST_TEXT, min(picture.shape[:2]) / 1440)
        self._thickness = max(1, round(1.6 * self._scale))
        style = (_FONT, self._scale, self._thickness)
        (_, ascent), descent = cv2.getTextSize("Ag", *style)
        self._base = ascent + 2
        self._height = self._base + descent + 1
        self._taken = np.empty((0, 4), np.int64)  # left, top, right, bottom
        self._placed: list[tuple[str, Color]] = []

    def rows(self, from_below: bool = False) -> list[tuple[int, int]]:
        """Places along the left edge, one below the other."""
        tops = range(0, self._picture.shape[0] - self._height + 1, self._height + 1)
        return [(0, self._picture.shape[0] - self._height - y if from_below else y) for y in tops]

    def place_at(self, text: str, color: Color, box: tuple[int, int, int, int]) -> None:
        """Place a text above a box, else in it, below it or beside it."""
        left, top, right, bottom = box
        width, height = self._measure(text), self._height
        above, below = top - height, bottom + 1
        lefts = [(left, y) for y in (above, top, below, bottom - height)]
        rights = [(right - width, y) for y in (above, top, below, bottom - height)]
        sides = [(right + 1, top), (left - width - 1, top)]
        further = [(left, above - height), (left, below + height)]
        self.place(text, color, [*lefts, *rights, *sides, *further])

    def place(self, text: str, color: Color, corners: Sequence[tuple[int, int]]) -> None:
        """Take the first of some places, by their upper left corners, that is free."""
        size = np.array((self._measure(text), self._height))
        room = np.maximum(0, np.array(self._picture.shape[1::-1]) - size)
        first = np.clip(np.array(corners, np.int64).reshape(-1, 2), 0, room)
        places = np.concatenate([first, first + size], axis=1)
        begins, ends = places[:, None, :2], places[:, None, 2:]
        meets = (begins < self._taken[:, 2:]) & (self._taken[:, :2] < ends)
        covers = np.any(np.all(meets, axis=2), axis=1)
        free = np.flatnonzero(np.logical_not(covers))
        if len(free):
            self._taken = np.concatenate([self._taken, places[free[:1]]])
            self._placed.append((text, color))

    def draw(self) -> None:
        """Draw them, each black or white, whichever is readable."""
        for (text, color), place in zip(self._placed, self._taken.tolist(), strict=True):
            left, top, right, bottom = place
            cv2.rectangle(self._picture, (left, top), (right - 1, bottom - 1), color, cv2.FILLED)
            luminance = 0.114 * color[0] + 0.587 * color[1] + 0.299 * color[2]
            ink = (0, 0, 0) if luminance > 110 else (255, 255, 255)
            style = (_FONT, self._scale, ink, self._thickness, cv2.LINE_AA)
            cv2.putText(self._picture, text, (left + 2, top + self._base), *style)

    def _measure(self, text: str) -> int:
        return int(cv2.getTextSize(text, _FONT, self._scale, self._thickness)[0][0]) + 4
