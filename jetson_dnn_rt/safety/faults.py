# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Unexpected faults, counted by place and kind, logged once, shown in diagnostics.

A fault costs the callback or frame in which it occurred, never the process; what may end a process
is listed in `nodes.process.running`. There is one `FaultLog` for a process, `FAULTS`, because the
threads that note faults (cameras, traces, observers) cannot reach the node that reports them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

MAX_KINDS = 32
"""Kinds with a count of their own; further ones are counted together, which bounds memory."""

OTHERS = "other faults"

LONGEST_TEXT = 500
"""Characters of a fault's text that are kept."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
"""Pause before a failing thread is restarted: doubled each time, from the first to the second."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: how often it happened, its last text and when that was (steady ns)."""

    kind: str
    count: int
    text: str
    last_ns: int


def safe_text(error: BaseException, longest: int = LONGEST_TEXT) -> str:
    """Text of an exception, cut off where it is too long."""
    try:
        return str(error)[:longest]
    # A foreign __str__ may raise anything.
    except BaseException as second:
        return f"(its text cannot be read: {type(second).__name__})"


def describe_error(error: BaseException) -> str:
    """Type and text of an exception."""
    return f"{type(error).__name__}: {safe_text(error)}"


class FaultLog:
    """Counts of faults and the threads that died; every method may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._dead: dict[str, str] = {}

    def note(self, place: str, error: BaseException) -> None:
        """Count an exception by its type and `place`; log the first of a kind with its traceback.

        `place` is where it was caught, from a fixed set of names: ``subscription image_raw``.
        """
        if self._count(f"{place}: {type(error).__name__}", safe_text(error)):
            logger.error(
                "%s failed; further faults of this kind are only counted", place, exc_info=error
            )

    def note_dropped(self, place: str, reason: str) -> None:
        """Count a dropped value of another process; the first of a place is logged.

        `place` is the input, from a fixed set of names: ``topic /detector/debug/lag_ms``.
        """
        if self._count(f"{place}: dropped", reason):
            logger.warning("%s: dropped: %s; further ones are only counted", place, reason)

    def _count(self, kind: str, text: str) -> bool:
        with self._lock:
            first = kind not in self._faults
            if first and len(self._faults) >= MAX_KINDS - 1:
                kind, first = OTHERS, OTHERS not in self._faults
            before = self._faults.get(kind)
            count = 1 if before is None else before.count + 1
            self._faults[kind] = Fault(kind, count, text[:LONGEST_TEXT], time.monotonic_ns())
        return first

    def note_dead(self, thread: str, reason: str) -> None:
        """Note that a thread that is needed has ended and was not replaced."""
        with self._lock:
            self._dead[thread] = reason[:LONGEST_TEXT]

    def note_alive(self, thread: str) -> None:
        """Note that a thread runs, again or for the first time."""
        with self._lock:
            self._dead.pop(thread, None)

    @property
    def dead_threads(self) -> dict[str, str]:
        """Threads that are missing, each with the reason."""
        with self._lock:
            return dict(self._dead)

    def snapshot(self) -> tuple[Fault, ...]:
        """All kinds so far, in the order in which they came first."""
        with self._lock:
            return tuple(self._faults.values())

    def clear(self) -> None:
        """Forget everything; for tests, which share a process."""
        with self._lock:
            self._faults.clear()
            self._dead.clear()


FAULTS = FaultLog()
"""Faults of this process."""


def start_thread(
    run: Callable[[], None],
    name: str,
    *,
    wanted: Callable[[], bool] | None = None,
    on_death: Callable[[BaseException], None] = lambda error: None,
    on_end: Callable[[], None] = lambda: None,
    faults: FaultLog = FAULTS,
) -> threading.Thread:
    """Start a daemon thread whose failure is noted at once.

    With `wanted`, `run` is restarted after an exception as long as that returns true: for work
    that keeps its state outside `run`. Without it the thread is reported as dead under its name,
    and `on_death` is called on it with the exception. `on_end` is called on it in any case.
    """

    def guarded() -> None:
        pause_s = FIRST_PAUSE_S
        faults.note_alive(name)
        while True:
            started = time.monotonic()
            try:
                run()
                return
            except BaseException as error:
                faults.note(f"thread {name}", error)
                if wanted is None:
                    faults.note_dead(name, describe_error(error))
                    on_death(error)
                    return
                if time.monotonic() - started > 10 * LONGEST_PAUSE_S:
                    pause_s = FIRST_PAUSE_S
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                if not wanted():
                    return

    def run_guarded() -> None:
        try:
            guarded()
        finally:
            on_end()

    thread = threading.Thread(target=run_guarded, name=name, daemon=True)
    thread.start()
    return thread
