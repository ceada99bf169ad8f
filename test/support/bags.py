# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags written with rosbags for tests: each image is of one grey value, its number."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
HEIGHT, WIDTH = 8, 12
PERIOD_NS = 40_000_000
TOPIC = "/camera/image_raw"

__all__ = ["CompressionMode", "StoragePlugin", "Writer"]


def make_image(
    value: int, *, encoding: str = "bgr8", stamp_ns: int | None = None, rows: int = HEIGHT
) -> Any:
    """A ``sensor_msgs/msg/Image`` of one grey value."""
    stamp_ns = value * PERIOD_NS if stamp_ns is None else stamp_ns
    pixels = np.full(rows * WIDTH * 3, value % 256, np.uint8)
    header = make_header(stamp_ns)
    kind = STORE.types["sensor_msgs/msg/Image"]
    return kind(header, rows, WIDTH, encoding, 0, WIDTH * 3, pixels)


def make_picture(image: np.ndarray) -> Any:
    """A ``sensor_msgs/msg/Image`` of a picture, uint8 [H, W, 3]."""
    height, width = image.shape[:2]
    kind = STORE.types["sensor_msgs/msg/Image"]
    return kind(make_header(0), height, width, "bgr8", 0, width * 3, image.reshape(-1))


def make_compressed(data: Any, stamp_ns: int = 0, form: str = "png") -> Any:
    """A ``sensor_msgs/msg/CompressedImage``."""
    kind = STORE.types["sensor_msgs/msg/CompressedImage"]
    return kind(make_header(stamp_ns), form, np.frombuffer(bytes(data), np.uint8))


def make_header(stamp_ns: int) -> Any:
    """A ``std_msgs/msg/Header``."""
    stamp = STORE.types["builtin_interfaces/msg/Time"](*divmod(stamp_ns, 1_000_000_000))
    return STORE.types["std_msgs/msg/Header"](stamp, "front")


def write_bag(
    path: Path,
    messages: Iterable[Any],
    *,
    topic: str | Sequence[str] = TOPIC,
    plugin: StoragePlugin = StoragePlugin.SQLITE3,
    compression: CompressionMode = CompressionMode.NONE,
    log_times_ns: Sequence[int] | None = None,
) -> Path:
    """Write messages on one topic, or in turns on several."""
    topics = [topic] if isinstance(topic, str) else topic
    writer = Writer(path, version=9, storage_plugin=plugin)
    writer.set_compression(compression, CompressionFormat.ZSTD)
    connections: dict[str, Any] = {}
    with writer:
        for place, message in enumerate(messages):
            name, kind = topics[place % len(topics)], message.__msgtype__
            if name not in connections:
                connections[name] = writer.add_connection(name, kind, typestore=STORE)
            time_ns = place * PERIOD_NS if log_times_ns is None else log_times_ns[place]
            writer.write(connections[name], time_ns, STORE.serialize_cdr(message, kind))
    return path


def write_ros1(path: Path, images: Sequence[Any], compression: str = "") -> Path:
    """A bag of ROS 1 with flat arrays as rows of ``bgr8``, each in a chunk of its own."""
    from rosbags.rosbag1 import Writer

    store, kind = get_typestore(Stores.ROS1_NOETIC), "sensor_msgs/msg/Image"
    writer = Writer(path)
    if compression:
        writer.set_compression(Writer.CompressionFormat[compression])
    writer.chunk_threshold = 1
    with writer:
        connection = writer.add_connection(TOPIC, kind, typestore=store)
        for i, pixels in enumerate(images):
            stamp = store.types["builtin_interfaces/msg/Time"](i, 7)
            header = store.types["std_msgs/msg/Header"](i, stamp, "front")
            size = len(pixels)
            message = store.types[kind](header, 1, size // 3, "bgr8", 0, size, pixels)
            writer.write(connection, i * PERIOD_NS, store.serialize_ros1(message, kind))
    return path


def find_file(bag: Path) -> Path:
    """The one file of a bag that holds its messages."""
    (file,) = (item for item in bag.iterdir() if item.name != "metadata.yaml")
    return file


@cache
def make_file(
    plugin: StoragePlugin, compression: CompressionMode, count: int, rows: int = HEIGHT
) -> tuple[str, bytes]:
    """Name and bytes of the file of a sound bag."""
    with tempfile.TemporaryDirectory() as folder:
        images = (make_image(i, rows=rows) for i in range(count))
        bag = write_bag(Path(folder, "bag"), images, plugin=plugin, compression=compression)
        file = find_file(bag)
        return file.name, file.read_bytes()
