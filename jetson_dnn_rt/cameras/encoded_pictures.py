# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decoding of untrusted JPEG and PNG files, whose cost is known before the decoder is called.

The headers are read up to the picture itself, by the rules of libjpeg and libpng. Where those
would skip bytes, take the later of two sizes or guess, the file is refused: the size that is
checked here is the size that is decoded. Of a PNG the decoder sees the picture alone: texts and
colour profiles, which it would inflate, do not affect the pixels.
"""

from __future__ import annotations

import struct

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.frames import Image
from jetson_dnn_rt.models.input.encodings import ENCODINGS

MAX_PIXELS = 1 << 26
"""64 megapixels: more is refused before anything is read or allocated."""

MAX_SEGMENTS = 4096
"""Segments before the picture: an ICC profile takes up to 255; fill bytes of a JPEG count too."""

MAX_SCANS = 32
"""Scans of a progressive JPEG, which usually has 10: each costs a pass over the whole picture,
however few bytes it has."""

_BYTES_PER_PIXEL = 6
"""Memory that OpenCV needs to decode a picture, which it holds twice."""

MAX_CHUNKS_PER_KIB = 1
"""Chunks of pixels in a PNG, besides `MAX_SEGMENTS`: libpng writes 8 KiB into each."""

SIXTEEN_BITS = (
    "16 bits a sample, of which nothing says what is black and what is white; fix: publish 8 bits"
)

_PNG_HEAD = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_SOS, _TEM = 0xDA, 0x01
_SEGMENTS = frozenset((0xC4, 0xCC, 0xDB, 0xDC, 0xDD, *range(0xE0, 0xF0), 0xFE))
"""Markers before the picture that have a length: tables, restart interval, applications."""
_FRAMES = {0xC0: "baseline", 0xC1: "extended", 0xC2: "progressive"}
_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - _SEGMENTS


class BadImageError(FrameError):
    """A message that is not an image; the text says what is wrong, with the figures.

    `reason` is one word for the counts: ``encoding``, ``size``, ``step``, ``length``,
    ``truncated``, ``format``, ``frame_id``, ``serialization``.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def check_size(height: int, width: int) -> None:
    """Raise BadImageError, ``size``, for a picture of no pixels or more than `MAX_PIXELS`."""
    if height < 1 or width < 1:
        raise BadImageError("size", f"an image of {width}x{height} pixels has no pixel")
    if height * width > MAX_PIXELS:
        text = f"{width}x{height} pixels are more than the {MAX_PIXELS} accepted"
        raise BadImageError("size", text)


def decode_picture(data: npt.NDArray[np.uint8], encoding: str = "bgr8") -> Image:
    """Decode a JPEG or PNG file, uint8 [H, W, 3], or [H, W] where `encoding` is a mosaic's.

    `encoding` is of `ENCODINGS`: what the first of a pixel's colours is called is not checked.

    The picture is returned as stored: an orientation in its EXIF data is not applied, so that
    boxes and camera calibration are in the pixels of the sensor. BadImageError when it is neither
    JPEG nor PNG, too large, or damaged.
    """
    height, width, data = _read_headers(data)
    layout = ENCODINGS[encoding]
    if fault := layout.find_size_fault(height, width):
        raise BadImageError("size", f"compressed image: {fault}")
    mosaic = layout.layout == "bayer"
    colour = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(data, cv2.IMREAD_UNCHANGED if mosaic else colour)
    except (cv2.error, MemoryError, ValueError) as error:
        text = f"{width}x{height} pixels: {' '.join(str(error).split())[:200]}"
        raise BadImageError("truncated", f"compressed image of {text}") from error
    if image is None:
        raise BadImageError("truncated", f"{len(data)} bytes of compressed image are damaged")
    if mosaic and (image.ndim != 2 or image.dtype != np.uint8):
        channels = 1 if image.ndim == 2 else image.shape[2]
        has = f"{channels} channels of {8 * image.itemsize} bits"
        raise BadImageError("format", f"declared as {encoding}, a mosaic of bytes, but has {has}")
    if image.shape != layout.shape(height, width) or image.dtype != np.uint8:
        text = f"was decoded as {image.shape} of {image.dtype}"
        raise BadImageError("size", f"compressed image of {width}x{height} pixels {text}")
    return np.asarray(image, np.uint8)


def _read_headers(data: npt.NDArray[np.uint8]) -> tuple[int, int, npt.NDArray[np.uint8]]:
    """Height and width that OpenCV will decode, and as much of the file as it is to see.

    BadImageError when the file is neither JPEG nor PNG, is too large to be decoded, is damaged in
    front of the picture, or is ambiguous about its size.
    """
    head = data[: len(_PNG_HEAD)].tobytes()
    if head == _PNG_HEAD:
        return _read_png(data)
    if head.startswith(b"\xff\xd8\xff"):
        return (*_read_jpeg(data.data), data)
    raise BadImageError("format", f"compressed image of {len(data)} bytes is neither JPEG nor PNG")


def _read_png(file: npt.NDArray[np.uint8]) -> tuple[int, int, npt.NDArray[np.uint8]]:
    """Read the chunks of a PNG file; those of the picture are kept."""
    data, begin = file.data, len(_PNG_HEAD) + 13 + 4  # behind the contents is a checksum
    if len(data) < begin:
        raise BadImageError("truncated", f"PNG of {len(data)} bytes ends in its header")
    width, height, bits, kind_of_colour = struct.unpack_from(">IIBB", data, len(_PNG_HEAD))
    check_size(height, width)
    if (bits, kind_of_colour) == (16, 0):  # a distance, or what a sensor counted
        raise BadImageError("encoding", f"grey PNG: {SIXTEEN_BITS}")
    kept = [data[:begin]]
    for _ in range(MAX_SEGMENTS):
        if begin + 8 > len(data):
            break
        length, kind = struct.unpack_from(">I4s", data, begin)
        if kind == b"IDAT":
            end = _find_last_pixels(data, begin)
            if begin == len(kept[0]) and data[end:] == _PNG_END:
                return height, width, file  # there is nothing else in it
            kept += (data[begin:end], memoryview(_PNG_END))
            return height, width, np.frombuffer(b"".join(kept), np.uint8)
        end = begin + 8 + length + 4
        if end > len(data) or not kind.isalpha():
            break
        if kind in (b"PLTE", b"tRNS"):
            kept.append(data[begin:end])
        elif kind == b"acTL" or kind[0] < 0x60:
            # An animation is decoded with all its canvases; no other chunk in capitals, which are
            # essential to a picture, may be here.
            raise BadImageError("format", f"PNG with a chunk {kind!r} before its pixels")
        begin = end
    raise BadImageError("truncated", f"PNG of {len(data)} bytes: no pixels behind its header")


def _find_last_pixels(data: memoryview, begin: int) -> int:
    """End of the row of IDAT chunks that begins there, which may be the end of the file."""
    for _ in range(MAX_SEGMENTS + MAX_CHUNKS_PER_KIB * (len(data) >> 10)):
        if begin + 8 > len(data):
            return begin
        length, kind = struct.unpack_from(">I4s", data, begin)
        if kind != b"IDAT":
            return begin
        begin += 8 + length + 4
        if begin > len(data):  # OpenCV allocates what it says before it reads
            text = f"PNG of {len(data)} bytes: its pixels end at {begin}"
            raise BadImageError("truncated", text)
    raise BadImageError("format", f"PNG of {len(data)} bytes with too many chunks of pixels")


def _read_jpeg(data: memoryview) -> tuple[int, int]:
    """Read the segments of a JPEG file up to its first scan."""
    position, frame = 2, (0, 0, 0, 0)
    for _ in range(MAX_SEGMENTS):
        if position + 4 > len(data) or data[position] != 0xFF:
            break
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker == _TEM or 0xD0 <= marker <= 0xD7:  # no length
            position += 2
            continue
        (length,) = struct.unpack_from(">H", data, position + 2)
        content = data[position + 4 : position + 2 + length]
        if len(content) != length - 2:
            break
        if marker == _SOS:
            return _check_scan(data, content, frame)
        if marker in _FRAMES:
            if frame[0]:
                raise BadImageError("format", "JPEG with two frame headers")
            frame = (marker, *_read_frame(content))
        elif marker in _OTHER_FRAMES:
            known = ", ".join(_FRAMES.values())
            raise BadImageError("format", f"JPEG with coding {marker:#04x} is none of {known}")
        elif marker not in _SEGMENTS:
            break
        position += 2 + length
    raise BadImageError("truncated", f"JPEG of {len(data)} bytes is damaged before its pixels")


def _read_frame(content: memoryview) -> tuple[int, int, int]:
    """Height, width and number of components in a start-of-frame segment."""
    if len(content) < 6 or len(content) != 6 + 3 * content[5]:
        raise BadImageError("truncated", "JPEG with a frame header of a wrong length")
    height, width = struct.unpack_from(">HH", content, 1)
    check_size(height, width)
    return height, width, content[5]


def _check_scan(
    data: memoryview, content: memoryview, frame: tuple[int, int, int, int]
) -> tuple[int, int]:
    """Refuse a JPEG that takes libjpeg far more memory or time than its pixels do."""
    marker, height, width, components = frame
    if not marker or not len(content):
        raise BadImageError("truncated", f"JPEG of {len(data)} bytes does not say its size")
    if _FRAMES[marker] == "progressive" or content[0] < components:
        # All coefficients are kept, 16 bits each, until the last scan was read.
        if height * width * (_BYTES_PER_PIXEL + 2 * components) > _BYTES_PER_PIXEL * MAX_PIXELS:
            text = f"{width}x{height} pixels are too many for a JPEG of several scans"
            raise BadImageError("size", text)
        scans = data.tobytes().count(bytes((0xFF, _SOS)))
        if scans > MAX_SCANS:
            text = f"JPEG of {scans} scans, more than the {MAX_SCANS} accepted"
            raise BadImageError("format", text)
    return height, width
