# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Injected time: the steady clock of the machine, and a virtual one for tests and simulation.

All waiting goes through the clock, so that nothing really sleeps on the virtual one (after trio's
mock clock).
"""

from __future__ import annotations

import heapq
import threading
import time
from contextlib import AbstractContextManager
from typing import Protocol


class Condition(AbstractContextManager[bool], Protocol):
    """The part of `threading.Condition` that the executor uses, with absolute time-outs."""

    def acquire(self, blocking: bool = True, timeout: float = -1.0) -> bool:
        """Take the lock; False when that takes longer than `timeout` seconds of real time."""

    def release(self) -> None:
        """Give the lock back."""

    def wait_until(self, time_ns: int | None) -> None:
        """Wait for a notification, at most until `time_ns` (None = without limit)."""

    def notify_all(self) -> None:
        """Wake every waiter; the lock must be held."""


class Clock(Protocol):
    """Steady nanoseconds and the two ways to wait."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary origin; never goes back."""

    def sleep_until_ns(self, time_ns: int) -> None:
        """Return when `now_ns() >= time_ns`."""

    def condition(self) -> Condition:
        """Make a condition whose time-outs are on this clock."""

    def participate(self) -> None:
        """Register a thread that is about to be started and will wait on this clock."""

    def leave(self) -> None:
        """Unregister the calling thread."""


class _SteadyCondition(threading.Condition):
    def wait_until(self, time_ns: int | None) -> None:
        timeout = None if time_ns is None else max(0.0, (time_ns - time.monotonic_ns()) * 1e-9)
        self.wait(timeout)


class SteadyClock:
    """The machine's monotonic clock."""

    # CLOCK_MONOTONIC. The function itself: it is read five times between two stages.
    now_ns = staticmethod(time.monotonic_ns)

    def sleep_until_ns(self, time_ns: int) -> None:
        """Sleep until the clock shows `time_ns`."""
        while (left := time_ns - time.monotonic_ns()) > 0:
            time.sleep(left * 1e-9)

    def condition(self) -> Condition:
        """A `threading.Condition` with absolute time-outs."""
        return _SteadyCondition()

    def participate(self) -> None:
        """Nothing to do: this clock runs by itself."""

    leave = participate


class _Waiter:
    """One thread that waits on the virtual clock; `awake` is set by time or by a notification."""

    __slots__ = ("awake", "time_ns")

    def __init__(self, time_ns: int | None) -> None:
        self.time_ns = time_ns
        self.awake = threading.Event()


class VirtualClock:
    """A clock that moves only when told to, and only when every thread on it waits.

    Threads that use the clock are *participants*: `participate` is called before one is started,
    and the thread itself calls `leave` at its end (the executor does both). `run_until` waits
    until all of them wait on the clock, then jumps to the earliest wake-up time, and so on:
    whatever the machine's load, the order of events is the order of their times.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._lock = threading.RLock()
        self._quiet = threading.Condition(self._lock)
        self._running = 0
        self._timers: list[tuple[int, int, _Waiter]] = []
        self._count = 0

    def now_ns(self) -> int:
        """Virtual nanoseconds."""
        return self._now_ns

    def participate(self) -> None:
        """Count one more thread: time stands still while it runs."""
        with self._lock:
            self._running += 1

    def leave(self) -> None:
        """Stop counting the calling thread."""
        with self._lock:
            self._running -= 1
            self._quiet.notify_all()

    def sleep_until_ns(self, time_ns: int) -> None:
        """Wait, as a participant, until `run_until` reaches `time_ns`."""
        waiter = _Waiter(time_ns)
        with self._lock:
            if time_ns <= self._now_ns:
                return
            self._suspend(waiter)
        waiter.awake.wait()

    def condition(self) -> Condition:
        """A condition whose waiting participants let the time run."""
        return _VirtualCondition(self)

    def run_until(self, time_ns: int, timeout_s: float = 10.0) -> None:
        """Move to `time_ns`, stopping at every wake-up on the way until all wait again.

        TimeoutError when a participant does not wait within `timeout_s` of real time.
        """
        with self._lock:
            while True:
                self._settle(timeout_s)
                while self._timers and self._timers[0][2].awake.is_set():
                    heapq.heappop(self._timers)
                if not self._timers or self._timers[0][0] > time_ns:
                    break
                self._now_ns = max(self._now_ns, self._timers[0][0])
                self._resume(heapq.heappop(self._timers)[2])
            self._now_ns = max(self._now_ns, time_ns)

    def settle(self, timeout_s: float = 10.0) -> None:
        """Wait until every participant waits on the clock, without moving it."""
        with self._lock:
            self._settle(timeout_s)

    def _settle(self, timeout_s: float) -> None:
        if not self._quiet.wait_for(lambda: self._running == 0, timeout_s):
            raise TimeoutError(f"{self._running} participants still run after {timeout_s} s")

    def _suspend(self, waiter: _Waiter) -> None:
        self._running -= 1
        if waiter.time_ns is not None:
            self._count += 1
            heapq.heappush(self._timers, (waiter.time_ns, self._count, waiter))
        self._quiet.notify_all()

    def _resume(self, waiter: _Waiter) -> None:
        # Counted as running from here on, not from when the thread wakes: else time could move
        # between the two.
        if not waiter.awake.is_set():
            self._running += 1
            waiter.awake.set()


class _VirtualCondition:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._mutex = threading.RLock()
        self._waiters: list[_Waiter] = []
        self.acquire, self.release = self._mutex.acquire, self._mutex.release

    def __enter__(self) -> bool:
        return self._mutex.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._mutex.release()

    def wait_until(self, time_ns: int | None) -> None:
        waiter = _Waiter(time_ns)
        with self._clock._lock:
            if time_ns is not None and time_ns <= self._clock._now_ns:
                return
            self._waiters.append(waiter)
            self._clock._suspend(waiter)
        self._mutex.release()
        waiter.awake.wait()
        self._mutex.acquire()
        with self._clock._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def notify_all(self) -> None:
        with self._clock._lock:
            for waiter in self._waiters:
                self._clock._resume(waiter)
            self._waiters.clear()
