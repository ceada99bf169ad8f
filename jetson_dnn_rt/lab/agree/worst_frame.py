# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Picture of the frame in which two runs differ most: A on the left, B on the right."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

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
from jetson_dnn_rt.lab.agree.result_files import FrameResult
from jetson_dnn_rt.nodes.tasks.drawing import draw_results
from jetson_dnn_rt.results import Detections, Result, Segmentation

LEAST_CANVAS = 320
"""Sides in pixels of a canvas in place of the frame."""

MOST_CANVAS = 8192

_LIVE = ("device", "gstreamer")


def draw_worst(pair: FramePair, labels: dict[int, str], image: Image | None) -> Image:
    """Draw both results, BGR uint8 [H, W, 3], on the frame or, without it, on an empty canvas.

    An object that the other side lacks says so.
    """
    image = _make_canvas(pair) if image is None else image
    sides = []
    for name, other, one, shared in (("A", "B", pair.a, pair.in_b), ("B", "A", pair.b, pair.in_a)):
        assert one.result is not None
        result, names = _name_lonely(one.result, labels, shared, f"not in {other}")
        what = f"{len(one.result)} objects" if isinstance(one.result, Detections) else ""
        status = f"{name}: frame {one.file or one.frame}  {what}"
        sides.append(draw_results(Frame(image, "bgr8", 0, 0), [(result, names)], None, status))
    gap = np.full((image.shape[0], 4, 3), 255, np.uint8)
    return np.concatenate([sides[0], gap, sides[1]], axis=1)


def _name_lonely(
    result: Result, labels: dict[int, str], shared: npt.NDArray[np.bool_] | None, words: str
) -> tuple[Result, list[str]]:
    """Give objects that the other side lacks a class of their own, with a name that says so."""
    count = max(labels, default=-1) + 1
    names = [labels.get(index, f"class_{index}") for index in range(count)]
    if shared is None or not isinstance(result, Detections):
        return result, names
    lonely = np.where(shared, result.class_ids, result.class_ids + count)
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

    ConfigurationError when the source cannot be read again, or has no such frame.
    """
    scheme, _, place = source.partition(":")
    if scheme in _LIVE:
        raise ConfigurationError(f"{source} cannot be read again: give a video, photos or a bag")
    try:
        if scheme == "images" and one.file:
            return read_image(Path(place).expanduser() / one.file)
        if scheme in CAMERA_SOURCES:
            return _read_ahead(source, one.frame)
        with open_image_bag(place if scheme == "bag" else source, topic) as bag:
            message = bag.read_one(one.frame) if one.frame < bag.count else None
            if isinstance(message, BagImage):
                return copy_as_bgr(message.frame)
    except SourceError as error:
        raise ConfigurationError(f"--source {source}: {error}") from error
    raise ConfigurationError(f"--source {source}: it has no frame {one.frame}")


def _read_ahead(source: str, number: int) -> Image:
    with closing(open_source(source)) as opened:
        for _ in range(number + 1):
            image = opened.read(np.empty((opened.height, opened.width, 3), np.uint8))
            if image is None:
                raise SourceError(f"it has no frame {number}")
    return cast("Image", image)
