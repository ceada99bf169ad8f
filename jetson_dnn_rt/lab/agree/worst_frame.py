# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Picture of the frame in which two runs differ most: A, then B, then where masks differ."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.cameras.files import read_image
from jetson_dnn_rt.cameras.source import open_source
from jetson_dnn_rt.config.camera_sources import CAMERA_SOURCES
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.lab.agree.comparison import FramePair
from jetson_dnn_rt.lab.agree.matching import describe_difference
from jetson_dnn_rt.lab.agree.result_files import FrameResult
from jetson_dnn_rt.models.heads.labels import BACKGROUND, find_background
from jetson_dnn_rt.models.heads.result_lines import make_thumbnail
from jetson_dnn_rt.nodes.tasks.drawing import draw_results, mask_color
from jetson_dnn_rt.results import Detections, Result, Segmentation

LEAST_CANVAS = 320
"""Sides in pixels of a canvas in place of the frame."""

MOST_CANVAS = 8192

_LIVE = ("device", "gstreamer")


def draw_worst(pair: FramePair, labels: dict[str, dict[int, str]], image: Image | None) -> Image:
    """Draw both results, BGR uint8 [H, W, 3], on the frame or, without it, on an empty canvas.

    An object that the other side lacks says so. Of masks that which differs most is drawn, and
    beside A and B a third picture, dark and grey, with the pixels that differ. `labels` are by the
    name of the mask, empty where there is one.
    """
    image = _make_canvas(pair) if image is None else image
    first, second = pair.a.result, pair.b.result
    mask = ""
    if isinstance(first, Segmentation) and isinstance(second, Segmentation):
        pairs = zip(first.masks, second.masks, strict=True)
        first, second = max(pairs, key=lambda both: np.mean(both[0].mask != both[1].mask))
        mask = first.name
        first, second = (replace(one, name="", others=()) for one in (first, second))
    known = labels.get(mask, {})
    names = [known.get(index, f"class_{index}") for index in range(max(known, default=-1) + 1)]
    sides = []
    for name, other, one, result, shared in (
        ("A", "B", pair.a, first, pair.in_b),
        ("B", "A", pair.b, second, pair.in_a),
    ):
        assert result is not None
        result, named = _name_lonely(result, names, shared, f"not in {other}")
        what = f"{len(result)} objects" if isinstance(result, Detections) else ""
        if isinstance(result, Segmentation):
            unpainted = ", ".join(named[index] for index in sorted(find_background(named)))
            what = f"{mask}  {unpainted} is not painted" if unpainted else mask
        status = f"{name}: frame {one.name}  {what}"
        sides.append(draw_results(Frame(image, "bgr8", 0, 0), [(result, named)], None, status))
    if isinstance(first, Segmentation) and isinstance(second, Segmentation):
        sides.append(_draw_difference(first.mask, second.mask, names, image))
    gap = np.full((image.shape[0], 4, 3), 255, np.uint8)
    return np.concatenate([part for side in sides for part in (gap, side)][1:], axis=1)


def _draw_difference(
    a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8], names: list[str], image: Image
) -> Image:
    """Draw the pixels [H, W] that differ, by what they are on either side, on a dark grey copy."""
    background = list(find_background(names))
    in_a, in_b = (~np.isin(side, background) for side in (a, b))
    # Neither is background where both have a class, but another one.
    which = np.where(a == b, 0, np.where(in_a & in_b, 3, np.where(in_a, 1, 2)))
    grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) // 3, cv2.COLOR_GRAY2BGR)
    # Painted in full, and by the legend once more in the same colours.
    colors = np.array([mask_color(kind) for kind in range(4)], np.uint8)
    np.copyto(grey, colors[which], where=which[..., None] > 0)
    what = [BACKGROUND, "only in A", "only in B", "of another class"]
    status = f"{np.mean(which > 0):.1%} of the pixels differ"
    found = Segmentation(which.astype(np.uint8))
    return draw_results(Frame(grey, "bgr8", 0, 0), [(found, what)], None, status)


def _name_lonely(
    result: Result, names: list[str], shared: npt.NDArray[np.bool_] | None, words: str
) -> tuple[Result, list[str]]:
    """Give objects that the other side lacks a class of their own, with a name that says so."""
    if shared is None or not isinstance(result, Detections):
        return result, names
    lonely = np.where(shared, result.class_ids, result.class_ids + len(names))
    return (
        Detections(result.boxes, result.scores, lonely),
        [*names, *(f"{name}, {words}," for name in names)],
    )


def _make_canvas(pair: FramePair) -> Image:
    high = wide = LEAST_CANVAS
    for one in (pair.a.result, pair.b.result):
        if isinstance(one, Segmentation):
            high, wide = one.mask.shape
        elif isinstance(one, Detections) and len(one):
            far = np.nan_to_num(one.boxes[:, 2:]).max(axis=0).clip(0, MOST_CANVAS - 16)
            wide, high = max(wide, int(far[0]) + 16), max(high, int(far[1]) + 16)
    return np.full((high, wide, 3), 40, np.uint8)


def read_frame(source: str, one: FrameResult, topic: str = "") -> Image:
    """Read a frame again, BGR uint8 [H, W, 3]: of a video, photos, the synthetic camera or a bag.

    ConfigurationError when the source cannot be read again, or its frame is another picture.
    """
    if source.partition(":")[0] in _LIVE:
        raise ConfigurationError(f"{source} cannot be read again: give a video, photos or a bag")
    try:
        frame = _read_again(source, one, topic)
    except SourceError as error:
        raise ConfigurationError(f"--source {source}: {error}") from error
    seen = replace(one, size=(frame.width, frame.height), thumbnail=make_thumbnail(frame))
    if one.thumbnail and describe_difference(one, seen):
        raise ConfigurationError(
            f"--source {source}: its frame {one.name} is not the picture that A was made of"
        )
    return copy_as_bgr(frame)


def _read_again(source: str, one: FrameResult, topic: str) -> Frame:
    scheme, _, place = source.partition(":")
    if scheme == "images" and one.file:
        if Path(one.file).name != one.file:
            raise SourceError(f"{one.file!r:.200} is no file of that folder: A names another one")
        return Frame(read_image(Path(place).expanduser() / one.file), "bgr8", 0, 0)
    if scheme in CAMERA_SOURCES:
        return Frame(_read_ahead(source, one.frame), "bgr8", 0, 0)
    with open_image_bag(place if scheme == "bag" else source, topic) as bag:
        message = bag.read_one(one.frame) if one.frame < bag.count else None
        if isinstance(message, BagImage):
            return message.frame
    raise SourceError(f"it has no frame {one.frame}")


def _read_ahead(source: str, number: int) -> Image:
    with closing(open_source(source)) as opened:
        for _ in range(number + 1):
            image = opened.read(np.empty((opened.height, opened.width, 3), np.uint8))
            if image is None:
                raise SourceError(f"it has no frame {number}")
    return cast("Image", image)
