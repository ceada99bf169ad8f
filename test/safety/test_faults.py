"""Counts of faults stay bounded, and no thread dies unnoticed."""

from __future__ import annotations

import logging
import threading

import pytest

from jetson_dnn_rt.safety.faults import MAX_KINDS, OTHERS, FaultLog, safe_text, start_thread


def test_a_kind_is_logged_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultLog()
    with caplog.at_level(logging.ERROR):
        for number in range(5):
            faults.note("timer report", ValueError(f"number {number}"))
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count, fault.text) == ("timer report: ValueError", 5, "number 4")
    assert len(caplog.records) == 1


def test_dropped_values_are_counted_by_their_input(caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultLog()
    with caplog.at_level(logging.WARNING):
        faults.note_dropped("topic lag_ms", "nan")
        faults.note_dropped("topic lag_ms", "inf")
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count, fault.text) == ("topic lag_ms: dropped", 2, "inf")
    assert len(caplog.records) == 1


def test_kinds_are_bounded() -> None:
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

    def __str__(self) -> str:
        raise SystemExit("no text")


def test_an_error_without_a_text_is_counted_like_any_other() -> None:
    """EDGES 8: the fault log itself raised, and with it what was to survive the fault."""
    faults = FaultLog()
    faults.note("timer report", UnprintableError())
    (fault,) = faults.snapshot()
    assert (fault.kind, fault.count) == ("timer report: UnprintableError", 1)
    assert "SystemExit" in fault.text
    assert len(safe_text(ValueError("x" * 5_000_000))) == 500


def test_threads_outlive_errors_without_a_text() -> None:
    """EDGES 8: a wanted thread ended, and one that died was not reported."""
    faults, runs, died = FaultLog(), [], []

    def run() -> None:
        runs.append(None)
        if len(runs) < 3:
            raise UnprintableError

    start_thread(run, "wanted", wanted=lambda: True, faults=faults).join(5.0)
    assert len(runs) == 3
    runs.clear()
    start_thread(run, "single", on_death=died.append, faults=faults).join(5.0)
    assert list(faults.dead_threads) == ["single"]
    assert [type(error) for error in died] == [UnprintableError]


def test_a_thread_that_fails_is_reported_as_dead() -> None:
    faults, died = FaultLog(), []
    thread = start_thread(lambda: 1 / 0, "worker", on_death=died.append, faults=faults)
    thread.join(5.0)
    assert list(faults.dead_threads) == ["worker"]
    assert [fault.kind for fault in faults.snapshot()] == ["thread worker: ZeroDivisionError"]
    assert [type(error) for error in died] == [ZeroDivisionError]
    start_thread(lambda: None, "worker", faults=faults).join(5.0)
    assert not faults.dead_threads


def test_a_thread_that_is_wanted_goes_on_after_a_fault() -> None:
    faults, runs, over = FaultLog(), [], threading.Event()

    def run() -> None:
        runs.append(None)
        if len(runs) < 3:
            raise OSError("a device that comes back")
        over.set()

    thread = start_thread(run, "camera", wanted=lambda: True, faults=faults)
    assert over.wait(5.0)
    thread.join(5.0)
    assert [fault.count for fault in faults.snapshot()] == [2]
    assert not faults.dead_threads


def test_a_thread_that_is_not_wanted_any_more_ends() -> None:
    faults = FaultLog()
    thread = start_thread(lambda: 1 / 0, "camera", wanted=lambda: False, faults=faults)
    thread.join(5.0)
    assert not thread.is_alive()
    assert not faults.dead_threads
