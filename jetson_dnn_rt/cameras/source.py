"""The interface of frame sources."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jetson_dnn_rt.frames import Image

ENCODING = "bgr8"
"""Every source delivers OpenCV's order of colours, as in ``sensor_msgs/image_encodings``."""


class FrameSource(ABC):
    """Frames of one size, one after the other.

    Attributes
    ----------
    height, width : int
        Size of every frame in pixels.
    rate_hz : float
        Native rate; 0 when the source does not know one.
    live : bool
        True when `read` itself waits for the next frame (a device); False when the reader decides
        when the next frame is due (a file).
    capture_ns : int or None
        When the frame read last was captured, in CLOCK_MONOTONIC nanoseconds; None where the
        source has no time of its own.
    """

    height: int
    width: int
    rate_hz: float
    live: bool
    capture_ns: int | None = None

    @abstractmethod
    def read(self, out: Image) -> bool:
        """Fill `out` with the next frame.

        Parameters
        ----------
        out : ndarray of uint8, [height, width, 3], C-contiguous
            Overwritten in place, channels in the order of `ENCODING`.

        Returns
        -------
        bool
            False at the end of the stream; `out` is undefined then.

        Raises
        ------
        SourceError
            When a device stopped, or a file cannot be read any further.
        """

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Give the device or file back; `read` must not be called any more."""

    def expect(self, out: Image) -> None:
        """Raise ValueError when `out` is no buffer for this source."""
        shape = (self.height, self.width, 3)
        if out.shape != shape or not out.flags.c_contiguous:
            raise ValueError(f"out must be a C-contiguous array of shape {shape}: {out.shape}")
