"""Hands the frames of one stream to every task that wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.faults import FAULTS

NOT_ACCEPTED = "the task's listener failed"
NOT_RELEASED = "the frame could not be released"


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
    When `remove` has returned, the listener is not in a call and gets no other one. A listener
    that raises loses that frame, as a bad one; the others get it.
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
            tasks = []
            for name, listener in self._listeners.items():
                try:
                    if listener.accept(frame, capture_ns):
                        tasks.append(name)
                except Exception as error:
                    FAULTS.note(f"task {name}: listener", error)
                    self._reject(name, frame, capture_ns, NOT_ACCEPTED)
            if not tasks:
                return
            try:
                self._submit(tasks, frame, capture_ns)
            except Exception as error:
                FAULTS.note("release of a frame", error)
                for name in tasks:
                    self._reject(name, frame, capture_ns, NOT_RELEASED)

    def reject(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Tell all of a frame that cannot be used."""
        with self._lock:
            for name in self._listeners:
                self._reject(name, frame, capture_ns, reason)

    def _reject(self, name: str, frame: Frame, capture_ns: int, reason: str) -> None:
        try:
            self._listeners[name].on_bad_frame(frame, capture_ns, reason)
        except Exception as error:
            FAULTS.note(f"task {name}: listener", error)
