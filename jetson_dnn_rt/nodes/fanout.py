"""Hands the frames of one stream to every task that wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from jetson_dnn_rt.frames import Frame


class FrameListener(Protocol):
    """A task as a stream sees it. The methods must return at once."""

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Whether the task wants this frame; `capture_ns` is on the steady clock."""

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Take note of a frame that cannot be used."""


class Fanout:
    """Listeners of one stream; a frame is released in all of them at one instant.

    Parameters
    ----------
    submit : callable
        Takes the names of the tasks, the frame and its capture time: `Executor.submit`.

    Notes
    -----
    When `remove` has returned, the listener is not in a call and gets no other one.
    """

    def __init__(self, submit: Callable[[Sequence[str], Frame, int], None]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._listeners: dict[str, FrameListener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, name: str, listener: FrameListener) -> None:
        """Add or replace the listener of this name."""
        with self._lock:
            self._listeners[name] = listener

    def remove(self, name: str) -> None:
        """Forget a listener; nothing happens when it is not there."""
        with self._lock:
            self._listeners.pop(name, None)

    def deliver(self, frame: Frame, capture_ns: int) -> None:
        """Give a frame to all."""
        with self._lock:
            tasks = [n for n, task in self._listeners.items() if task.accept(frame, capture_ns)]
            if tasks:
                self._submit(tasks, frame, capture_ns)

    def reject(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Tell all of a frame that cannot be used."""
        with self._lock:
            for listener in self._listeners.values():
                listener.on_bad_frame(frame, capture_ns, reason)
