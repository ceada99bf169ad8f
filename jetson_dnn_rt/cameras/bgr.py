# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A frame's pixels in OpenCV's order of colours, to be drawn on."""

from __future__ import annotations

import cv2
import numpy as np

from jetson_dnn_rt.frames import Frame, Image

# OpenCV names a Bayer pattern by its second row and second column.
_CONVERSIONS = {
    "mono8": cv2.COLOR_GRAY2BGR,
    "rgb8": cv2.COLOR_RGB2BGR,
    "rgba8": cv2.COLOR_RGBA2BGR,
    "bgra8": cv2.COLOR_BGRA2BGR,
    "nv12": cv2.COLOR_YUV2BGR_NV12,
    "nv21": cv2.COLOR_YUV2BGR_NV21,
    "yuyv": cv2.COLOR_YUV2BGR_YUYV,
    "uyvy": cv2.COLOR_YUV2BGR_UYVY,
    "bayer_rggb8": cv2.COLOR_BayerBG2BGR,
    "bayer_bggr8": cv2.COLOR_BayerRG2BGR,
    "bayer_gbrg8": cv2.COLOR_BayerGR2BGR,
    "bayer_grbg8": cv2.COLOR_BayerGB2BGR,
}


def copy_as_bgr(frame: Frame, out: Image | None = None) -> Image:
    """Copy a frame of any encoding into `out`, or a new array, uint8 [H, W, 3], blue first."""
    picture = np.empty((frame.height, frame.width, 3), np.uint8) if out is None else out
    if frame.encoding == "bgr8":
        picture[:] = frame.image
    else:
        image = np.ascontiguousarray(frame.image)
        cv2.cvtColor(image, _CONVERSIONS[frame.encoding], dst=picture)
    return picture
