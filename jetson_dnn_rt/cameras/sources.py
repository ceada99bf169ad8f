"""Frame sources by their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jetson_dnn_rt.cameras.source import FrameSource
from jetson_dnn_rt.errors import SourceError


def open_source(
    name: str,
    *,
    loop: bool = False,
    width: int = 0,
    height: int = 0,
    rate_hz: float = 0.0,
    seed: int = 1,
) -> FrameSource:
    """Open a source by its name.

    Parameters
    ----------
    name : str
        ``synthetic[:WxH]``, ``video:PATH``, ``images:DIR``, ``device:/dev/videoN`` or
        ``gstreamer:PIPELINE`` (the pipeline ends in ``appsink``).
    loop : bool
        Start a video or a folder anew at its end; the synthetic drive has none.
    width, height : int
        Size asked of a device or of the synthetic camera, pixels; 0 = its own. Files keep theirs.
    rate_hz : float
        Rate asked of a device; 0 = its own. Decides how fast the synthetic world moves.
    seed : int
        Which drive the synthetic camera shows, >= 0.

    Raises
    ------
    SourceError
        When there is no such source; the message says what would help.
    """
    kind, _, rest = name.partition(":")
    size = (width, height)
    openers: dict[str, Callable[[], FrameSource]] = {
        "synthetic": lambda: _open_synthetic(rest, size, rate_hz, seed),
        "video": lambda: _open_video(rest, loop),
        "images": lambda: _open_images(rest, loop),
        "device": lambda: _open_device(rest, size, rate_hz),
        "gstreamer": lambda: _open_pipeline(rest),
    }
    if kind not in openers:
        raise SourceError(
            f"unknown source {name!r}: give synthetic[:WxH], video:PATH, images:DIR, "
            "device:/dev/videoN or gstreamer:PIPELINE"
        )
    if kind != "synthetic" and not rest:
        raise SourceError(f"source {name!r} names nothing after '{kind}:'")
    return openers[kind]()


def _open_synthetic(rest: str, size: tuple[int, int], rate_hz: float, seed: int) -> FrameSource:
    from jetson_dnn_rt.cameras.live.synthetic import SyntheticSource

    if rest:
        width, cross, height = rest.partition("x")
        if not (cross and width.isdecimal() and height.isdecimal()):
            raise SourceError(f"source 'synthetic:{rest}': the size is written as 640x480")
        size = (int(width), int(height))
    return SyntheticSource(size[0] or 640, size[1] or 480, rate_hz or 30.0, seed)


def _open_video(rest: str, loop: bool) -> FrameSource:
    from jetson_dnn_rt.cameras.files import VideoSource

    return VideoSource(Path(rest).expanduser(), loop)


def _open_images(rest: str, loop: bool) -> FrameSource:
    from jetson_dnn_rt.cameras.files import ImagesSource

    return ImagesSource(Path(rest).expanduser(), loop)


def _open_device(rest: str, size: tuple[int, int], rate_hz: float) -> FrameSource:
    from jetson_dnn_rt.cameras.live.devices import open_device

    return open_device(rest, size, rate_hz)


def _open_pipeline(rest: str) -> FrameSource:
    from jetson_dnn_rt.cameras.live.devices import open_pipeline

    return open_pipeline(rest)
