# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Make a bag of rosbag2 from a video or a folder of photos.

`jetson-dnn-rt evaluate` and `ros2 bag play` read it. Its stamps are the times in the video, of
photos ten a second; with --rate they are even. JPEG takes a twentieth of the space of pixels.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from jetson_dnn_rt.cameras.files import DEFAULT_RATE_HZ, VideoSource, list_images, read_image
from jetson_dnn_rt.cli.options import parse_count, parse_positive
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Image

HELP = "make a bag from a video or a folder of photos"
TOPIC = "/camera/image_raw"
FRAME_ID = "camera_optical_frame"
FORMATS = {"sqlite": "SQLITE3", "mcap": "MCAP"}
COMPRESSIONS = ("none", "file", "message", "storage")
"""Zstandard compression of nothing, the whole file, each message, or (MCAP) each chunk."""

# Version 9 of the metadata is not for the rosbag2 of Humble and Jazzy.
VERSION = 8

_RAW, _COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
_BEGIN_NS = 1_700_000_000_000_000_000
_DELAY_NS = 3_000_000
"""Delay from the stamp to the log time, as on a robot."""
_QUALITY = 90

TimedImage = tuple[int, Image]
"""Time since the first frame in ns, and a picture, BGR uint8 [H, W, 3]."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("source", type=Path, metavar="VIDEO|DIR", help="a video, or a folder of photos")
    add("-o", "--output", type=Path, required=True, metavar="NAME", help="folder that is made")
    add("--format", choices=FORMATS, default="sqlite", help="default: sqlite, which any ROS plays")
    add("--topic", default="", metavar="T", help=f"default: {TOPIC}[/compressed]")
    text = "of the stamps (default: as in the video; of photos 10)"
    add("--rate", type=parse_positive, metavar="HZ", help=text)
    add("--jpeg", action="store_true", help="CompressedImage instead of Image")
    text = "so many; one that is too short is repeated (default: all, once)"
    add("--frames", type=parse_count, metavar="N", help=text)
    add("--height", type=parse_count, metavar="PX", help="scale the pictures to this height")
    text = "Zstandard: the file, each message, or each chunk (storage: mcap only)"
    add("--zstd", choices=COMPRESSIONS, default="none", help=text)
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Write the bag; ConfigurationError when the source or the name cannot be used."""
    if not args.source.exists():
        raise ConfigurationError(f"{args.source} is not there: give a video or a folder of photos")
    frames = read_frames(args.source, args.frames, args.height or 0, args.rate or 0.0)
    try:
        with PhaseProgress() as progress:
            progress.begin(str(args.output))
            count = write_bag(
                args.output,
                _show(frames, args.frames or 0, progress),
                storage=args.format,
                compressed=args.jpeg,
                compression=args.zstd,
                topic=args.topic,
            )
    except SourceError as error:
        raise ConfigurationError(str(error)) from error
    size = sum(file.stat().st_size for file in args.output.iterdir())
    topic = _name_topic(args.topic, args.jpeg)
    text = f"{args.output}: {count} frames on {topic}, {size / 1e6:.1f} MB"
    print(text, file=sys.stderr if args.json else sys.stdout)
    if args.json:
        found = {"bag": str(args.output), "topic": topic, "frames": count, "bytes": size}
        print(json.dumps(found))
    return 0


def _show(
    frames: Iterable[TimedImage], total: int, progress: PhaseProgress
) -> Iterator[TimedImage]:
    for place, frame in enumerate(frames):
        yield frame
        progress("frames", place + 1, total)


def read_frames(
    source: Path, count: int | None = None, height: int = 0, rate_hz: float = 0.0
) -> Iterator[TimedImage]:
    """Read frames of a video or a folder of photos, repeated if it has less than `count`.

    None = all of them once. They are scaled to `height` pixels, and come at `rate_hz`, if given.
    `SourceError` when there is no frame.
    """
    read = _read_photos if source.is_dir() else _read_video
    begin_ns = time_ns = step_ns = done = 0
    while True:
        before = done
        for own_ns, image in read(source):
            begin = begin_ns + own_ns
            step_ns, time_ns = begin - time_ns if done > before else step_ns, begin
            if rate_hz:
                begin = round(done * 1e9 / rate_hz)
            yield begin, _scale(image, height)
            done += 1
            if done == count:
                return
        if done == before:
            raise SourceError(f"{source} has no frame")
        if count is None:
            return
        # A video of a single frame has no step.
        begin_ns = time_ns + (step_ns or round(1e9 / DEFAULT_RATE_HZ))


def _read_video(path: Path) -> Iterator[TimedImage]:
    with closing(VideoSource(path)) as video:
        period_ns = 1e9 / (video.rate_hz or DEFAULT_RATE_HZ)
        first_ns, last_ns, place = 0, -1, 0
        while True:
            image = video.read(np.empty((video.height, video.width, 3), np.uint8))
            if image is None:
                return
            time_ns = video.position_ns
            first_ns = first_ns if place else time_ns
            time_ns -= first_ns
            if time_ns <= last_ns:  # the container has no times, or wrong ones
                time_ns = max(last_ns + 1, round(place * period_ns))
            yield time_ns, image
            last_ns, place = time_ns, place + 1


def _read_photos(folder: Path) -> Iterator[TimedImage]:
    for place, file in enumerate(list_images(folder)):
        yield round(place * 1e9 / DEFAULT_RATE_HZ), read_image(file)


def _scale(image: Image, height: int) -> Image:
    if not height:
        return image
    size = max(1, round(image.shape[1] * height / image.shape[0])), height
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def write_bag(
    path: Path,
    frames: Iterable[TimedImage],
    *,
    storage: str = "sqlite",
    compressed: bool = True,
    compression: str = "none",
    topic: str = "",
) -> int:
    """Write a bag with one topic of images as a new folder; returns the number of messages.

    Parameters
    ----------
    frames : iterable
        Pictures with their stamps; the log times are 3 ms later.
    storage : str
        One of `FORMATS`.
    compressed : bool
        JPEG in ``CompressedImage``, else pixels in ``Image``.
    compression : str
        One of `COMPRESSIONS`.
    topic : str, optional
        Default: `TOPIC`, with ``/compressed`` appended for JPEG.

    Raises
    ------
    ConfigurationError
        When rosbags is missing, the folder exists already or cannot be written, or the options are
        incompatible. What has been written of a bag is removed then, and after any other error.
    """
    try:
        from rosbags.rosbag2 import (
            CompressionFormat,
            CompressionMode,
            StoragePlugin,
            Writer,
            WriterError,
        )
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ConfigurationError(
            "bags are written with rosbags, which is not installed: "
            "pip install 'jetson_dnn_rt[bags]'"
        ) from error
    if topic and not re.fullmatch(r"/?([A-Za-z_]\w*)(/[A-Za-z_]\w*)*", topic, re.ASCII):
        raise ConfigurationError(f"{topic!r} is no name of a topic, such as {TOPIC}")
    if path.exists():
        raise ConfigurationError(f"{path} exists already: give another name, or remove it")
    store = get_typestore(Stores.ROS2_HUMBLE)
    kind = _COMPRESSED if compressed else _RAW
    make = _make_compressed if compressed else _make_raw
    count = 0
    try:
        writer = Writer(path, version=VERSION, storage_plugin=StoragePlugin[FORMATS[storage]])
        writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
        with writer:
            name = _name_topic(topic, compressed)
            connection = writer.add_connection(name, kind, typestore=store)
            for time_ns, image in frames:
                stamp_ns = _BEGIN_NS + time_ns
                message = make(store.types, stamp_ns, image)
                writer.write(connection, stamp_ns + _DELAY_NS, store.serialize_cdr(message, kind))
                count += 1
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, WriterError):
            raise ConfigurationError(f"{path}: {error}") from error
        if isinstance(error, (OSError, sqlite3.Error)):
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"cannot write {path}: {reason}") from error
        raise
    return count


def _name_topic(topic: str, compressed: bool) -> str:
    return topic or (f"{TOPIC}/compressed" if compressed else TOPIC)


def _make_header(types: Any, stamp_ns: int) -> Any:
    stamp = types["builtin_interfaces/msg/Time"](*divmod(stamp_ns, 1_000_000_000))
    return types["std_msgs/msg/Header"](stamp, FRAME_ID)


def _make_raw(types: Any, stamp_ns: int, image: Image) -> Any:
    height, width = image.shape[:2]
    pixels = np.ascontiguousarray(image).reshape(-1)
    header = _make_header(types, stamp_ns)
    return types[_RAW](header, height, width, "bgr8", 0, 3 * width, pixels)


def _make_compressed(types: Any, stamp_ns: int, image: Image) -> Any:
    _, data = cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, _QUALITY))
    header = _make_header(types, stamp_ns)
    # As compressed_image_transport declares it.
    return types[_COMPRESSED](header, "bgr8; jpeg compressed bgr8", data.ravel())
