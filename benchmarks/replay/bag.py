# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags made of a video, written with rosbags as a camera driver and recorder would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Image

TOPIC = "/camera/image_raw"
STORAGES = ("sqlite3", "mcap")
COMPRESSIONS = ("none", "file", "message", "storage")
"""Zstandard compression of nothing, the whole file, each message, or (MCAP) each chunk."""

_RAW, _COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
_BEGIN_NS = 1_700_000_000_000_000_000
_DELAY_NS = 3_000_000
"""Delay from the stamp to the log time, as on a robot."""
_QUALITY = 90


def read_frames(video: Path, count: int, height: int = 0) -> Iterator[Image]:
    """Read frames of a video, which is repeated if it is too short.

    They are scaled to `height` pixels, if given. `SourceError` when the video has no frame.
    """
    left = count
    while left:
        capture = cv2.VideoCapture(str(video))
        before = left
        while left:
            found, image = capture.read()
            if not found:
                break
            if height:
                size = round(image.shape[1] * height / image.shape[0]), height
                image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            yield np.asarray(image)
            left -= 1
        capture.release()
        if left == before:
            raise SourceError(f"{video} has no frame")


def write_bag(
    path: Path,
    frames: Iterable[Image],
    rate_hz: float = 25.0,
    *,
    storage: str = "sqlite3",
    compressed: bool = True,
    compression: str = "none",
    topic: str = "",
) -> Path:
    """Write a bag of rosbag2 with one topic of images, BGR [H, W, 3], as a new folder.

    Parameters
    ----------
    rate_hz : float
        Rate of the stamps, > 0; the log times are 3 ms later.
    compressed : bool
        JPEG in ``CompressedImage``, else pixels in ``Image``.
    topic : str, optional
        Default: `TOPIC`, with ``/compressed`` appended for JPEG.

    `ConfigurationError` when rosbags is missing, the folder exists already, or the options are
    incompatible.
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
    if storage not in STORAGES or compression not in COMPRESSIONS or not rate_hz > 0.0:
        raise ConfigurationError(
            f"storage is one of {', '.join(STORAGES)}, compression of {', '.join(COMPRESSIONS)}, "
            f"the rate > 0 Hz: {storage!r}, {compression!r}, {rate_hz:g}"
        )
    store = get_typestore(Stores.ROS2_HUMBLE)
    kind = _COMPRESSED if compressed else _RAW
    make = _make_compressed if compressed else _make_raw
    topic = topic or (f"{TOPIC}/compressed" if compressed else TOPIC)
    try:
        writer = Writer(path, version=9, storage_plugin=StoragePlugin[storage.upper()])
        writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
        with writer:
            connection = writer.add_connection(topic, kind, typestore=store)
            for place, image in enumerate(frames):
                stamp_ns = _BEGIN_NS + round(place * 1e9 / rate_hz)
                message = make(store.types, stamp_ns, image)
                writer.write(connection, stamp_ns + _DELAY_NS, store.serialize_cdr(message, kind))
    except WriterError as error:
        raise ConfigurationError(str(error)) from error
    return path


def _make_header(types: Any, stamp_ns: int) -> Any:
    stamp = types["builtin_interfaces/msg/Time"](*divmod(stamp_ns, 1_000_000_000))
    return types["std_msgs/msg/Header"](stamp, "camera")


def _make_raw(types: Any, stamp_ns: int, image: Image) -> Any:
    height, width = image.shape[:2]
    pixels = np.ascontiguousarray(image).reshape(-1)
    header = _make_header(types, stamp_ns)
    return types[_RAW](header, height, width, "bgr8", 0, 3 * width, pixels)


def _make_compressed(types: Any, stamp_ns: int, image: Image) -> Any:
    _, data = cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, _QUALITY))
    return types[_COMPRESSED](_make_header(types, stamp_ns), "jpeg", data.ravel())
