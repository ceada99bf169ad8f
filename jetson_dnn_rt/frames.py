# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One camera frame, and a pool that lends its buffers without allocating per frame."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]

_WITH_CHROMA_BELOW = frozenset(("nv12", "nv21"))
"""Encodings with chroma rows, half as many as the picture's, below the rows of the picture."""


@dataclass(slots=True, eq=False)
class Frame:
    """A frame and where it came from."""

    # uint8, [H, W, C] or [H, W]; [H * 3 / 2, W] for nv12 and nv21. A view of the source's buffer:
    # it is never written to, and rows may be padded (strided).
    image: Image
    # As in sensor_msgs/image_encodings: bgr8, rgb8, mono8, nv12, ...; `models.input.encodings`
    # has the layout of each in `image`.
    encoding: str
    stamp_ns: int  # capture time as stamped by the source, in the source's clock
    sequence: int  # counts the frames of one source from 0
    frame_id: str = ""  # coordinate frame of the camera, copied to every result
    owner: object = None  # has to stay alive as long as `image` is used: the message, a loan
    copied_bytes: int = 0  # between message and `image`: 0 for a view, else the picture's size
    file: str = ""  # name of the photo that it was read from, where it was one
    device_address: int = 0  # of the first pixel, in page-locked memory, for CUDA; 0 = none
    doubt: str = ""  # why its capture time is not to be relied on: it is skipped with a `max_age`

    @property
    def height(self) -> int:
        """Rows of the picture in pixels."""
        rows = int(self.image.shape[0])
        return rows * 2 // 3 if self.encoding in _WITH_CHROMA_BELOW else rows

    @property
    def width(self) -> int:
        """Columns of the picture in pixels."""
        return int(self.image.shape[1])

    @property
    def kept_bytes(self) -> int:
        """Size of the buffer that `image` keeps alive: all of it, where it is a view of a part."""
        try:
            return max(self.image.nbytes, memoryview(find_owner(self.image)).nbytes)
        except (TypeError, ValueError):  # memory of a device, of unknown size
            return self.image.nbytes


@dataclass(slots=True, eq=False)
class Loan:
    """A borrowed buffer; it goes back to its pool when the last reference to the loan is gone."""

    buffer: Image
    device_address: int
    _whole: Image = field(repr=False)  # of which `buffer` is the beginning
    _give_back: Callable[[tuple[Image, int]], None] = field(repr=False)

    def __del__(self) -> None:
        self._give_back((self._whole, self.device_address))


Allocate = Callable[[tuple[int, ...]], tuple[Image, int]]
"""Allocates uint8 memory of a shape; the address is that for a CUDA device, 0 = none."""


def allocate_pageable(shape: tuple[int, ...]) -> tuple[Image, int]:
    """Allocate host memory that no device can reach.

    It is an `array.array`, which a ROS message takes as its data: a picture that fills it can be
    published without a copy.
    """
    data = array("B", bytes(math.prod(shape)))
    return np.frombuffer(data, np.uint8).reshape(shape), 0


def find_owner(image: Any) -> Any:
    """Find the object whose memory an array is a view of: the array itself if it has its own."""
    buffer = image
    while isinstance(buffer, (np.ndarray, memoryview)):
        owner = buffer.base if isinstance(buffer, np.ndarray) else buffer.obj
        if owner is None:
            break
        buffer = owner
    return buffer


class FramePool:
    """Buffers lent to frames of any size and taken back by reference count.

    A job that waits holds its frame, so the number of buffers in use is bounded by the number of
    tasks times two (one running, one waiting) plus the one being filled, and those that wait for
    the observers (`Delivery` bounds them). `size` of `shape` are allocated beforehand. The pool
    grows when it is too small and never shrinks: after the first frames nothing is allocated any
    more, until observers are held up for longer than ever before. A buffer is lent for any frame
    that it holds; where all that are free are too small, one makes room for a larger. So the
    memory is bounded by the largest frame times the buffers in use at once, however many sizes
    there are. `allocated` and `allocated_bytes` are all buffers, lent and free.
    """

    def __init__(
        self, shape: tuple[int, ...], size: int = 4, allocate: Allocate = allocate_pageable
    ) -> None:
        self._shape, self._allocate = shape, allocate
        self._free = [allocate(shape) for _ in range(size)]
        self._lock = threading.Lock()
        self.allocated = size
        self.allocated_bytes = sum(image.nbytes for image, _ in self._free)

    def borrow(self, shape: tuple[int, ...] | None = None) -> Loan:
        """Lend a buffer of a shape, or of the pool's; its content is what the last user left."""
        shape = self._shape if shape is None else shape
        found = self._take(math.prod(shape))
        whole, address = self._allocate(shape) if found is None else found
        if found is None:
            self.allocated_bytes += whole.nbytes
        buffer = whole
        if whole.shape != shape:
            buffer = whole.reshape(-1)[: math.prod(shape)].reshape(shape)
        return Loan(buffer, address, whole, self._free.append)

    def _take(self, wanted: int) -> tuple[Image, int] | None:
        """Take the smallest free buffer that has `wanted` bytes; None = one is to be allocated."""
        with self._lock:
            if self._free and self._free[-1][0].nbytes == wanted:
                return self._free.pop()
            # Loans that end meanwhile append to the list, and shift nothing in it.
            free = [(image.nbytes, -place) for place, (image, _) in enumerate(self._free)]
            if not free:
                self.allocated += 1
                return None
            fitting = [one for one in free if one[0] >= wanted]
            if fitting:
                return self._free.pop(-min(fitting)[1])
            self.allocated_bytes -= self._free.pop(-min(free)[1])[0].nbytes
            return None
