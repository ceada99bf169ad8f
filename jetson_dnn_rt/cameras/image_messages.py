"""ROS image messages to frames, without copying pixels where a view will do.

The messages are those of rclpy or of a bag reader: they are known by their fields alone. The image
is a view of the message's own buffer (1 us), whatever its encoding; how the pixels lie in it says
`jetson_dnn_rt.models.encodings`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError, check_size, decode_picture
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.encodings import ENCODINGS, SAME_AS


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


def view_image(message: ImageMessage, sequence: int) -> Frame:
    """View an image message as a frame; nothing is copied, padded rows stay where they are.

    Parameters
    ----------
    message : sensor_msgs.msg.Image
        Stays alive as long as the frame does, and must not be written to.
    sequence : int
        Number of the frame in its stream.

    Raises
    ------
    BadImageError
        When encoding, size, step or length of the data are wrong, or a side is odd where the
        encoding shares its colours between neighbours.
    """
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
    shape = encoding.shape(height, width)
    data = message.data
    if len(data) < step * shape[0]:
        raise BadImageError(
            "truncated", f"{len(data)} bytes of data, {shape[0]} rows of {step} bytes expected"
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
        When it is neither, too large, or damaged: see `decode_picture`.
    """
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
