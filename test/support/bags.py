"""Bags written with rosbags for tests: each image is of one grey value, its number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
HEIGHT, WIDTH = 8, 12
PERIOD_NS = 40_000_000
TOPIC = "/camera/image_raw"

__all__ = ["CompressionMode", "StoragePlugin"]


def make_image(
    value: int, *, encoding: str = "bgr8", stamp_ns: int | None = None, rows: int = HEIGHT
) -> Any:
    """A ``sensor_msgs/msg/Image`` of one grey value."""
    stamp_ns = value * PERIOD_NS if stamp_ns is None else stamp_ns
    pixels = np.full(rows * WIDTH * 3, value % 256, np.uint8)
    header = make_header(stamp_ns)
    kind = STORE.types["sensor_msgs/msg/Image"]
    return kind(header, rows, WIDTH, encoding, 0, WIDTH * 3, pixels)


def make_compressed(data: Any, stamp_ns: int = 0) -> Any:
    """A ``sensor_msgs/msg/CompressedImage``."""
    kind = STORE.types["sensor_msgs/msg/CompressedImage"]
    return kind(make_header(stamp_ns), "png", np.frombuffer(bytes(data), np.uint8))


def make_header(stamp_ns: int) -> Any:
    """A ``std_msgs/msg/Header``."""
    stamp = STORE.types["builtin_interfaces/msg/Time"](*divmod(stamp_ns, 1_000_000_000))
    return STORE.types["std_msgs/msg/Header"](stamp, "front")


def write_bag(
    path: Path,
    messages: Iterable[Any],
    *,
    topic: str = TOPIC,
    plugin: StoragePlugin = StoragePlugin.SQLITE3,
    compression: CompressionMode = CompressionMode.NONE,
    log_times_ns: Sequence[int] | None = None,
) -> Path:
    """Write messages of one type on one topic."""
    writer = Writer(path, version=9, storage_plugin=plugin)
    writer.set_compression(compression, CompressionFormat.ZSTD)
    connection = None
    with writer:
        for place, message in enumerate(messages):
            kind = message.__msgtype__
            if connection is None:
                connection = writer.add_connection(topic, kind, typestore=STORE)
            time_ns = place * PERIOD_NS if log_times_ns is None else log_times_ns[place]
            writer.write(connection, time_ns, STORE.serialize_cdr(message, kind))
    return path


def find_file(bag: Path) -> Path:
    """The one file of a bag that holds its messages."""
    (file,) = (item for item in bag.iterdir() if item.name != "metadata.yaml")
    return file
