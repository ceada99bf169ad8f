"""Streams of threads, one for each deadline class, and streams that nobody else is given."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")

POOL_SIZE = 32
"""Streams of one priority that torch has on a device."""


class ThreadStreams(Generic[S]):
    """The calling thread's streams, made at their first use and kept as long as the thread lives.

    Parameters
    ----------
    make : callable
        From an urgency, >= 0, to a stream: the higher, the earlier the device takes up its work.
    """

    def __init__(self, make: Callable[[int], S]) -> None:
        self._make = make
        self._local = threading.local()

    def get(self, urgency: int) -> S:
        """The calling thread's stream of a deadline class."""
        streams: dict[int, S] = self._local.__dict__.setdefault("streams", {})
        stream = streams.get(urgency)
        if stream is None:
            stream = streams[urgency] = self._make(urgency)
        return stream


class StreamPool(Generic[S]):
    """Streams of a library that hands out the same few in turn, as torch does with 32.

    Two who were given the same one would wait for each other, and work that is queued on a stream
    while another thread captures a graph on it would break both. So streams that must not be
    shared are reserved, and nobody else is given them while they live.

    Parameters
    ----------
    make : callable
        From a priority to the next stream; they must allow weak references.
    handle : callable
        From a stream to what it is in CUDA.
    """

    def __init__(self, make: Callable[[int], S], handle: Callable[[S], int]) -> None:
        self._make, self._handle = make, handle
        self._reserved: set[int] = set()
        self._lock = threading.Lock()

    def take(self, priority: int, *, reserve: bool) -> S:
        """A stream that nobody has reserved; where there is none, one that somebody has."""
        with self._lock:
            for _ in range(POOL_SIZE):
                stream = self._make(priority)
                handle = self._handle(stream)
                if handle not in self._reserved:
                    break
            if reserve and handle not in self._reserved:
                self._reserved.add(handle)
                weakref.finalize(stream, self._reserved.discard, handle)
            return stream
