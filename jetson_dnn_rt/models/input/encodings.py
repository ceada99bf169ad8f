# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layout of a frame's pixels in its array, by the name of the encoding.

The names are those of ``sensor_msgs/image_encodings``. Everything is eight bits a sample; rows may
be padded, the pixels of a row are adjacent.

========================= ================ ==================================================
encoding                  array            meaning
========================= ================ ==================================================
bgr8 rgb8 bgra8 rgba8     [H, W, 3 or 4]   colours of each pixel
mono8                     [H, W]           grey
nv12 nv21                 [H * 3 / 2, W]   Y of all pixels, then rows of U V (V U) of 2x2 pixels
yuyv uyvy                 [H, W, 2]        Y U Y V (U Y V Y) of two neighbours in a row
bayer_rggb8 bggr gbrg grbg [H, W]          one colour a pixel, four in a block of 2x2
========================= ================ ==================================================

Luma and chroma are ITU-R BT.601 in limited range (16 to 235), as OpenCV and ``cv_bridge`` assume:
messages do not specify it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.frames import Frame

Layout = Literal["packed", "semi_planar", "paired", "bayer"]

MAX_SIDE = 32767
"""Longest side in pixels: cv2.resize counts in 16 bits."""


@dataclass(frozen=True)
class Encoding:
    """Layout of the pixels of one encoding; `layout` names the rows of the table above."""

    layout: Layout
    pixel_bytes: int  # from one pixel of a row to the next
    # Where the components are. Packed: blue, green and red in a pixel. Semi-planar: U and V in
    # their pair. Paired: Y in its two bytes, U and V in the four bytes of two pixels. Bayer: red
    # and blue in the block of 2x2, counted along its rows.
    order: tuple[int, ...]

    @property
    def even(self) -> tuple[bool, bool]:
        """Whether height and width have to be even."""
        return self.layout in ("semi_planar", "bayer"), self.layout != "packed"

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        """Shape of the array of a picture of `height` x `width` pixels."""
        if self.layout == "semi_planar":
            return (height * 3 // 2, width)
        return (height, width) if self.pixel_bytes == 1 else (height, width, self.pixel_bytes)

    def find_size_fault(self, height: int, width: int) -> str:
        """Fault of a size; empty when it has none."""
        if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
            return f"sides must be in [1, {MAX_SIDE}] pixels: {width}x{height}"
        for side, pixels, even in zip(
            ("height", "width"), (height, width), self.even, strict=True
        ):
            if even and pixels % 2:
                return f"the {side} must be even: {width}x{height} pixels"
        return ""


ENCODINGS: dict[str, Encoding] = {
    "bgr8": Encoding("packed", 3, (0, 1, 2)),
    "rgb8": Encoding("packed", 3, (2, 1, 0)),
    "bgra8": Encoding("packed", 4, (0, 1, 2)),
    "rgba8": Encoding("packed", 4, (2, 1, 0)),
    "mono8": Encoding("packed", 1, (0, 0, 0)),
    "nv12": Encoding("semi_planar", 1, (0, 1)),
    "nv21": Encoding("semi_planar", 1, (1, 0)),
    "yuyv": Encoding("paired", 2, (0, 1, 3)),
    "uyvy": Encoding("paired", 2, (1, 0, 2)),
    "bayer_rggb8": Encoding("bayer", 1, (0, 3)),
    "bayer_bggr8": Encoding("bayer", 1, (3, 0)),
    "bayer_gbrg8": Encoding("bayer", 1, (2, 1)),
    "bayer_grbg8": Encoding("bayer", 1, (1, 2)),
}

SAME_AS = {
    "8UC1": "mono8",
    "8UC3": "bgr8",
    "8UC4": "bgra8",
    "yuv422": "uyvy",
    "yuv422_yuy2": "yuyv",
}
"""Other names in messages: types of OpenCV, and names of releases before Iron."""

YUV_TO_BGR: npt.NDArray[np.float64] = np.array(
    [
        [1220542, 2116026, 0, -(16 * 1220542 + 128 * 2116026)],
        [1220542, -409993, -852492, -16 * 1220542 + 128 * (409993 + 852492)],
        [1220542, 0, 1673527, -(16 * 1220542 + 128 * 1673527)],
    ]
) / float(1 << 20)
"""Y, U, V and 1 to blue, green, red, float64 [3, 4]: OpenCV's coefficients of BT.601."""


def check_frame(frame: Frame) -> Encoding:
    """Check that a frame can be read as an image of its encoding, which is returned.

    `FrameError` where the encoding is unknown or does not fit the array, or the size is 0, too
    large, or odd where it must be even.
    """
    image = frame.image
    encoding = ENCODINGS.get(frame.encoding)
    if encoding is None:
        raise FrameError(f"encoding {frame.encoding!r} is not one of {sorted(ENCODINGS)}")
    if image.dtype != np.uint8:
        raise FrameError(f"{frame.encoding} needs uint8 pixels, not {image.dtype}")
    channels = encoding.pixel_bytes
    has = 1 if image.ndim == 2 else image.shape[2] if image.ndim == 3 else 0
    if has != channels:
        raise FrameError(f"{frame.encoding} needs {channels} channels, the shape is {image.shape}")
    height, width = frame.height, frame.width
    if fault := encoding.find_size_fault(height, width):
        raise FrameError(f"{frame.encoding}: {fault}")
    if image.shape[:2] != encoding.shape(height, width)[:2]:
        raise FrameError(
            f"{frame.encoding} needs rows of Y and half as many of U and V, the shape is "
            f"{image.shape}"
        )
    row, column = image.strides[:2]
    inner = image.strides[2] if channels > 1 else 1
    if column != channels or inner != 1 or row < column * width:
        raise FrameError(f"pixels of a row must be adjacent: strides {image.strides}")
    return encoding
