"""Records are made on the delivery's own thread, and reach every observer."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from jetson_dnn_rt.executor.delivery import Delivery
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.ending import Ending
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work


class _CountedEnding(Ending):
    """Says on which threads its record was made."""

    threads: list[str] = []  # noqa: RUF012  shared on purpose: slots leave no room for one each

    def make_record(self) -> JobRecord:
        self.threads.append(threading.current_thread().name)
        return super().make_record()


def make_ending(sequence: int) -> Ending:
    work = Work(Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, sequence))
    job = Job("task", sequence, 1, 2, 50, work, "full")
    return _CountedEnding(job, Outcome.SKIPPED, "budget", 30, ())


def test_a_record_is_made_once_away_from_the_worker() -> None:
    _CountedEnding.threads.clear()
    seen: list[tuple[str, int]] = []
    observers = [
        lambda record, work, name=name: seen.append((name, record.sequence)) for name in "ab"
    ]
    delivery = Delivery()
    delivery.start()
    for sequence in range(3):
        delivery.put(observers, make_ending(sequence))
    assert _CountedEnding.threads in (
        [],
        ["rt-delivery"],
        2 * ["rt-delivery"],
        3 * ["rt-delivery"],
    )
    assert delivery.wait(10.0)
    delivery.stop(10.0)
    assert _CountedEnding.threads == 3 * ["rt-delivery"]
    assert seen == [(name, sequence) for sequence in range(3) for name in "ab"]


def test_an_observer_that_breaks_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def break_down(record: JobRecord, work: Work) -> None:
        raise ValueError("full disk")

    delivery = Delivery()
    delivery.start()
    with caplog.at_level(logging.ERROR):
        for sequence in range(2):
            delivery.put(
                [break_down, lambda record, work: seen.append(record.sequence)],
                make_ending(sequence),
            )
        assert delivery.wait(10.0)
    delivery.stop(10.0)
    assert seen == [0, 1]
    # The same trouble is said once.
    [record] = caplog.records
    assert record.message.startswith("an observer of task task failed")
