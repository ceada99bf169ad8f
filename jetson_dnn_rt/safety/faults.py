# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Unexpected faults, counted by place and kind, logged once, shown in diagnostics.

A fault costs the callback or frame in which it occurred, never the process; what may end a process
is listed in `nodes.process.running`. There is one `FaultLog` for a process, `FAULTS`, because the
threads that note faults (cameras, traces, observers) cannot reach the node that reports them.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_KINDS = 32
"""Kinds with a count of their own; further ones are counted together, which bounds memory."""

OTHERS = "other faults"
UNNOTED = "faults that could not be noted"

LONGEST_TEXT = 500
"""Characters of a fault's text that are kept."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
"""Pause before a failing thread is restarted: doubled each time, from the first to the second."""


STUCK_S = 1.0
"""A step of a thread that takes longer is reported: with diagnostics once a second it is named
within two seconds."""

STUCK_ERROR_S = 10.0
"""A thread that has been at one step for longer is an error, and logged; before that a warning: a
part of a trace may take seconds to close, a slow device to be read."""

PACKAGE = __name__.partition(".")[0]


class Pulse:
    """When a thread began its present step; 0 while it waits for work.

    Set by the thread, or by whoever gives it work while it waits; read by any.
    """

    __slots__ = ("since_ns",)

    def __init__(self) -> None:
        self.since_ns = 0

    def begin(self) -> None:
        """A step begins, and the one before has ended."""
        self.since_ns = time.monotonic_ns()

    def give_work(self) -> None:
        """There is work: from now on the thread has something to do."""
        if not self.since_ns:
            self.since_ns = time.monotonic_ns()

    def rest(self) -> None:
        """The thread waits for work from now on."""
        self.since_ns = 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """A thread that does not go on: for how long, and where it is."""

    seconds: float
    place: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s in {self.place}"


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
    """Counts of faults, threads that died or do not go on; any thread may call every method."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a destructor may fail while it is held
        self._faults: dict[str, Fault] = {}
        self._dead: dict[str, str] = {}
        self._pulses: dict[str, tuple[Pulse, int]] = {}
        self.unnoted = 0
        """Exceptions whose noting failed as well: at least so many, for nothing guards it."""

    def note(self, place: str, error: BaseException) -> None:
        """Count an exception by its type and `place`; log the first of a kind with its traceback.

        `place` is where it was caught, from a fixed set of names: ``subscription image_raw``.
        Never raises an `Exception`: who calls it is handling one, and often the last to do so.
        """
        try:
            if self._count(f"{place}: {type(error).__name__}", safe_text(error)):
                logger.error(
                    "%s failed; further faults of this kind are only counted",
                    place,
                    exc_info=error,
                )
        except Exception as second:  # without memory nothing can be logged, but this is said
            try:
                self._count(f"{place}: {type(second).__name__}", safe_text(second))
            except Exception:
                self.unnoted += 1

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
        self._dead.pop(thread, None)  # no lock: a thread that hangs here must not hold it

    def watch(self, thread: str, pulse: Pulse, ident: int) -> None:
        """Report a thread, by this name, while a step of it takes too long; 0 = it is to start."""
        with self._lock:
            self._pulses[thread] = pulse, ident

    def unwatch(self, thread: str, pulse: Pulse) -> None:
        """The thread ends; another one of its name may be watched already."""
        with self._lock:
            if thread in self._pulses and self._pulses[thread][0] is pulse:
                del self._pulses[thread]

    @property
    def stuck_threads(self) -> dict[str, Stuck]:
        """Threads that have been at one step for `STUCK_S` or longer, the longest first."""
        now_ns, found = time.monotonic_ns(), []
        with self._lock:
            for thread, (pulse, ident) in self._pulses.items():
                since_ns = pulse.since_ns
                if since_ns and now_ns - since_ns >= STUCK_S * 1e9:
                    found.append(((now_ns - since_ns) / 1e9, thread, ident))
        if not found:
            return {}
        frames = sys._current_frames()
        return {
            thread: Stuck(seconds, find_place(frames.get(ident)))
            for seconds, thread, ident in sorted(found, reverse=True)
        }

    @property
    def dead_threads(self) -> dict[str, str]:
        """Threads that are missing, each with the reason."""
        with self._lock:
            return dict(self._dead)

    def snapshot(self) -> tuple[Fault, ...]:
        """All kinds so far, in the order in which they came first."""
        with self._lock:
            before = self._faults.get(UNNOTED)
            if self.unnoted and (before is None or before.count != self.unnoted):
                text = "noting failed as well, for want of memory perhaps"
                self._faults[UNNOTED] = Fault(UNNOTED, self.unnoted, text, time.monotonic_ns())
            return tuple(self._faults.values())

    def clear(self) -> None:
        """Forget everything; for tests, which share a process."""
        with self._lock:
            self._faults.clear()
            self._dead.clear()
            self.unnoted = 0


def find_place(frame: FrameType | None) -> str:
    """Line of the package that a frame is in, or was called from: ``runtime/task.py:31 load``."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == PACKAGE:
            path = module.partition(".")[2].replace(".", "/")
            return f"{path}.py:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "code of another package"


FAULTS = FaultLog()
"""Faults of this process."""


def note_destructors() -> None:
    """Note what destructors raise, in this process, which Python only prints."""

    def note(args: sys.UnraisableHookArgs) -> None:
        try:
            FAULTS.note("a destructor", args.exc_value or args.exc_type())
        except BaseException:
            FAULTS.unnoted += 1

    sys.unraisablehook = note


def _try(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Call what may fail where nobody is left to handle it; None then."""
    try:
        return call(*args, **kwargs)
    except BaseException as error:
        try:
            FAULTS.note("handling of a thread's fault", error)
        except BaseException:
            FAULTS.unnoted += 1
        return None


def start_thread(
    run: Callable[[], None],
    name: str,
    *,
    wanted: Callable[[], bool] | None = None,
    on_death: Callable[[BaseException], None] = lambda error: None,
    on_end: Callable[[], None] = lambda: None,
    pulse: Pulse | None = None,
    faults: FaultLog = FAULTS,
) -> threading.Thread:
    """Start a daemon thread whose failure is noted at once.

    With `wanted`, `run` is restarted after an exception as long as that returns true: for work
    that keeps its state outside `run`. Without it the thread is reported as dead under its name,
    and `on_death` is called on it with the exception. `on_end` is called on it in any case. With
    `pulse`, which `run` keeps, it is reported while a step takes too long.
    """

    def run_once() -> BaseException | None:
        try:
            faults.note_alive(name)
            if pulse is not None:
                pulse.begin()
                faults.watch(name, pulse, threading.get_ident())
            run()
        except BaseException as error:
            return error
        finally:
            if pulse is not None:
                pulse.rest()
        return None

    def guarded() -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            started = _try(time.monotonic) or 0.0
            error = run_once()
            if error is None:
                return
            # Whatever fails here, in want of memory say, nobody else would tell, or go on.
            _try(faults.note, f"thread {name}", error)
            if wanted is None:
                _try(
                    faults.note_dead, name, _try(describe_error, error) or "it cannot be told why"
                )
                _try(on_death, error)
                return
            if (_try(time.monotonic) or 0.0) - started > 10 * LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            _try(time.sleep, pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if _try(wanted) is False:
                return

    def run_guarded() -> None:
        again = True
        while again:
            try:
                guarded()
                again = False
            except BaseException as error:  # of the handling itself
                again = wanted is not None
                try:
                    faults.note(f"thread {name}", error)
                except BaseException:
                    faults.unnoted += 1  # the thread goes on
        try:
            try:
                if pulse is not None:
                    faults.unwatch(name, pulse)
            finally:
                on_end()
        except BaseException as error:
            try:
                faults.note(f"end of thread {name}", error)
            except BaseException:
                faults.unnoted += 1

    thread = threading.Thread(target=run_guarded, name=name, daemon=True)
    if pulse is not None:
        # From here on: a thread that does not even begin is reported, too.
        pulse.begin()
        faults.watch(name, pulse, 0)
    try:
        thread.start()
    except BaseException:
        if pulse is not None:
            pulse.rest()
            faults.unwatch(name, pulse)
        raise
    return thread
