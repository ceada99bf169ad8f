# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Counts of faults stay bounded, and no thread dies unnoticed."""

from __future__ import annotations

import logging
import sys
import threading
import time

import pytest

from jetson_dnn_rt.safety.faults import (
    FAULTS,
    MAX_KINDS,
    OTHERS,
    UNNOTED,
    FaultLog,
    Pulse,
    note_destructors,
    safe_text,
    start_thread,
)
from jetson_dnn_rt.safety.stuck_log import StuckLog


def test_a_kind_is_logged_once_and_counted_each_time(caplog):
    faults = FaultLog()
    with caplog.at_level(logging.ERROR):
        for number in range(5):
            faults.note("timer report", ValueError(f"number {number}"))
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count, fault.text) == ("timer report: ValueError", 5, "number 4")
    assert len(caplog.records) == 1


def test_dropped_values_are_counted_by_their_input(caplog):
    faults = FaultLog()
    with caplog.at_level(logging.WARNING):
        faults.note_dropped("topic lag_ms", "nan")
        faults.note_dropped("topic lag_ms", "inf")
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count, fault.text) == ("topic lag_ms: dropped", 2, "inf")
    assert len(caplog.records) == 1


def test_kinds_are_bounded():
    faults = FaultLog()
    for number in range(1000):
        faults.note(f"place {number}", ValueError("x" * 10_000))
    found = faults.snapshot()
    assert len(found) == MAX_KINDS
    assert sum(fault.count for fault in found) == 1000
    assert found[-1].kind == OTHERS
    assert all(len(fault.text) <= 500 for fault in found)


class UnprintableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self):
        raise SystemExit("no text")


def test_an_error_without_a_text_is_counted_like_any_other():
    """EDGES 8: the fault log itself raised, and with it what was to survive the fault."""
    faults = FaultLog()
    faults.note("timer report", UnprintableError())
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count) == ("timer report: UnprintableError", 1)
    assert "SystemExit" in fault.text
    assert len(safe_text(ValueError("x" * 5_000_000))) == 500


@pytest.mark.parametrize("error", [OSError("no device"), UnprintableError()])
def test_a_thread_that_fails_is_reported_as_dead(error):
    """EDGES 8: one that died of an error without a text was not reported."""
    faults, died = FaultLog(), []

    def run():
        raise error

    start_thread(run, "worker", on_death=died.append, faults=faults).join(5.0)
    assert list(faults.dead_threads) == ["worker"]
    (fault,) = faults.snapshot()
    assert fault.kind == f"thread worker: {type(error).__name__}"
    assert died == [error]
    start_thread(lambda: None, "worker", faults=faults).join(5.0)
    assert not faults.dead_threads


@pytest.mark.parametrize("error", [OSError("a device that comes back"), UnprintableError()])
def test_a_thread_that_is_wanted_goes_on_after_a_fault(error):
    """EDGES 8: after an error without a text it ended."""
    faults, runs = FaultLog(), []

    def run():
        runs.append(None)
        if len(runs) < 3:
            raise error

    start_thread(run, "camera", wanted=lambda: True, faults=faults).join(5.0)
    assert len(runs) == 3
    assert [fault.count for fault in faults.snapshot()] == [2]
    assert not faults.dead_threads


def test_a_thread_that_is_not_wanted_any_more_ends():
    faults = FaultLog()
    thread = start_thread(lambda: 1 / 0, "camera", wanted=lambda: False, faults=faults)
    thread.join(5.0)
    assert not thread.is_alive()
    assert not faults.dead_threads


def test_noting_a_fault_never_raises(monkeypatch):
    """Campaign of faults: without memory the log raised, and with it what survived the fault."""
    faults = FaultLog()

    def log(*args, **kwargs):
        raise MemoryError("no memory for a traceback")

    monkeypatch.setattr("jetson_dnn_rt.safety.faults.logger.error", log)
    faults.note("timer report", ValueError("why"))
    kinds = [(fault.kind, fault.text) for fault in faults.snapshot()]
    assert kinds == [
        ("timer report: ValueError", "why"),
        ("timer report: MemoryError", "no memory for a traceback"),
    ]


def test_a_fault_that_cannot_be_noted_is_counted(monkeypatch):
    """Campaign of faults: where noting failed twice, nobody was told."""
    faults = FaultLog()

    def fail(*args):
        raise MemoryError("no memory for a count")

    with monkeypatch.context() as without_memory:
        without_memory.setattr(faults, "_count", fail)
        for _ in range(3):
            faults.note("timer report", ValueError("why"))
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count) == (UNNOTED, 3)
    assert faults.snapshot() == (fault,)  # when it was last is known
    faults.note("timer report", ValueError("why"))
    assert [(fault.kind, fault.count) for fault in faults.snapshot()] == [
        (UNNOTED, 3),
        ("timer report: ValueError", 1),
    ]


@pytest.mark.parametrize("broken", ["note", "wanted", "note_alive"])
def test_a_thread_goes_on_though_handling_its_fault_fails(monkeypatch, broken):
    """Campaign of faults: the thread ended, and nobody had noted it."""
    faults, runs, failures = FaultLog(), [], [MemoryError("no memory")]

    def fail(*args):
        if failures:
            raise failures.pop()
        return True

    if broken != "wanted":
        monkeypatch.setattr(faults, broken, fail)

    def run():
        runs.append(None)
        if len(runs) < 3:
            raise OSError("a device that comes back")

    wanted = fail if broken == "wanted" else lambda: True
    start_thread(run, "camera", wanted=wanted, faults=faults).join(5.0)
    assert len(runs) == 3
    assert not failures


def test_a_thread_that_does_not_go_on_is_named(monkeypatch):
    """Campaign of faults: a hang of a thread that reads no frames was told after 5 s or never."""
    monkeypatch.setattr("jetson_dnn_rt.safety.faults.STUCK_S", 0.0)
    faults, pulse = FaultLog(), Pulse()
    entered, let_go = threading.Event(), threading.Event()

    def run():
        entered.set()
        let_go.wait(60.0)

    thread = start_thread(run, "clocks", pulse=pulse, faults=faults)
    assert entered.wait(60.0)
    (stuck,) = faults.stuck_threads.items()
    assert stuck[0] == "clocks"
    # Of the package: where it called what waits.
    assert stuck[1].place.startswith("safety/faults.py:")
    pulse.rest()
    assert not faults.stuck_threads
    pulse.give_work()
    assert list(faults.stuck_threads) == ["clocks"]
    let_go.set()
    thread.join(60.0)
    assert not faults.stuck_threads


def test_a_thread_that_does_not_begin_is_named(monkeypatch):
    """Campaign of faults: it was reported from its first step on only."""
    monkeypatch.setattr("jetson_dnn_rt.safety.faults.STUCK_S", 0.0)
    faults, let_go = FaultLog(), threading.Event()
    monkeypatch.setattr(faults, "note_alive", lambda thread: let_go.wait(60.0))
    thread = start_thread(lambda: None, "clocks", pulse=Pulse(), faults=faults)
    assert list(faults.stuck_threads) == ["clocks"]
    let_go.set()
    thread.join(60.0)
    assert not faults.stuck_threads


def test_a_thread_that_cannot_be_started_is_not_reported(monkeypatch):
    faults, pulse = FaultLog(), Pulse()
    monkeypatch.setattr("jetson_dnn_rt.safety.faults.STUCK_S", 0.0)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        start_thread(lambda: None, "clocks", pulse=pulse, faults=faults)
    assert not faults.stuck_threads


def test_a_thread_that_does_not_go_on_is_logged_once_and_when_it_goes_on(monkeypatch, caplog):
    """A process whose ROS thread or deliveries hung said nothing: diagnostics came from them."""
    monkeypatch.setattr("jetson_dnn_rt.safety.faults.STUCK_S", 0.0)
    monkeypatch.setattr("jetson_dnn_rt.safety.stuck_log.STUCK_ERROR_S", 3600.0)
    monkeypatch.setattr("jetson_dnn_rt.safety.stuck_log.logger", logging.getLogger("stuck"))
    faults, pulse = FaultLog(), Pulse()
    faults.watch("ros-spin", pulse, threading.get_ident())
    log = StuckLog(faults)

    def check(hours):
        caplog.clear()
        pulse.since_ns = hours and time.monotonic_ns() - int(hours * 3600e9)
        log.check()
        return [(record.levelname, record.getMessage()) for record in caplog.records]

    assert check(0.5) == []
    ((level, text),) = check(2)
    assert level == "ERROR"
    assert text.startswith("thread ros-spin does not go on: 7200.")
    assert check(3) == []
    # Another step that hangs is another line.
    ((level, text),) = check(1.5)
    assert level == "ERROR"
    assert text.startswith("thread ros-spin does not go on: 5400.")
    ((level, text),) = check(0)
    assert (level, text) == ("WARNING", "thread ros-spin goes on, after at least 5400.0 s")
    assert check(0) == []


def test_an_end_that_raises_is_noted_and_the_others_come_all_the_same(monkeypatch):
    """Campaign of faults: nobody told it, and a clock would wait for the thread for ever."""
    faults, pulse, ended = FaultLog(), Pulse(), []

    def fail(*arguments):
        ended.append(len(arguments))
        raise OSError("at the end")

    monkeypatch.setattr(faults, "unwatch", fail)
    start_thread(lambda: None, "trace", on_end=fail, pulse=pulse, faults=faults).join(5.0)
    assert ended == [2, 0]
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count) == ("end of thread trace: OSError", 1)


def test_an_end_that_cannot_be_noted_is_counted(monkeypatch):
    """Campaign of faults: what failed at the end of a thread, and then its noting."""
    faults = FaultLog()

    def fail(*arguments):
        raise MemoryError("at the end")

    monkeypatch.setattr(faults, "note", fail)
    start_thread(lambda: None, "trace", on_end=fail, faults=faults).join(5.0)
    assert [(fault.kind, fault.count) for fault in faults.snapshot()] == [(UNNOTED, 1)]


def test_a_destructor_whose_fault_cannot_be_noted_is_counted(monkeypatch):
    """Campaign of faults: it went to stderr."""

    class Lent:
        def __del__(self):
            raise OSError("not given back")

    def fail(*arguments):
        raise MemoryError("no memory to note it")

    monkeypatch.setattr(sys, "unraisablehook", None)  # set back at the end
    note_destructors()
    with monkeypatch.context() as without_memory:
        without_memory.setattr(FAULTS, "note", fail)
        Lent()
    assert [(fault.kind, fault.count) for fault in FAULTS.snapshot()] == [(UNNOTED, 1)]
    Lent()
    assert FAULTS.snapshot()[-1].kind == "a destructor: OSError"
