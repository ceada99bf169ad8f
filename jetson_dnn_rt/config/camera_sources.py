# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sources of a camera's frames: the table of the values of the parameter ``source``."""

from __future__ import annotations

CAMERA_SOURCES = {
    "synthetic": ("synthetic[:WxH]", "live.synthetic:open_source"),
    "video": ("video:PATH", "files:VideoSource"),
    "images": ("images:DIR", "files:ImagesSource"),
    "device": ("device:/dev/videoN", "live.devices:open_device"),
    "gstreamer": ("gstreamer:PIPELINE", "live.devices:open_pipeline"),
}
"""By the scheme of a name: how the name is written, and ``module:function`` below
`jetson_dnn_rt.cameras`, which is imported on use. The parts of a form in brackets are optional."""

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Of the files of a folder that are taken for images."""

SOURCE_FORMS = [form for form, _ in CAMERA_SOURCES.values()]
ANY_SOURCE = f"{', '.join(SOURCE_FORMS[:-1])} or {SOURCE_FORMS[-1]}"
"""All forms in a sentence, for descriptions and messages."""
