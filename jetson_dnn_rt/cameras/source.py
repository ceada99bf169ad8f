# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frame sources: their interface, and how they are opened by name.

A new source is one module with a function from its place and `SourceOptions` to a `FrameSource`,
one line in `jetson_dnn_rt.config.camera_sources` and one test.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from jetson_dnn_rt.config.camera_sources import ANY_SOURCE, CAMERA_SOURCES, IMAGE_SUFFIXES
from jetson_dnn_rt.config.suggestions import find_similar
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Image

ENCODING = "bgr8"
"""Every source delivers OpenCV's channel order, as in ``sensor_msgs/image_encodings``."""


@dataclass(frozen=True)
class SourceOptions:
    """Parameters of a camera that its source may use."""

    loop: bool = False  # restart a video or folder at its end; the synthetic drive has none
    width: int = 0  # pixels, asked of a device or the synthetic camera; 0 = its own
    height: int = 0
    rate_hz: float = 0.0  # asked of a device, 0 = its own; speed of the synthetic world
    seed: int = 1  # which drive the synthetic camera shows, >= 0


class FrameSource(ABC):
    """Frames one after the other, usually all of one size."""

    # Size that the next frame is expected to have; before the first one, that of the first.
    height: int
    width: int
    # Native rate; 0 when the source has none.
    rate_hz: float
    # True when `read` itself waits for the next frame (a device); False when the reader decides
    # when the next frame is due (a file).
    live: bool
    # When the frame read last was captured, in CLOCK_MONOTONIC nanoseconds; None where the source
    # has no time of its own.
    capture_ns: int | None = None
    # Why that is not to be relied on, as `Frame.doubt`.
    doubt: str = ""
    # Name of the file that was read last, where each frame is a file of its own.
    file: str = ""
    # Pictures that could not be decoded and were passed over.
    unreadable: int = 0

    @abstractmethod
    def read(self, out: Image) -> Image | None:
        """Overwrite `out` with the next frame and return it; None at the end.

        `out` is uint8 [height, width, 3], C-contiguous, channels in the order of `ENCODING`. A
        frame of another size is returned in an array of its own; `out` is undefined then, as it
        is at the end. SourceError when a device stopped, or a file cannot be read any further.
        """

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Release the device or file; `read` must not be called afterwards."""

    def expect(self, out: Image) -> None:
        """Raise ValueError when `out` does not fit this source."""
        shape = (self.height, self.width, 3)
        if out.shape != shape or not out.flags.c_contiguous:
            raise ValueError(f"out must be a C-contiguous array of shape {shape}: {out.shape}")


def open_source(name: str, options: SourceOptions = SourceOptions()) -> FrameSource:
    """Open a source of `CAMERA_SOURCES`, such as ``video:PATH`` or ``device:/dev/videoN``.

    SourceError when the source does not exist; the message has the fix.
    """
    scheme, place = split_source(name)
    module, _, function = CAMERA_SOURCES[scheme][1].partition(":")
    opener = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    source: FrameSource = opener(place, options)
    return source


def split_source(name: str) -> tuple[str, str]:
    """Scheme and place of a source's name; SourceError when it has another form."""
    scheme, _, place = name.partition(":")
    if scheme not in CAMERA_SOURCES:
        raise SourceError(f"unknown source {name!r}: give {ANY_SOURCE}{_guess(name)}")
    if not place and not CAMERA_SOURCES[scheme][0].startswith(f"{scheme}["):
        raise SourceError(f"source {name!r} names nothing after '{scheme}:'")
    return scheme, place


def _guess(name: str) -> str:
    """What a name without a known scheme was probably meant to be."""
    scheme, colon, place = name.partition(":")
    path = Path(name).expanduser()
    if scheme == "bag":
        return f"; a bag is evaluated: jetson-dnn-rt evaluate {place}"
    if name.startswith("/dev/video"):
        meant = f"device:{name}"
    elif name.isdecimal():
        meant = f"device:/dev/video{name}"
    elif "://" in name:
        if scheme == "file":
            return f"; did you mean video:{place.removeprefix('//')}?"
        # Of a stream that falls behind only the newest frame counts.
        sink = "appsink drop=true max-buffers=1"
        return f"; did you mean 'gstreamer:uridecodebin uri={name} ! videoconvert ! {sink}'?"
    elif path.is_dir():
        meant = f"images:{name}"
    elif path.suffix.lower() in IMAGE_SUFFIXES:
        meant = f"images:{path.parent}"
    elif path.is_file() or (path.suffix and not colon):
        meant = f"video:{name}"
    elif similar := find_similar(scheme, CAMERA_SOURCES):
        meant = f"{similar}{colon}{place}"
    else:
        return ""
    return f"; did you mean {meant}?"
