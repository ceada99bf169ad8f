# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS image messages to frames, without copying pixels where a view will do.

The messages are those of rclpy, of `serialized_images` or of a bag reader, whose fields are the
same. The image is a view of the message's own buffer (1 us), whatever its encoding;
`jetson_dnn_rt.models.input.encodings` describes the layout of its pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.cameras.encoded_pictures import (
    SIXTEEN_BITS,
    BadImageError,
    check_size,
    decode_picture,
)
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.input.encodings import ENCODINGS, SAME_AS

MAX_FRAME_ID = 256
"""Characters of a coordinate frame's name, which each box of a result repeats."""

MAX_PADDING = 4096
"""Bytes that a row, and the data, may have beyond the limits in `view_image`."""

_COLOURS = ("rgb8", "rgba8", "bgr8", "bgra8")
_LONGEST_FORMAT = 80

_MORE_ROWS = 16
"""Rows allowed after those of the picture: decoders of video write whole macroblocks."""


def stamp_to_ns(header: Any) -> int:
    """Nanoseconds of a ``std_msgs/msg/Header``; 0, as without a stamp, for one that is not a time.

    A message can hold more nanoseconds than a second has. With the seconds' carry such a stamp may
    be too large for the headers of results.
    """
    if header.stamp.nanosec >= 1_000_000_000:
        return 0
    return int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)


def check_frame_id(header: Any) -> None:
    """Raise BadImageError, ``frame_id``, for one of more than `MAX_FRAME_ID` characters."""
    if (length := len(header.frame_id)) > MAX_FRAME_ID:
        text = f"frame_id of {length} characters is longer than the {MAX_FRAME_ID} accepted"
        raise BadImageError("frame_id", text)


def view_image(message: Any, sequence: int) -> Frame:
    """View a ``sensor_msgs/msg/Image`` as frame `sequence` of its stream; nothing is copied.

    The frame keeps the whole message, which must not be written to. A message that is far larger
    than its picture is refused: a row may be twice as long as its pixels, and the data 16 rows
    longer than the picture.

    BadImageError when encoding, size, step or length of the data are wrong, a side is odd where
    the encoding shares its colours between neighbours, or `frame_id` is too long.
    """
    check_frame_id(message.header)
    height, width, step = message.height, message.width, message.step
    check_size(height, width)
    name = SAME_AS.get(message.encoding, message.encoding)
    encoding = ENCODINGS.get(name)
    if encoding is None:
        known = ", ".join(sorted((*ENCODINGS, *SAME_AS)))
        more = f"; it has {SIXTEEN_BITS}" if "16" in message.encoding else ""
        text = f"encoding {message.encoding[:40]!r} is not one of {known}{more}"
        raise BadImageError("encoding", text)
    if fault := encoding.find_size_fault(height, width):
        raise BadImageError("size", f"{message.encoding}: {fault}")
    pixel = encoding.pixel_bytes
    if not width * pixel <= step <= 2 * width * pixel + MAX_PADDING:
        fault = "shorter" if step < width * pixel else "far longer"
        text = f"step {step} is {fault} than a row of {width} pixels of {pixel} bytes"
        raise BadImageError("step", text)
    shape = encoding.shape(height, width)
    data = message.data
    most = step * (shape[0] + _MORE_ROWS) + MAX_PADDING
    if not step * shape[0] <= len(data) <= most:
        reason = "length" if len(data) > most else "truncated"
        text = f"{len(data)} bytes of data, {shape[0]} rows of {step} bytes expected"
        raise BadImageError(reason, text)
    strides = (step, pixel) if pixel == 1 else (step, pixel, 1)
    image: Image = np.ndarray(shape, np.uint8, buffer=data, strides=strides)
    image.flags.writeable = False
    header = message.header
    return Frame(image, name, stamp_to_ns(header), sequence, header.frame_id, message)


def decode_image(message: Any, sequence: int) -> Frame:
    """Decode a ``sensor_msgs/msg/CompressedImage`` (JPEG or PNG) into a frame.

    BadImageError when it is neither, too large or damaged, when its format declares what is not
    read, or when `frame_id` is too long.
    """
    check_frame_id(message.header)
    encoding = _read_format(message.format)
    try:
        image = decode_picture(np.frombuffer(message.data, np.uint8), encoding)
    except BadImageError as error:
        if error.reason != "format" or not message.format:
            raise
        text = f"{error} (its format is {message.format[:_LONGEST_FORMAT]!r})"
        raise BadImageError("format", text) from None
    header, copied = message.header, image.nbytes
    return Frame(
        image, encoding, stamp_to_ns(header), sequence, header.frame_id, image, copied_bytes=copied
    )


def _read_format(text: str) -> str:
    """Encoding of the decoded picture, by the declared format.

    compressed_image_transport writes ``<raw>; <codec> compressed <stored>``: the encoding of the
    raw topic, and the one that its pixels were converted to. The latter is missing where pixels
    were not converted: in a PNG without colours, in a JPEG of ROS 1, and before Groovy always,
    when colours were stored as rgb. Other publishers write just ``jpeg`` or ``png``.

    A decoder takes the first channel for blue, whatever was stored there. Grey becomes three equal
    channels.
    """
    raw, more, codec = text.partition(";")
    raw, (_, _, stored) = raw.strip(), codec.partition("compressed")
    if "compressedDepth" in codec:
        raise BadImageError(
            "encoding",
            f"format {text[:_LONGEST_FORMAT]!r}: these are distances, not a picture; fix: "
            "subscribe to the colour image's topic, <topic>/compressed",
        )
    if not more:
        return "bgr8"
    found = stored.strip() or raw
    if "16" in found:
        raise BadImageError("encoding", f"format {text[:_LONGEST_FORMAT]!r}: {SIXTEEN_BITS}")
    if found in ENCODINGS and ENCODINGS[found].layout == "bayer":
        return found
    as_rgb = ("rgb8", "rgba8") if stored.strip() else _COLOURS
    return "rgb8" if found in as_rgb else "bgr8"
