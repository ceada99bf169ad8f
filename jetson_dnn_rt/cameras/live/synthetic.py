# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A camera on a procedural drive: moving traffic without any file or device.

The drive is painted by a process of its own. A frame takes 7 ms of Python at 640x480; in the
process of the tasks that would hold the interpreter's lock just when the previous frame is
processed (measured: 1.2 ms more from release to start). A real camera does not do that either.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys

import numpy as np

from jetson_dnn_rt.cameras.source import FrameSource, SourceOptions
from jetson_dnn_rt.demo.scenes import SceneGenerator
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Image
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command

MAX_PIXELS = 1 << 24
"""Sizes beyond 16 megapixels are refused: painting one frame would take seconds."""

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
"""Linux' limit for users; a VGA frame fits, so the next one is always ready."""


def open_source(place: str, options: SourceOptions) -> SyntheticSource:
    """Start a drive, 640x480 at 30 Hz unless `place` (``WxH``) or the options say otherwise."""
    width, height = options.width or 640, options.height or 480
    if place:
        columns, cross, rows = place.partition("x")
        if not (cross and columns.isdecimal() and rows.isdecimal()):
            raise SourceError(f"source 'synthetic:{place}': the size is written as 640x480")
        width, height = int(columns) or 640, int(rows) or 480
    return SyntheticSource(width, height, options.rate_hz or 30.0, options.seed)


class SyntheticSource(FrameSource):
    """Frames of one `SceneGenerator` drive, `1 / rate_hz` apart in its world.

    The painting process ends when this object is closed or its own process dies.
    """

    live = False

    def __init__(self, width: int, height: int, rate_hz: float, seed: int) -> None:
        name = f"synthetic:{width}x{height}"
        if width * height > MAX_PIXELS:
            raise SourceError(f"{name} is too large: at most {MAX_PIXELS} pixels")
        try:
            SceneGenerator(seed, (height, width))
        except ValueError as error:
            raise SourceError(f"{name}: {error}") from error
        self.width, self.height, self.rate_hz = width, height, rate_hz
        numbers = (width, height, round(1e9 / rate_hz), seed)
        self._process = subprocess.Popen(
            python_command(__name__, *map(str, numbers)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            bufsize=0,
            # Ctrl-C reaches every process of a terminal's group; this one ends with its reader.
            start_new_session=True,
            cwd=CHILD_FOLDER,
            env=child_environment(),
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe, F_SETPIPE_SZ, PIPE_BYTES)
        # Its start takes longer than a frame: the first one is ready before it is asked for.
        select.select([self._pipe], [], [])

    def read(self, out: Image) -> Image:
        """Read the frame of the next instant; a drive has no end."""
        self.expect(out)
        left = out.reshape(-1).data
        while left:
            count = os.readv(self._pipe, [left])
            if count == 0:
                code = self._process.wait()
                raise SourceError(f"the synthetic camera's renderer ended (exit code {code})")
            left = left[count:]
        return out

    def close(self) -> None:
        """End the renderer; a second call does nothing."""
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


def render(width: int, height: int, step_ns: int, seed: int) -> None:
    """Write raw frames to standard output, back to back, until the reader is gone."""
    os.nice(10)
    drive = SceneGenerator(seed, (height, width))
    frame = np.zeros((height, width, 3), np.uint8)
    t_ns = 0
    with contextlib.suppress(BrokenPipeError):
        while True:
            drive.render(t_ns, frame)
            left = frame.reshape(-1).data
            while left:
                left = left[os.write(sys.stdout.fileno(), left) :]
            t_ns += step_ns


if __name__ == "__main__":
    render(*map(int, sys.argv[1:]))
