"""A camera on a procedural drive: moving traffic without any file or device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess

from jetson_dnn_rt.cameras.source import FrameSource
from jetson_dnn_rt.demo.scenes import SceneGenerator
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.frames import Image
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command

MAX_PIXELS = 1 << 24
"""Sizes beyond 16 megapixels are refused: painting one frame would take seconds."""

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
"""Linux' limit for users; a VGA frame fits, so the next one is always ready."""


class SyntheticSource(FrameSource):
    """Frames of one `SceneGenerator` drive, `1 / rate_hz` apart in its world.

    They are painted by another process (see `renderer`), which ends when this object is closed
    or its process dies.

    Parameters
    ----------
    width, height : int
        Size in pixels, each at least 64.
    rate_hz : float
        Frames per second of the drive, > 0.
    seed : int
        Which drive.
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
            python_command("jetson_dnn_rt.cameras.live.renderer", *map(str, numbers)),
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
        # Its start takes longer than a frame: the first one is there before anybody waits for it.
        select.select([self._pipe], [], [])

    def read(self, out: Image) -> bool:
        """Take the next instant; a drive has no end."""
        self.expect(out)
        left = out.reshape(-1).data
        while left:
            count = os.readv(self._pipe, [left])
            if count == 0:
                code = self._process.wait()
                raise SourceError(f"the synthetic camera's renderer ended (exit code {code})")
            left = left[count:]
        return True

    def close(self) -> None:
        """End the renderer; a second call does nothing."""
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
