# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Folders of photos as people have them: any size, format and orientation."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import cv2
import numpy as np

SIDES_TURNED = range(5, 9)
"""Orientations of EXIF that exchange height and width."""

ODD_SIZES = [(1, 1), (1, 300), (333, 1), (6, 9000), (7, 5), (481, 641)]
"""Height and width."""


def turn_jpeg(jpeg: bytes, orientation: int) -> bytes:
    """Add EXIF data that says how a JPEG is to be turned."""
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    content = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + bytes(4)
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


def write_photos(folder: Path, count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Write photos, no two neighbours of one size; the heights and widths in which they come.

    JPEG, some of them to be turned, and PNG: with colours, grey, with transparency, of 16 bits.
    """
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    sizes: list[tuple[int, int]] = []
    for index in range(count):
        height, width = ODD_SIZES[index // 7 % len(ODD_SIZES)]
        if index % 7:
            height, width = 40 + 3 * index, int(random.integers(20, 400))
        channels = (3, 3, 4, 1)[index % 4]
        most = 1 << (16 if index % 8 == 3 else 8)
        kind = np.uint16 if most > 256 else np.uint8
        coarse = random.integers(0, most, (4, 5, channels), kind)
        picture = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_NEAREST)
        size = height, width
        if index % 4 < 2:
            jpeg = cv2.imencode(".jpg", picture)[1].tobytes()
            orientation = 1 + index % 8 if index % 4 else 0
            data = turn_jpeg(jpeg, orientation) if orientation else jpeg
            (folder / f"{index:03d}.jpg").write_bytes(data)
            size = size[::-1] if orientation in SIDES_TURNED else size
        else:
            assert cv2.imwrite(str(folder / f"{index:03d}.png"), picture)
        sizes.append(size)
    assert all(one != other for one, other in itertools.pairwise(sizes))
    return sizes
