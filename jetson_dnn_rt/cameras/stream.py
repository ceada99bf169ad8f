"""The frames of a source as an iterator, at the source's rate."""

from __future__ import annotations

from collections.abc import Iterator
from queue import SimpleQueue

from jetson_dnn_rt.cameras.camera import Camera
from jetson_dnn_rt.cameras.sources import open_source
from jetson_dnn_rt.frames import Frame


def open_camera(source: str, *, rate_hz: float = 0.0, limit: int | None = None) -> Iterator[Frame]:
    """Read a source on a thread of its own and yield each frame when it is due.

    Frames wait where the caller is slower than they come. Their stamps are on the steady clock.

    Parameters
    ----------
    source : str
        As `open_source` has it: ``video:PATH``, ``device:/dev/video0``, ...
    rate_hz : float
        Rate of the frames; 0 = the source's own.
    limit : int, optional
        End after so many frames.

    Raises
    ------
    SourceError
        When there is no such source.
    """
    frames: SimpleQueue[Frame | None] = SimpleQueue()
    camera = Camera(
        lambda: open_source(source, rate_hz=rate_hz),
        lambda frame, capture_ns: frames.put(frame),
        rate_hz=rate_hz,
        limit=limit,
        on_end=lambda: frames.put(None),
    )
    camera.start()
    try:
        while (frame := frames.get()) is not None:
            yield frame
    finally:
        camera.close()
