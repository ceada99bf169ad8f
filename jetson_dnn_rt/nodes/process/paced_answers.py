# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Services that only report something, answered at a bounded rate.

An answer holds the ROS thread and the interpreter's lock for half a millisecond, most of it in
rclpy: a thousand a second cost a quarter of the frames. A person or a tool sends a few dozen
requests; further ones wait for their turn, which slows down a client that calls in a loop.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from jetson_dnn_rt.nodes.process.guard import guard
from jetson_dnn_rt.safety.faults import FAULTS, start_thread

RATE_HZ, BURST = 100, 100
"""Answers of a node in a second, and at once after a pause."""

_ROUNDING = 1e-6

MOST_WAITING = 500
"""Requests that may wait; further ones get no answer."""


class PacedAnswers:
    """The answers of some services of a node; `now_s` is the steady clock, `wait` waits for it."""

    def __init__(
        self,
        node: str,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._place = f"{node}: services"
        self._name = f"answers of {node}"
        self._now_s, self._wait = now_s, wait
        self._credit, self._at_s = float(BURST), now_s()
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._is_running = False

    def pace(self, service: Any) -> None:
        """Pace a service of rclpy; within the rate it is answered on the thread that spins it.

        See `answer_late` for how an answer is sent later.
        """
        callback, send = service.callback, service.send_response
        held: list[Any] = []

        def take(request: Any, response: Any) -> Any:
            if self._spend():
                return callback(request, response)
            held.append(request)
            return response

        def answer(response: Any, header: Any) -> None:
            if not held:
                send(response, header)
                return
            request = held.pop()
            self._defer(lambda: send(callback(request, response), header))

        service.callback, service.send_response = take, answer

    def close(self) -> None:
        """Drop the waiting requests, as the node is destroyed."""
        self._closed.set()

    def _spend(self) -> bool:
        """Take one answer off the credit, unless requests wait; returns whether it was taken."""
        with self._lock:
            return not self._waiting and not self._is_running and self._take_credit() <= 0.0

    def _take_credit(self) -> float:
        """Take one answer off the credit; returns the seconds until there is one, 0 if taken."""
        now_s = self._now_s()
        self._credit = min(float(BURST), self._credit + (now_s - self._at_s) * RATE_HZ)
        self._at_s = now_s
        if self._credit < 1.0 - _ROUNDING:
            return (1.0 - self._credit) / RATE_HZ
        self._credit -= 1.0
        return 0.0

    def _defer(self, answer: Callable[[], None]) -> None:
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                reason = f"more than {MOST_WAITING} requests wait for an answer"
                FAULTS.note_dropped(self._place, reason)
                return
            self._waiting.append(answer)
            begins = not self._is_running
            self._is_running = True
        if begins:
            try:
                start_thread(self._answer_all, self._name)
            except BaseException:  # no more threads in this system
                self._is_running = False
                raise

    def _answer_all(self) -> None:
        """Answer what waits, one after the other, until nothing does."""
        # The class is inherited, and the thread that started this one may have SCHED_FIFO.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        while True:
            with self._lock:
                if not self._waiting or self._closed.is_set():
                    self._is_running = False
                    return
                left_s = self._take_credit()
                answer = self._waiting.popleft() if left_s <= 0.0 else None
            if answer is None:
                self._wait(self._closed, left_s)
            else:
                guard(answer, self._place)()
