# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames without labels, taken evenly from a recording: variants are fitted and compared on them.

=======================  ======================================================================
``video:PATH``           a video file
``images:DIR``           the images of a folder, of any sizes
``bag:PATH[#/topic]``    a ROS bag (sqlite3, mcap, or ROS 1): ``Image`` or ``CompressedImage``
``synthetic[:SEED]``     scenes of the built-in generator, each of another drive
=======================  ======================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, ImageBag, open_image_bag
from jetson_dnn_rt.cameras.files import VideoSource, list_images, read_image
from jetson_dnn_rt.cameras.source import ENCODING
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.input_pass import Preprocessor

if TYPE_CHECKING:
    from jetson_dnn_rt.models.model import Model

SYNTHETIC_SIZE = (480, 640)
"""Height and width of synthetic frames in pixels."""
SEEDS_APART = 1_000_000
"""Scenes of one seed; ``synthetic:0`` begins with those the built-in models were trained on."""
DEFAULT_SEED = 1

_LEAST_HELD_OUT = 20

logger = logging.getLogger(__name__)


def open_frames(source: str, limit: int) -> Iterator[Frame]:
    """Take up to `limit` (>= 1) frames, spread evenly over a source from its first to its last.

    Each owns its pixels, in the size in which it comes; ``sequence`` is its number in the source.
    Messages of a bag and files of a folder that are not images are skipped and logged.

    Raises
    ------
    ConfigurationError
        When the source is not one of the module's, or a library that reads it is missing.
    SourceError
        When it cannot be opened; from the iterator, when it cannot be read any further.
    """
    if limit < 1:
        raise ConfigurationError(f"the number of frames must be at least 1: {limit}")
    kind, colon, rest = source.partition(":")
    openers: dict[str, Callable[[str, int], Iterator[Frame]]] = {
        "video": lambda rest, limit: _open_video(Path(rest).expanduser(), limit),
        "images": lambda rest, limit: _open_images(Path(rest).expanduser(), limit),
        "bag": _open_bag,
        "synthetic": _open_synthetic,
    }
    if kind not in openers or (colon and not rest) or (kind != "synthetic" and not rest):
        path = Path(source).expanduser()
        meant = "images:" if path.is_dir() else "video:" if path.is_file() else ""
        why = "are not known" if meant or colon else "are no file or folder that exists"
        raise ConfigurationError(
            f"frames {source!r} {why}; fix: give video:PATH, images:DIR, bag:PATH or "
            f"synthetic[:SEED]{f'; did you mean {meant}{source}?' if meant else ''}"
        )
    return openers[kind](rest, limit)


def prepare_inputs(model: Model, frames: Iterable[Frame]) -> list[npt.NDArray[np.float32]]:
    """Preprocess frames as the model takes them: float32 [1, 3, H, W] each.

    Raises `SourceError` when there is no frame, `FrameError` when one cannot be read as an image.
    """
    buffer = np.empty(model.input_shape, np.float32)
    preprocessor = Preprocessor(model.preprocessing, buffer)
    inputs = []
    for frame in frames:
        preprocessor.write(frame)
        inputs.append(buffer.copy())
    if not inputs:
        raise SourceError("there is not one frame to fit the model to")
    return inputs


def _open_video(path: Path, limit: int) -> Iterator[Frame]:
    source = VideoSource(path)
    chosen = spread(source.count_frames(), limit)

    def read() -> Iterator[Frame]:
        try:
            position = 0
            for index in chosen:
                while position < index and source.skip():
                    position += 1
                out = np.empty((source.height, source.width, 3), np.uint8)
                image = source.read(out) if position == index else None
                if image is None:
                    # Containers estimate their length; the last frames may be missing.
                    logger.info("video %s ends at frame %d of %d", path, position, chosen[-1] + 1)
                    return
                yield Frame(image, ENCODING, 0, index)
                position += 1
        finally:
            source.close()

    return read()


def _open_images(folder: Path, limit: int) -> Iterator[Frame]:
    return _read_images(folder, list_images(folder), limit)


def _read_images(folder: Path, files: Sequence[Path], limit: int) -> Iterator[Frame]:
    chosen = spread(len(files), limit)
    found, spoilt = 0, ""
    for index in chosen:
        try:
            image = read_image(files[index])
        except SourceError as error:
            spoilt = spoilt or str(error)
            continue
        found += 1
        yield Frame(image, ENCODING, 0, index)
    if not found:
        raise SourceError(spoilt)
    if spoilt:
        logger.warning(
            "images of %s: %d of %d are passed over (%s)",
            folder, len(chosen) - found, len(chosen), spoilt,
        )  # fmt: skip


def _open_bag(name: str, limit: int) -> Iterator[Frame]:
    path, _, topic = name.partition("#")
    return _read_bag(open_image_bag(path, topic), limit)


def _read_bag(bag: ImageBag, limit: int) -> Iterator[Frame]:
    with bag:
        for note in bag.notes:
            logger.warning("bag %s: %s", bag.path, note)
        chosen = spread(bag.count, limit)
        found, spoilt = 0, ""
        for index in chosen:
            message = bag.read_one(index)
            if isinstance(message, BagImage):
                found += 1
                yield message.frame
            else:
                spoilt = spoilt or f"message {index}: {message.reason}"
    if not found:
        raise SourceError(f"bag {bag.path} holds no image that can be read; {spoilt}")
    if spoilt:
        logger.warning(
            "bag %s: %d of %d messages are not images (%s)",
            bag.path, len(chosen) - found, len(chosen), spoilt,
        )  # fmt: skip


def _open_synthetic(rest: str, limit: int) -> Iterator[Frame]:
    from jetson_dnn_rt.demo.scenes import random_scene, training_seed

    if rest and not rest.isdecimal():
        raise ConfigurationError(f"frames 'synthetic:{rest}': the seed must be a whole number")
    first = (int(rest) if rest else DEFAULT_SEED) * SEEDS_APART
    try:
        seeds = [training_seed(first + i) for i in range(limit)]
    except ValueError as error:
        raise ConfigurationError(f"frames 'synthetic:{rest}': {error}") from error
    return (
        Frame(random_scene(seed, SYNTHETIC_SIZE).image, ENCODING, 0, i)
        for i, seed in enumerate(seeds)
    )


def count_held_out(frames: int) -> int:
    """Number of frames, of two or more, that nothing is fitted to.

    A tenth, but twenty where there are twice as many. They are the last ones: neighbours in time
    look alike, and in between they would hardly be unseen.
    """
    return max(1, min(frames // 2, max(_LEAST_HELD_OUT, round(0.1 * frames))))


def spread(count: int, limit: int) -> list[int]:
    """Indices of at most `limit` of `count` items, ascending, from the first to the last."""
    if count <= limit:
        return list(range(count))
    if limit == 1:
        return [count // 2]
    return [round(i * (count - 1) / (limit - 1)) for i in range(limit)]
