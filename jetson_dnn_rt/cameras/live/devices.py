# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Live sources: Video4Linux devices and GStreamer pipelines."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

import cv2

from jetson_dnn_rt.cameras.source import FrameSource, SourceOptions
from jetson_dnn_rt.cameras.stamps import StampClock
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Image
from jetson_dnn_rt.safety.utf8_paths import is_utf8, utf8_name

OLDEST_STAMP_NS = 1_000_000_000
"""A driver whose first stamp is further back than this uses another clock than CLOCK_MONOTONIC."""


def open_device(path: str, options: SourceOptions) -> LiveSource:
    """Open a Video4Linux device, or a link to it as in ``/dev/v4l/by-id``.

    SourceError when it is not there, not allowed, busy, or delivers no frame.
    """
    if not Path(path).exists():
        known = ", ".join(str(p) for p in sorted(Path("/dev").glob("video*"))) or "none"
        raise SourceError(f"camera {path} is not there (video devices: {known})")
    if not os.access(path, os.R_OK | os.W_OK):
        raise SourceError(f"camera {path} may not be opened: add the user to the group 'video'")
    with utf8_name(path) as name:
        capture = cv2.VideoCapture(name, cv2.CAP_V4L2)
    if options.width and options.height:
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, options.width)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, options.height)
    if options.rate_hz:
        capture.set(cv2.CAP_PROP_FPS, options.rate_hz)
    # Old frames are of no use: as few in the driver's queue as it allows.
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 2)
    return LiveSource(capture, f"camera {path}", "it is busy, or no capture device")


def open_pipeline(pipeline: str, options: SourceOptions) -> LiveSource:
    """Open a GStreamer pipeline that ends in ``appsink``; it sets its own size and rate.

    SourceError when OpenCV was built without GStreamer, or the pipeline does not start.
    """
    if not cv2.videoio_registry.hasBackend(cv2.CAP_GSTREAMER):
        raise SourceError(
            "this OpenCV was built without GStreamer: use the system's (apt install "
            "python3-opencv, on a Jetson the one of JetPack) instead of the one from PyPI"
        )
    if "appsink" not in pipeline:
        raise SourceError(f"GStreamer pipeline {pipeline!r} must end in '! appsink'")
    if not is_utf8(pipeline):
        raise SourceError(f"GStreamer pipeline {pipeline!r} is not UTF-8: rename what it names")
    capture = cv2.VideoCapture(pipeline, cv2.CAP_GSTREAMER)
    fix = "try it with gst-launch-1.0"
    # GStreamer counts from the pipeline's start.
    return LiveSource(capture, f"GStreamer pipeline {pipeline!r}", fix, own_clock=True)


class LiveSource(FrameSource):
    """An opened capture that sets its own pace; `name` and `fix` are for error messages.

    Video4Linux stamps with CLOCK_MONOTONIC when the frame is complete. Where the first stamp is
    not of that clock, or with `own_clock`, ages count from the best frame seen.
    """

    live = True

    def __init__(
        self, capture: cv2.VideoCapture, name: str, fix: str, *, own_clock: bool = False
    ) -> None:
        self._capture, self._name = capture, name
        if not capture.isOpened() or not capture.grab():
            capture.release()
            raise SourceError(f"{name} delivers no frame: {fix}")
        done, image = capture.retrieve()
        if not done or image.ndim != 3:
            capture.release()
            raise SourceError(f"{name} delivers no colour image: {fix}")
        self.height, self.width = image.shape[:2]
        self.rate_hz = max(0.0, float(capture.get(cv2.CAP_PROP_FPS)))
        near = 0 <= time.monotonic_ns() - self._read_stamp_ns() <= OLDEST_STAMP_NS
        self._stamps = StampClock(name, time.monotonic_ns, synchronised=near and not own_clock)

    def read(self, out: Image) -> Image:
        """Wait for the next frame, note when it was captured, decode it into `out` if it fits."""
        self.expect(out)
        if not self._capture.grab():
            raise SourceError(f"{self._name} stopped delivering frames")
        now_ns = time.monotonic_ns()
        self.capture_ns, self.doubt = self._stamps.judge(self._read_stamp_ns(), now_ns)
        done, image = self._capture.retrieve(out)
        if not done or image.ndim != 3:
            raise SourceError(f"{self._name} delivered a frame that cannot be decoded")
        self.height, self.width = image.shape[:2]
        return cast("Image", image)  # `out`, where the frame fits

    def _read_stamp_ns(self) -> int:
        """Stamp of the frame grabbed last; 0 where there is none."""
        return max(0, int(self._capture.get(cv2.CAP_PROP_POS_MSEC) * 1e6))

    def close(self) -> None:
        """Release the device."""
        self._capture.release()
