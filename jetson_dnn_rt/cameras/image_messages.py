"""ROS image messages to frames, without copying pixels where a view will do.

The messages are those of rclpy or of a bag reader: they are known by their fields alone. The image
is a view of the message's own buffer (1 us), whatever its encoding; how the pixels lie in it says
`jetson_dnn_rt.models.input.encodings`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError, check_size, decode_picture
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.input.encodings import ENCODINGS, SAME_AS

MAX_FRAME_ID = 256
"""Characters of a coordinate frame's name: each box of a result has it once more."""

MAX_PADDING = 4096
"""Bytes that a row, and the data, may have besides what `view_image` says."""

_MORE_ROWS = 16
"""Behind those of the picture, at most: decoders of video write whole macroblocks."""


class Stamp(Protocol):
    """``builtin_interfaces/msg/Time``."""

    sec: int
    nanosec: int


class Header(Protocol):
    """``std_msgs/msg/Header``."""

    stamp: Stamp
    frame_id: str


class ImageMessage(Protocol):
    """``sensor_msgs/msg/Image``; `data` is any buffer of bytes."""

    header: Header
    height: int
    width: int
    encoding: str
    step: int
    data: Any


class CompressedImageMessage(Protocol):
    """``sensor_msgs/msg/CompressedImage``."""

    header: Header
    data: Any


def stamp_to_ns(header: Header) -> int:
    """Nanoseconds of a header's stamp; 0, as without a stamp, for one that is no time.

    A message can hold more nanoseconds than a second has. With the seconds' carry such a stamp may
    be too large for the headers of results.
    """
    if header.stamp.nanosec >= 1_000_000_000:
        return 0
    return int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)


def check_frame_id(header: Header) -> None:
    """Refuse a coordinate frame with more than `MAX_FRAME_ID` characters.

    Raises
    ------
    BadImageError
        With the reason ``frame_id``.
    """
    if (length := len(header.frame_id)) > MAX_FRAME_ID:
        raise BadImageError(
            "frame_id",
            f"frame_id of {length} characters is longer than the {MAX_FRAME_ID} accepted",
        )


def view_image(message: ImageMessage, sequence: int) -> Frame:
    """View an image message as a frame; nothing is copied, padded rows stay where they are.

    The frame keeps the whole message, so this is refused where it is far larger than the picture:
    a row may be twice as long as its pixels, and the data 16 rows longer than the picture.

    Parameters
    ----------
    message : sensor_msgs.msg.Image
        Stays alive as long as the frame does, and must not be written to.
    sequence : int
        Number of the frame in its stream.

    Raises
    ------
    BadImageError
        When encoding, size, step or length of the data are wrong, a side is odd where the encoding
        shares its colours between neighbours, or `frame_id` is too long.
    """
    check_frame_id(message.header)
    height, width, step = message.height, message.width, message.step
    check_size(height, width)
    name = SAME_AS.get(message.encoding, message.encoding)
    encoding = ENCODINGS.get(name)
    if encoding is None:
        raise BadImageError(
            "encoding",
            f"encoding {message.encoding[:40]!r} is not one of "
            f"{', '.join(sorted((*ENCODINGS, *SAME_AS)))}",
        )
    if fault := encoding.find_size_fault(height, width):
        raise BadImageError("size", f"{message.encoding}: {fault}")
    pixel = encoding.pixel_bytes
    if step < width * pixel:
        raise BadImageError(
            "step",
            f"step {step} is shorter than a row of {width} pixels of {pixel} bytes",
        )
    if step > 2 * width * pixel + MAX_PADDING:
        raise BadImageError(
            "step", f"step {step} is far longer than a row of {width} pixels of {pixel} bytes"
        )
    shape = encoding.shape(height, width)
    data = message.data
    if len(data) < step * shape[0]:
        raise BadImageError(
            "truncated", f"{len(data)} bytes of data, {shape[0]} rows of {step} bytes expected"
        )
    if len(data) > step * (shape[0] + _MORE_ROWS) + MAX_PADDING:
        raise BadImageError(
            "length", f"{len(data)} bytes of data, {shape[0]} rows of {step} bytes expected"
        )
    strides = (step, pixel) if pixel == 1 else (step, pixel, 1)
    image: Image = np.ndarray(shape, np.uint8, buffer=data, strides=strides)
    image.flags.writeable = False
    return Frame(
        image=image,
        encoding=name,
        stamp_ns=stamp_to_ns(message.header),
        sequence=sequence,
        frame_id=message.header.frame_id,
        owner=message,
    )


def decode_image(message: CompressedImageMessage, sequence: int) -> Frame:
    """Decode a JPEG or PNG message into a frame.

    Raises
    ------
    BadImageError
        When it is neither, too large, or damaged: see `decode_picture`; or when `frame_id` is too
        long.
    """
    check_frame_id(message.header)
    image = decode_picture(np.frombuffer(message.data, np.uint8))
    return Frame(
        image=image,
        encoding="bgr8",
        stamp_ns=stamp_to_ns(message.header),
        sequence=sequence,
        frame_id=message.header.frame_id,
        owner=image,
        copied_bytes=image.nbytes,
    )
