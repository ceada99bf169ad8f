# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Serialized images: the fields that rclpy finds, and only one kind of error from damaged ones."""

from __future__ import annotations

import array
import random
import struct

import numpy as np
import pytest

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.cameras.serialized_images import Header, Stamp, read_image

PIXELS = bytes(range(72))


def serialize(order="<", frame_id=b"front\0", encoding=b"bgr8\0", pixels=PIXELS):
    """A picture of 4 x 6 pixels, by hand from the rules of CDR."""

    def align():
        return b"\0" * (-len(message) % 4)

    message = b"\0\1\0\0" if order == "<" else b"\0\0\0\0"
    message += struct.pack(f"{order}iII", 12, 34, len(frame_id)) + frame_id
    message += align()
    message += struct.pack(f"{order}III", 4, 6, len(encoding)) + encoding + b"\1"
    message += align()
    return message + struct.pack(f"{order}II", 18, len(pixels)) + pixels


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("length", range(6))
def test_fields_at_every_alignment_and_in_both_byte_orders(order, length):
    name = "x" * length
    message = serialize(order, name.encode() + b"\0", name.encode() + b"\0")
    image = read_image(message)
    assert image.header == Header(Stamp(12, 34), name)
    assert (image.height, image.width, image.step) == (4, 6, 18)
    assert (image.encoding, image.is_bigendian) == (name, 1)
    assert bytes(image.data) == PIXELS


def test_pixels_are_a_view_of_the_message():
    message = serialize()
    frame = view_image(read_image(message), 7)
    assert (frame.encoding, frame.stamp_ns, frame.frame_id) == ("bgr8", 12_000_000_034, "front")
    assert frame.image.tobytes() == PIXELS
    assert np.shares_memory(frame.image, np.frombuffer(message, np.uint8))
    assert frame.kept_bytes == len(message)
    assert not frame.image.flags.writeable


def test_what_rclpy_writes_is_read():
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import Image

    for name in ("", "a", "front", "\u00e9\u00e9"):
        message = Image(height=2, width=3, encoding=name, step=9, is_bigendian=1)
        message.data = array.array("B", range(18))
        message.header.stamp.sec, message.header.stamp.nanosec = -5, 2**32 - 1
        message.header.frame_id = name
        image = read_image(serialize_message(message))
        assert image.header == Header(Stamp(-5, 2**32 - 1), name)
        assert (image.height, image.width, image.step) == (2, 3, 9)
        assert (image.encoding, image.is_bigendian) == (name, 1)
        assert bytes(image.data) == bytes(range(18))


def test_text_without_an_end_or_not_of_utf_8_is_read_as_rclpy_does():
    image = read_image(serialize(frame_id=b"front", encoding=b"\xff8\0"))
    assert (image.header.frame_id, image.encoding) == ("front", "\ufffd8")
    assert read_image(serialize(frame_id=b"")).header.frame_id == ""


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_message_that_ends_early_is_refused_wherever_it_does(order):
    message = serialize(order)
    for length in range(len(message)):
        with pytest.raises(BadImageError) as caught:
            read_image(message[:length])
        assert caught.value.reason == "serialization"
    assert bytes(read_image(message + b"rest").data) == PIXELS


@pytest.mark.parametrize("start", [b"", b"\0", b"\0\2", b"\0\7", b"\1\0", b"\0\1"[::-1]])
def test_other_representations_are_refused(start):
    with pytest.raises(BadImageError, match="does not begin a message of CDR"):
        read_image(start + serialize()[2:] if len(start) == 2 else start)


def test_damaged_messages_are_images_or_refused():
    chance, refused = random.Random(1), 0
    for _ in range(3000):
        message = bytearray(serialize())
        for _ in range(chance.randint(1, 4)):
            message[chance.randrange(len(message))] = chance.choice((0, 1, 127, 255))
        try:
            view_image(read_image(bytes(message)), 0)
        except BadImageError:
            refused += 1
    assert 0 < refused < 3000
