# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A low-priority thread with a short queue, for work that must never delay an inference."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from jetson_dnn_rt.safety.faults import FAULTS, Pulse, start_thread

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Calls `handle` for the newest items, one at a time, on a thread called `name`.

    An exception is counted and costs that item. While one is handled up to `slots` wait; beyond
    that the oldest are dropped. `nice` is added to the niceness of the creating thread.
    """

    def __init__(
        self, name: str, handle: Callable[[Item], None], *, slots: int = 1, nice: int = 0
    ) -> None:
        # setpriority sets, it does not add: in a process started with `nice` these threads would
        # otherwise be the most urgent ones.
        here = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        self._handle, self._nice = handle, min(19, here + nice) if nice else 0
        self._items: deque[Item] = deque(maxlen=slots)
        self._condition = threading.Condition()
        self._stopping = False
        self.dropped = 0
        self._pulse = Pulse()
        self._thread = start_thread(
            self._run, name, wanted=lambda: not self._stopping, pulse=self._pulse
        )

    def put(self, item: Item) -> None:
        """Queue an item; returns at once."""
        with self._condition:
            self.dropped += len(self._items) == self._items.maxlen
            self._items.append(item)
            self._pulse.give_work()
            self._condition.notify()

    def close(self, timeout_s: float = 1.0, *, finish: bool = False) -> None:
        """Drop the waiting items, or with `finish` handle them first, and stop the thread."""
        with self._condition:
            self._stopping = True
            if not finish:
                self._items.clear()
            self._condition.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            # A thread inherits the scheduling class of its creator, which may be real-time.
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            if self._nice:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)
        while True:
            with self._condition:
                while not self._items and not self._stopping:
                    self._pulse.rest()
                    self._condition.wait()
                if not self._items:
                    return
                self._pulse.begin()
                item = self._items.popleft()
            try:
                self._handle(item)
            except Exception as error:
                FAULTS.note(f"thread {threading.current_thread().name}", error)
            # The frame in it goes back to its pool now, not with the next item.
            del item
