# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Serialized ROS image messages, read without copying their pixels.

rclpy copies the data of an `Image` three times on its way from DDS to Python (to a C structure, to
`bytes`, to an `array.array`), and a serialized message twice.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError

_ORDERS = {b"\0\0": ">", b"\0\1": "<"}
"""Byte orders by the representation that a message begins with: plain CDR (RTPS 2.5, 10.2.1.2)."""

_ORIGIN = 4
"""Bytes before the first field; fields are aligned to multiples of their size from there."""


class Stamp(NamedTuple):
    """A ``builtin_interfaces/msg/Time``."""

    sec: int
    nanosec: int


class Header(NamedTuple):
    """A ``std_msgs/msg/Header``."""

    stamp: Stamp
    frame_id: str


UNREADABLE_HEADER = Header(Stamp(0, 0), "")
"""Of a message whose own cannot be read."""


@dataclass(frozen=True, slots=True)
class SerializedImage:
    """The fields of a ``sensor_msgs/msg/Image``; `data` is a view of the serialized message."""

    header: Header
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: memoryview


def read_image(message: bytes) -> SerializedImage:
    """Read a serialized ``sensor_msgs/msg/Image``; only names are copied.

    Whether the fields fit each other is not checked, see `image_messages.view_image`.
    BadImageError, ``serialization``, when the message is not one, or is too short for its fields.
    """
    order = _ORDERS.get(message[:2])
    if order is None:
        raise BadImageError("serialization", f"{message[:2]!r} does not begin a message of CDR")
    try:
        sec, nanosec = struct.unpack_from(f"{order}iI", message, _ORIGIN)
        frame_id, place = _read_text(message, _ORIGIN + 8, order)
        height, width = struct.unpack_from(f"{order}II", message, _align(place))
        encoding, place = _read_text(message, _align(place) + 8, order)
        big_endian, place = message[place], _align(place + 1)
        step, length = struct.unpack_from(f"{order}II", message, place)
        data = _cut(memoryview(message), place + 8, length)
    except (struct.error, IndexError):
        text = f"a serialized image of {len(message)} bytes ends before its fields do"
        raise BadImageError("serialization", text) from None
    header = Header(Stamp(sec, nanosec), frame_id)
    return SerializedImage(header, height, width, encoding, big_endian, step, data)


def _align(place: int) -> int:
    """Next place of four bytes."""
    return (place + 3) & ~3


def _cut(message: memoryview, place: int, length: int) -> memoryview:
    if place + length > len(message):
        raise IndexError
    return message[place : place + length]


def _read_text(message: bytes, place: int, order: str) -> tuple[str, int]:
    """Read a string, as rclpy does, and the place behind it."""
    (length,) = struct.unpack_from(f"{order}I", message, place)
    text = _cut(memoryview(message), place + 4, length).tobytes().removesuffix(b"\0")
    return text.decode("utf-8", "replace"), place + 4 + length
