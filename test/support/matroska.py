# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Videos whose container states no frame rate: Matroska of JPEG pictures, each with its time."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

HEIGHT, WIDTH = 48, 64


def write_matroska(path: Path, times_ms: Sequence[int]) -> None:
    """Write a video with a grey frame of level 0, 5, 10, ... at each time."""
    head = _number("4286", 1) + _element("4282", b"matroska") + _number("4287", 4)
    video = _element("e0", _number("b0", WIDTH) + _number("ba", HEIGHT))
    track = _number("d7", 1) + _number("73c5", 1) + _number("83", 1) + _element("86", b"V_MJPEG")
    content = _element("1549a966", _number("2ad7b1", 1_000_000))  # times are in milliseconds
    content += _element("1654ae6b", _element("ae", track + video))
    for place, time_ms in enumerate(times_ms):
        picture = np.full((HEIGHT, WIDTH, 3), 5 * place, np.uint8)
        block = (
            b"\x81" + struct.pack(">h", 0) + b"\x80" + cv2.imencode(".jpg", picture)[1].tobytes()
        )
        content += _element("1f43b675", _number("e7", time_ms) + _element("a3", block))
    path.write_bytes(_element("1a45dfa3", head) + _element("18538067", content))


def _element(kind: str, content: bytes) -> bytes:
    return bytes.fromhex(kind) + (1 << 56 | len(content)).to_bytes(8, "big") + content


def _number(kind: str, value: int) -> bytes:
    return _element(kind, value.to_bytes(8, "big"))
