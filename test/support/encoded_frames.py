# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Pictures in the encodings of cameras, made without the code that reads them."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]


def encode_picture(picture: Image, encoding: str) -> Image:
    """Encode a picture [H, W, 3], blue first, sides even, in an encoding of YUV or Bayer."""
    height, width = picture.shape[:2]
    if encoding.startswith("bayer_"):
        mosaic = np.empty((height, width), np.uint8)
        for place, colour in enumerate(encoding.removeprefix("bayer_")[:4]):
            block = (slice(place // 2, None, 2), slice(place % 2, None, 2))
            mosaic[block] = picture[(*block, "bgr".index(colour))]
        return mosaic
    planar = cv2.cvtColor(picture, cv2.COLOR_BGR2YUV_I420).reshape(-1)
    y = planar[: height * width].reshape(height, width)
    u, v = planar[height * width :].reshape(2, height // 2, width // 2)
    if encoding in ("nv12", "nv21"):
        pair = np.stack((u, v) if encoding == "nv12" else (v, u), -1)
        return np.concatenate((y, pair.reshape(height // 2, width)))
    u, v = u.repeat(2, 0), v.repeat(2, 0)
    left, right = y[:, 0::2], y[:, 1::2]
    quad = (left, u, right, v) if encoding == "yuyv" else (u, left, v, right)
    return np.stack(quad, -1).reshape(height, width, 2)
