"""One camera frame, and a pool that lends its buffers without allocating per frame."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Frame:
    """A frame and where it came from.

    Attributes
    ----------
    image : ndarray of uint8, [H, W, C] or [H, W]
        A view of the source's buffer: nobody writes to it, and rows may be padded (strided).
    encoding : str
        Name as in ``sensor_msgs/image_encodings``: ``bgr8``, ``rgb8``, ``mono8``, ...
    stamp_ns : int
        Capture time as stamped by the source, in the source's clock.
    sequence : int
        Counts the frames of one source from 0.
    frame_id : str
        Coordinate frame of the camera, copied to every result.
    owner : object
        Whatever has to stay alive as long as ``image`` is in use (the message, the pool's loan).
    """

    image: Image
    encoding: str
    stamp_ns: int
    sequence: int
    frame_id: str = ""
    owner: object = None

    @property
    def height(self) -> int:
        """Rows of the image in pixels."""
        return int(self.image.shape[0])

    @property
    def width(self) -> int:
        """Columns of the image in pixels."""
        return int(self.image.shape[1])


@dataclass(slots=True, eq=False)
class Loan:
    """A borrowed buffer; it goes back to its pool when the last reference to the loan is gone."""

    buffer: Image
    _give_back: Callable[[Image], None] = field(repr=False)

    def __del__(self) -> None:
        self._give_back(self.buffer)


class FramePool:
    """Buffers of one shape, lent to frames and taken back by reference count.

    A job that waits holds its frame, so the number of buffers in use is bounded by the number of
    tasks times two (one running, one waiting) plus the one being filled. The pool grows when it
    is too small and never shrinks: after the first frames nothing is allocated any more.

    Parameters
    ----------
    shape : tuple of int
        Shape of each buffer, uint8.
    size : int
        Buffers allocated beforehand.
    """

    def __init__(self, shape: tuple[int, ...], size: int = 4) -> None:
        self._shape = shape
        self._free: list[Image] = [np.zeros(shape, np.uint8) for _ in range(size)]
        self._lock = threading.Lock()
        self.allocated = size

    def borrow(self) -> Loan:
        """Lend a buffer; its content is whatever the last user left."""
        with self._lock:
            if self._free:
                return Loan(self._free.pop(), self._free.append)
            self.allocated += 1
        return Loan(np.zeros(self._shape, np.uint8), self._free.append)
