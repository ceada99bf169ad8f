# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Images from a stranger: JPEG and PNG files and `Image` messages that are not what they say."""

from __future__ import annotations

import array
import random
import struct
import zlib
from functools import cache
from typing import Any

import cv2
import numpy as np

FAR_TOO_LARGE = (40_000, 40_000)
TOO_LARGE = (9_000, 9_000)

_SIZES = (0, 1, 2, 47, 48, 64, 255, 4096, 8191, 8192, 8193, 9000, 40_000, 65_500, 65_535)
_FIELDS = (0, 1, 2, 3, 7, 48, 64, 192, 255, 4096, 16_384, 65_536, 2**31 - 1, 2**31, 2**32 - 1)
_ENCODINGS = (
    "bgr8", "rgb8", "bgra8", "rgba8", "mono8", "nv12", "nv21", "yuyv", "uyvy", "yuv422", "8UC3",
    "bayer_rggb8", "mono16", "32FC1", "", "BGR8", "bgr8 ", "\u00e9" * 9, "x" * 100_000,
)  # fmt: skip


@cache
def make_jpeg(height: int = 48, width: int = 64, progressive: bool = False) -> bytes:
    """A sound JPEG file of a picture with edges and noise."""
    flags = [cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive), cv2.IMWRITE_JPEG_QUALITY, 60]
    return bytes(cv2.imencode(".jpg", _make_picture(height, width), flags)[1])


@cache
def make_png(height: int = 48, width: int = 64) -> bytes:
    """A sound PNG file of the same picture."""
    return bytes(cv2.imencode(".png", _make_picture(height, width))[1])


def _make_picture(height: int, width: int) -> Any:
    picture = np.random.default_rng(1).integers(0, 64, (height, width, 3)).astype(np.uint8)
    picture[: height // 2, : width // 3] += 150
    return picture


def resize_jpeg(file: bytes, height: int, width: int) -> bytes:
    """The same file with another size in its frame header."""
    for marker in (0xC0, 0xC2):
        place = file.find(bytes((0xFF, marker, 0x00)))
        if place >= 0:
            return file[: place + 5] + struct.pack(">HH", height, width) + file[place + 9 :]
    raise ValueError("no frame header")


def resize_png(file: bytes, height: int, width: int) -> bytes:
    """The same file with another size in its header, whose checksum is right."""
    size = struct.pack(">II", width, height)
    return file[:8] + make_chunk(b"IHDR", size + file[24:29]) + file[33:]


def disguise_jpeg(height: int, width: int) -> bytes:
    """A JPEG with two sizes: libjpeg skips ``FF 00``, a reader of segments goes to the other."""
    hidden = resize_jpeg(make_jpeg(16, 16), height, width)[2:]
    components = b"\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    decoy = b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", 48, 64) + components
    return b"\xff\xd8\xff\x00" + struct.pack(">H", 2 + len(hidden)) + hidden + decoy


def make_chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file."""
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def make_flat_png(height: int, width: int, *, before: bytes = b"", behind: bytes = b"") -> bytes:
    """A sound black PNG file, small for its pixels, with chunks before and behind those."""
    packer = zlib.compressobj(9)
    row = bytes(1 + 3 * width)
    pixels = b"".join([packer.compress(row) for _ in range(height)]) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    picture = make_chunk(b"IDAT", pixels)
    start = b"\x89PNG\r\n\x1a\n" + make_chunk(b"IHDR", header)
    return start + before + picture + behind + make_chunk(b"IEND", b"")


@cache
def make_inflating_chunk(kind: bytes, length: int) -> bytes:
    """A chunk of a PNG file, ``zTXt``, ``iTXt`` or ``iCCP``, that is inflated to a length."""
    before = b"a\0\1\0\0\0" if kind == b"iTXt" else b"a\0\0"
    return make_chunk(kind, before + zlib.compress(bytes(length), 9))


def inflate_png(kind: bytes, count: int, *, behind: bool = False) -> bytes:
    """A PNG of 64 x 48 pixels with `count` chunks that are inflated to 7 MB each."""
    chunks = make_inflating_chunk(kind, 7 << 20) * count
    return make_flat_png(48, 64, **{"behind" if behind else "before": chunks})


def split_png(count: int) -> bytes:
    """A PNG whose pixels come behind `count` chunks of none."""
    return make_flat_png(48, 64, before=make_chunk(b"IDAT", b"") * count)


def make_fields(**changes: Any) -> dict[str, Any]:
    """Fields of a sound ``sensor_msgs/msg/Image`` of 64 x 48 pixels, with changes."""
    fields = {
        "height": 48, "width": 64, "step": 192, "encoding": "bgr8", "is_bigendian": 0,
        "data": bytes(48 * 192), "sec": 0, "nanosec": 0, "frame_id": "front",
    }  # fmt: skip
    return fields | changes


def fill_message(message: Any, fields: dict[str, Any]) -> Any:
    """Put fields into a message of `sensor_msgs`; returns it."""
    for name, value in fields.items():
        if name in ("sec", "nanosec"):
            setattr(message.header.stamp, name, value)
        elif name == "frame_id":
            message.header.frame_id = value
        else:
            setattr(message, name, array.array("B", value) if name == "data" else value)
    return message


def heavy_fields(megabytes: int) -> dict[str, dict[str, Any]]:
    """Images of few pixels whose messages are large: by data, by step, by the frame's name."""
    size = megabytes * 1_000_000
    pixel = {"height": 1, "width": 1, "step": 3}
    return {
        "length": make_fields(**pixel, data=bytes(size)),
        "step": make_fields(height=10, width=1, step=size // 10, data=bytes(size)),
        "frame_id": make_fields(**pixel, data=bytes(3), frame_id="x" * size),
    }


def animate_png(height: int, width: int) -> bytes:
    """A PNG of two frames, of which the second is missing."""
    control = struct.pack(">IIIIIHHBB", 0, width, height, 0, 0, 1, 1, 0, 0)
    before = make_chunk(b"acTL", struct.pack(">II", 2, 0)) + make_chunk(b"fcTL", control)
    return make_flat_png(height, width, before=before)


def repeat_scans(file: bytes, count: int) -> bytes:
    """A progressive JPEG whose last scan is there `count` times, without its contents."""
    place = file.rfind(b"\xff\xda")
    (length,) = struct.unpack_from(">H", file, place + 2)
    return file[:place] + file[place : place + 2 + length] * count + b"\xff\xd9"


def turn_jpeg(file: bytes, orientation: int) -> bytes:
    """The same file with an orientation in EXIF data."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 1) + entry + bytes(4)
    return file[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + file[2:]


def _other_format(rng: random.Random) -> bytes:
    suffix = rng.choice((".bmp", ".ppm", ".tiff", ".webp", ".hdr"))
    picture: Any = _make_picture(16, 16)
    if suffix == ".hdr":
        picture = picture.astype(np.float32)
    return bytes(cv2.imencode(suffix, picture)[1])


def mutate_file(seed: int) -> bytes:
    """A damaged or malicious JPEG or PNG file; the same for the same seed."""
    rng = random.Random(seed)
    made = rng.randrange(14)
    if made == 0:
        return disguise_jpeg(rng.choice(_SIZES), rng.choice(_SIZES))
    if made == 1:
        starts = (b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n")
        return rng.choice((*starts, rng.randbytes(500), _other_format(rng)))
    if made == 2:
        return repeat_scans(make_jpeg(progressive=True), rng.choice((1, 30, 2000)))
    if made == 3:
        return turn_jpeg(make_jpeg(), rng.randrange(12))
    if made == 4:
        size = rng.choices(_SIZES[1:7], k=2)
        return animate_png(48, 64) if rng.random() < 0.5 else make_flat_png(*size)
    if made == 12:
        kind, count = rng.choice((b"zTXt", b"iTXt", b"iCCP")), rng.choice((1, 20, 200))
        return inflate_png(kind, count, behind=rng.random() < 0.5)
    if made == 13:
        return split_png(rng.choice((1, 1000, 100_000)))
    file = rng.choice((make_jpeg(), make_jpeg(progressive=True), make_png()))
    if made <= 6:
        resize = resize_png if file.startswith(b"\x89") else resize_jpeg
        file = resize(file, rng.choice(_SIZES), rng.choice(_SIZES))
    return spoil_bytes(file, rng)


def spoil_bytes(file: bytes, rng: random.Random) -> bytes:
    """Change one to four places: bits, zeros, cuts, lengths, doubled and swapped pieces."""
    data = bytearray(file)
    for _ in range(rng.randint(1, 4)):
        if len(data) < 8:
            break
        place = rng.randrange(len(data) - 4)
        end = min(len(data), place + rng.choice((1, 2, 4, 8, 40, 400)))
        how = rng.randrange(7)
        if how == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif how == 1:
            data[place:end] = bytes(end - place)
        elif how == 2:
            del data[place:end]
        elif how == 3:
            data[place:place] = data[place:end] * rng.choice((1, 2, 300))
        elif how == 4:
            data[place : place + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
        elif how == 5:
            insertions = (b"\xff\x00", b"\xff" * 9, b"\xff\xd8", b"\xff\xc0", bytes(5))
            data[place:place] = rng.choice(insertions)
        else:
            del data[place:]
    return bytes(data)


def mutate_fields(seed: int) -> dict[str, Any]:
    """Fields of a malicious ``sensor_msgs/msg/Image``, of the types that ROS lets through."""
    rng = random.Random(seed)
    if rng.random() < 0.1:
        return rng.choice(tuple(heavy_fields(rng.choice((1, 3))).values()))
    fields = make_fields(
        sec=rng.choice((0, 1, -1, -(2**31), 2**31 - 1)),
        nanosec=rng.choice((0, 1, 999_999_999, 2**32 - 1)),
    )
    changes = {
        "height": lambda: rng.choice(_FIELDS),
        "width": lambda: rng.choice(_FIELDS),
        "step": lambda: rng.choice(_FIELDS),
        "encoding": lambda: rng.choice(_ENCODINGS),
        "is_bigendian": lambda: rng.randrange(256),
        "data": lambda: rng.randbytes(rng.choice((0, 1, 191, 192, 4096, 9215, 9217, 100_000))),
        "frame_id": lambda: rng.choice(("", "x" * 10_000, "a\nb", "\u00e9")),
    }
    for name in rng.sample(sorted(changes), rng.randint(1, 4)):
        fields[name] = changes[name]()
    return fields
