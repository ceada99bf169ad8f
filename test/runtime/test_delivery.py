# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Records are made on the delivery's own thread, and reach every observer."""

from __future__ import annotations

import threading
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

from jetson_dnn_rt.frames import Frame, FramePool
from jetson_dnn_rt.runtime import delivery as delivery_module
from jetson_dnn_rt.runtime.delivery import Delivery
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.scheduling.job import Ending, Job
from jetson_dnn_rt.tasks import Outcome, Work


class _CountedEnding:
    """Says on which threads its record was made; nobody inherits from a compiled `Ending`."""

    threads: list[str] = []  # noqa: RUF012  shared on purpose: of all endings

    def __init__(self, *given):
        self._ending = Ending(*given)

    def __getattr__(self, name):
        return getattr(self._ending, name)

    def make_record(self):
        self.threads.append(threading.current_thread().name)
        return self._ending.make_record()


def make_ending(sequence):
    work = Work(Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, sequence))
    job = Job("task", sequence, 1, 2, 50, work, "full")
    return _CountedEnding(job, Outcome.SKIPPED, "budget", 30, ())


@contextmanager
def started(delivery=None):
    """A delivery that has told its observers everything at the end."""
    delivery = delivery or Delivery()
    delivery.start()
    yield delivery
    assert delivery.wait(60)
    delivery.stop(60)


def test_a_record_is_made_once_away_from_the_worker():
    _CountedEnding.threads.clear()
    seen: list[tuple[str, int]] = []
    observers = [
        lambda record, work, name=name: seen.append((name, record.sequence)) for name in "ab"
    ]
    with started() as delivery:
        for sequence in range(3):
            delivery.put(observers, make_ending(sequence))
        assert set(_CountedEnding.threads) <= {"rt-delivery"}
    assert _CountedEnding.threads == 3 * ["rt-delivery"]
    assert seen == [(name, sequence) for sequence in range(3) for name in "ab"]


def make_picture(sequence, size):
    """A job that was met, with a picture and a result of its own."""
    work = Work(Frame(np.ones((*size, 3), np.uint8), "bgr8", 7, sequence, "front"))
    job = Job("task", sequence, 1, 2, 50, work, "full")
    return Ending(job, Outcome.MET, "", 30, ())


def test_an_observer_that_blocks_costs_the_oldest_pictures_and_no_record():
    """EDGES 9: 60 full-HD frames, 370 MB, behind a blocked observer: 64 MiB are kept."""
    entered, let_go = threading.Event(), threading.Event()
    seen: list[tuple[int, int, int, str]] = []

    def block(record, work):
        entered.set()
        assert let_go.wait(60)
        seen.append(
            (record.sequence, work.frame.image.size, work.frame.stamp_ns, work.frame.frame_id)
        )

    with started() as delivery:
        delivery.put([block], make_picture(0, (1080, 1920)))
        assert entered.wait(60)
        kept: list[weakref.ref[object]] = []
        for sequence in range(1, 60):
            ending = make_picture(sequence, (1080, 1920))
            kept.append(weakref.ref(ending.work.frame.image))
            delivery.put([block], ending)
            del ending
        alive = [n for n, one in enumerate(kept, 1) if one() is not None]
        size = 1080 * 1920 * 3
        # The first two were there before anybody looked; of the others the latest.
        assert alive == [1, 2, *range(50, 60)]
        assert 10 * size <= delivery_module.MAX_PICTURE_BYTES < 11 * size
        assert delivery.dropped_pictures == 47
        let_go.set()
    assert [sequence for sequence, _, _, _ in seen] == list(range(60))
    assert [n for n, pixels, _, _ in seen if pixels] == [0, *alive]
    assert {(stamp, frame_id) for _, _, stamp, frame_id in seen} == {(7, "front")}
    [fault] = FAULTS.snapshot()
    assert (fault.kind, fault.count) == ("pictures for observers: dropped", 47)


def test_frames_that_wait_make_the_pool_grow_once_and_not_without_end(monkeypatch):
    """The step of 12 MB in a soak at 180 Hz: an observer was held up for some 70 ms."""
    size, limit = 32 * 32 * 3, 16
    monkeypatch.setattr(delivery_module, "MAX_PICTURE_BYTES", limit * size)
    pool = FramePool((32, 32, 3), 4)
    goes_on = threading.Event()

    def hold_up(delivery, frames):
        goes_on.clear()
        for sequence in range(frames):
            loan = pool.borrow()
            work = Work(Frame(loan.buffer, "bgr8", 0, sequence, owner=loan))
            job = Job("task", sequence, 1, 2, 50, work, "full")
            delivery.put([lambda record, work: goes_on.wait(60)], _CountedEnding(
                job, Outcome.SKIPPED, "budget", 30, ()
            ))  # fmt: skip
            del loan, work, job
        goes_on.set()
        assert delivery.wait(60)
        return pool.allocated

    with started() as delivery:
        assert hold_up(delivery, 3) == 4
        assert hold_up(delivery, 12) == hold_up(delivery, 12) == 12
        # One with the observer, two that are not counted, one that is being filled.
        assert limit <= hold_up(delivery, 200) <= limit + delivery_module.SHORT + 2
    assert pool.allocated_bytes == pool.allocated * size


def test_a_picture_counts_with_the_buffer_that_it_keeps_alive():
    """EDGES 9: one pixel of a message of 10 MB keeps all of it."""
    delivery = Delivery()  # not started: everything waits
    buffers = [bytes(10_000_000) for _ in range(20)]
    for sequence, buffer in enumerate(buffers):
        image = np.ndarray((1, 1, 3), np.uint8, buffer=memoryview(buffer)[100:])
        work = Work(Frame(image[:, ::-1], "bgr8", 0, sequence))
        job = Job("task", sequence, 1, 2, 50, work, "full")
        delivery.put([], Ending(job, Outcome.MET, "", 30, ()))
    # The first two were there before anybody looked.
    assert delivery.dropped_pictures == 20 - 2 - delivery_module.MAX_PICTURE_BYTES // 10_000_000
    assert delivery._picture_bytes == 60_000_000


def make_blocker():
    """An observer that blocks, and the events that it has begun and may go on."""
    entered, let_go = threading.Event(), threading.Event()

    def block(record, work):
        entered.set()
        assert let_go.wait(60)

    return block, entered, let_go


def test_a_picture_that_several_tasks_share_counts_once():
    """EDGES 9: many tasks on one camera do not drop each other's results."""
    block, entered, let_go = make_blocker()
    with started() as delivery:
        delivery.put([block], make_ending(0))
        assert entered.wait(60)
        picture = make_picture(1, (1080, 1920))
        for _ in range(100):
            job = Job("task", 1, 1, 2, 50, picture.work, "full")
            delivery.put([block], Ending(job, Outcome.MET, "", 30, ()))
        assert delivery.dropped_pictures == 0
        let_go.set()
    assert delivery._picture_bytes == 0


def test_the_work_of_a_stage_that_hangs_is_not_changed():
    """EDGES 9: its thread has the frame in use yet."""
    delivery = Delivery()  # not started: everything waits
    endings = [make_picture(n, (4096, 4096)) for n in range(4)]
    works = [ending.work for ending in endings]
    for ending in endings:
        delivery.put([], ending)
    assert [work.frame.image.size for work in works] == 4 * [4096 * 4096 * 3]
    sizes = [ending.work.frame.image.size for ending in endings]
    assert sizes == [4096 * 4096 * 3] * 2 + [0, 4096 * 4096 * 3]


def test_records_are_bounded_in_the_end(monkeypatch):
    """EDGES 9: an observer that never returns costs records, counted, not memory without end."""
    monkeypatch.setattr(delivery_module, "MAX_RECORDS", 100)
    delivery = Delivery()
    for sequence in range(250):
        delivery.put([], make_ending(sequence))
    assert delivery._queue.qsize() == 100
    assert delivery.lost_records == 150
    assert len(delivery._pictures) == 100
    seen: list[int] = []
    delivery.put([lambda record, work: seen.append(record.sequence)], make_ending(250))
    with started(delivery):
        pass
    assert seen == [250]
    assert not any("thread" in fault.kind for fault in FAULTS.snapshot())
    assert (delivery._picture_bytes, len(delivery._pictures)) == (0, 0)


def test_a_record_that_makes_room_is_counted_whatever_fails_then(monkeypatch):
    """Campaign of faults: the oldest record was gone, and counted nowhere."""
    monkeypatch.setattr(delivery_module, "MAX_RECORDS", 10)
    delivery = Delivery()
    for sequence in range(10):
        delivery.put([], make_ending(sequence))
    with monkeypatch.context() as broken:
        broken.setattr(delivery, "_take", lambda ending: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            delivery.put([], make_ending(10))
    assert (delivery._queue.qsize(), delivery.lost_records) == (9, 1)


def test_different_texts_of_one_observer_are_one_fault():
    """EDGES 10: what observers raise is counted by kind, however many texts there are."""

    def break_down(record, work):
        raise ValueError(f"frame {record.sequence}")

    with started() as delivery:
        for sequence in range(100):
            delivery.put([break_down], make_ending(sequence))
    [fault] = FAULTS.snapshot()
    assert (fault.kind, fault.count) == ("an observer of task task: ValueError", 100)


def test_the_delivery_goes_on_whatever_an_observer_raises():
    """EDGES 8: even what would end a thread."""
    seen: list[int] = []

    def leave(record, work):
        if record.sequence == 0:
            raise SystemExit
        seen.append(record.sequence)

    with started() as delivery:
        for sequence in range(3):
            delivery.put([leave], make_ending(sequence))
    assert seen == [1, 2]
    assert "rt-delivery" not in FAULTS.dead_threads


class _UnprintableError(Exception):
    def __str__(self):
        raise ValueError("no text")


class _BrokenEnding(_CountedEnding):
    """One of which no record can be made."""

    def make_record(self):
        raise _UnprintableError


def test_a_record_that_cannot_be_made_costs_no_other():
    """EDGES 8: it ended the delivery, or cost records that nobody counted."""
    seen: list[int] = []

    def observe(record, work):
        seen.append(record.sequence)
        if record.sequence == 2:
            raise _UnprintableError

    good = [make_ending(sequence) for sequence in range(4)]
    broken = _BrokenEnding(good[1].job, Outcome.SKIPPED, "budget", 30, ())
    with started() as delivery:
        for ending in (good[0], broken, good[2], good[3]):
            delivery.put([observe], ending)
    assert seen == [0, 2, 3]
    assert delivery.lost_records == 1
    assert delivery.pulse.since_ns == 0
    assert {fault.kind for fault in FAULTS.snapshot()} == {
        "records for observers: _UnprintableError",
        "an observer of task task: _UnprintableError",
    }


def test_an_observer_that_does_not_return_is_named(monkeypatch):
    """Campaign of faults: it was told after 5 s, by the watchdog, if that could look."""
    monkeypatch.setattr("jetson_dnn_rt.safety.faults.STUCK_S", 0.0)
    block, entered, let_go = make_blocker()
    with started() as delivery:
        delivery.put([block], make_ending(0))
        assert entered.wait(60)
        assert FAULTS.stuck_threads["rt-delivery"].place.startswith("runtime/delivery.py:")
        let_go.set()
    assert "rt-delivery" not in FAULTS.stuck_threads


def test_a_picture_that_cannot_be_counted_off_costs_one_record_which_is_counted(monkeypatch):
    """Campaign of faults: the thread was restarted, and the record had gone without a trace."""
    seen: list[int] = []
    delivery, failures = Delivery(), [RuntimeError("once")]
    take = delivery._take

    def fail(ending):
        if failures:
            raise failures.pop()
        take(ending)

    monkeypatch.setattr(delivery, "_take", fail)
    for sequence in range(5):  # not started yet: they wait, with pictures that count
        delivery.put([lambda record, work: seen.append(record.sequence)], make_ending(sequence))
    with started(delivery):
        pass
    assert (len(seen), delivery.lost_records) == (4, 1)
    (fault,) = FAULTS.snapshot()
    assert fault.kind == "records for observers: RuntimeError"
