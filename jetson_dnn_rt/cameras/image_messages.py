"""ROS image messages to frames, without copying pixels where a view will do.

The messages are those of rclpy or of a bag reader: they are known by their fields alone. The image
is a view of the message's own buffer (1 us), whatever its encoding; how the pixels lie in it says
`jetson_dnn_rt.models.encodings`.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.encodings import ENCODINGS, SAME_AS

MAX_PIXELS = 1 << 26
"""64 megapixels: more is refused before anything is looked at or allocated."""


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


class BadImageError(FrameError):
    """A message that is no image.

    Parameters
    ----------
    reason : str
        One word for the counts: ``encoding``, ``size``, ``step``, ``truncated``, ``format``.
    text : str
        What is wrong, with the figures.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


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
    _check_size(height, width)
    name = SAME_AS.get(message.encoding, message.encoding)
    encoding = ENCODINGS.get(name)
    if encoding is None:
        raise BadImageError(
            "encoding",
            f"encoding {message.encoding!r} is not one of "
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
        When it is neither, too large, or damaged. The size is read from the file's header before
        anything is allocated.
    """
    data = np.frombuffer(message.data, np.uint8)
    _check_size(*_encoded_size(data))
    image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    if image is None:
        raise BadImageError("truncated", f"{len(data)} bytes of compressed image are damaged")
    return Frame(
        image=image,
        encoding="bgr8",
        stamp_ns=stamp_to_ns(message.header),
        sequence=sequence,
        frame_id=message.header.frame_id,
        owner=image,
        copied_bytes=image.nbytes,
    )


def _check_size(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise BadImageError("size", f"an image of {width}x{height} pixels has no pixel")
    if height * width > MAX_PIXELS:
        raise BadImageError(
            "size", f"{width}x{height} pixels are more than the {MAX_PIXELS} accepted"
        )


def _encoded_size(data: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Height and width in the header of a PNG or JPEG file."""
    head = data[:24].tobytes()
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) == 24:
        width, height = struct.unpack(">II", head[16:24])
        return height, width
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    raise BadImageError("format", f"compressed image of {len(data)} bytes is no JPEG and no PNG")


def _jpeg_size(data: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Follow the segments of a JPEG file to its start-of-frame marker."""
    position = 2
    while position + 9 <= len(data):
        if data[position] != 0xFF:
            break
        marker = int(data[position + 1])
        if marker == 0xFF:  # padding
            position += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[position + 5 : position + 9].tobytes())
            return height, width
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # no length
            position += 2
        else:
            position += 2 + int(data[position + 2]) * 256 + int(data[position + 3])
    raise BadImageError("truncated", f"JPEG of {len(data)} bytes ends before its size is said")
