# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Hands the records of ended jobs to observers, on a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.faults import FAULTS, Pulse, start_thread
from jetson_dnn_rt.scheduling.job import Ending
from jetson_dnn_rt.tasks import JobRecord, Work

Observer = Callable[[JobRecord, Work], None]

_Item = tuple[Sequence[Observer], Ending] | threading.Event | None
"""A job that ended with its observers, a mark that a caller waits for, or the end."""

THREAD = "rt-delivery"

MAX_PICTURE_BYTES = 64 << 20  # of pictures that wait for the observers: ten full-HD frames
MAX_RECORDS = 32_768  # that wait for them: some 60 MB without the pictures
SHORT = 2  # jobs in a queue whose size does not matter

_NO_IMAGE = np.zeros((0, 0), np.uint8)


class Delivery:
    """A queue of jobs that ended and the thread that tells the observers.

    Observers are publishers and writers: neither their time nor their errors reach a worker. The
    records are made here too. Where observers are too slow the oldest *pictures* are dropped: the
    work of such a job has a frame without pixels and no result. Its record is kept.
    `dropped_pictures` and `lost_records` count what observers did not get; who cannot queue a
    record adds it to `unqueued_records`.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # Of the jobs in the queue those whose pictures may be dropped: the latest.
        self._pictures: deque[Ending] = deque()
        self._picture_bytes = 0
        self.pulse = Pulse()
        self.dropped_pictures = 0
        # Counted by who queues records, and by the thread: neither calls anything for it, because
        # an exception is being handled then.
        self.unqueued_records = self._untold_records = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread(self._deliver, THREAD, wanted=lambda: True, pulse=self.pulse)

    def put(self, observers: Sequence[Observer], ending: Ending) -> None:
        """Queue a job that ended; returns at once. Never called on two threads at once."""
        if self._queue.qsize() >= SHORT:
            self._make_room(ending)
        self.pulse.give_work()
        self._queue.put((observers, ending))

    def wait(self, timeout_s: float) -> bool:
        """Wait until the observers have seen every record queued so far."""
        mark = threading.Event()
        self._queue.put(mark)
        return self._thread is None or mark.wait(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Deliver what is queued, then end the thread."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def lost_records(self) -> int:
        """Records that observers did not get."""
        return self.unqueued_records + self._untold_records

    def _make_room(self, ending: Ending) -> None:
        """Bound the memory of the jobs that wait."""
        frame, pictures = ending.job.work.frame, self._pictures
        # Raw outputs can be larger than the frame; no observer needs them once there is a result.
        ending.job.work.scratch.clear()
        with self._lock:
            # Tasks of one camera share its frame: their jobs often end one after the other.
            if not pictures or pictures[-1].job.work.frame is not frame:
                self._picture_bytes += frame.kept_bytes
            pictures.append(ending)
            if self._picture_bytes > MAX_PICTURE_BYTES:
                self._drop_pictures()
        if self._queue.qsize() >= MAX_RECORDS:
            self._lose_record()

    def _drop_pictures(self) -> None:
        """Drop the oldest until the others fit; the lock is held."""
        while self._picture_bytes > MAX_PICTURE_BYTES and len(self._pictures) > 1:
            ending = self._pictures[0]
            self._forget_picture()
            work = ending.job.work
            frame = work.frame
            # A new work: a stage that hangs may still have the old one.
            ending.job.work = Work(
                Frame(
                    _NO_IMAGE,
                    frame.encoding,
                    frame.stamp_ns,
                    frame.sequence,
                    frame.frame_id,
                    file=frame.file,
                    doubt=frame.doubt,
                ),
                copied_bytes=work.copied_bytes,
                urgency=work.urgency,
            )
            self.dropped_pictures += 1
            FAULTS.note_dropped(
                "pictures for observers",
                "publishers or writers are slower than the frames come; records are kept",
            )

    def _forget_picture(self) -> None:
        """Forget the oldest one; the lock is held."""
        frame = self._pictures.popleft().job.work.frame
        if not self._pictures or self._pictures[0].job.work.frame is not frame:
            self._picture_bytes -= frame.kept_bytes

    def _lose_record(self) -> None:
        """Drop the oldest record."""
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return  # the thread was faster
        if item is None:
            self._queue.put(None)  # the end mark stays the last
        elif isinstance(item, threading.Event):
            item.set()
        else:
            self.unqueued_records += 1
            self._take(item[1])
            FAULTS.note_dropped(
                "records for observers", f"an observer has not taken {MAX_RECORDS} of them"
            )

    def _take(self, ending: Ending) -> None:
        """A job leaves the queue; its picture may be one that was not counted, or was dropped."""
        with self._lock:
            if self._pictures and self._pictures[0] is ending:
                self._forget_picture()

    def _deliver(self) -> None:
        while True:
            if self._queue.empty():
                self.pulse.rest()
            item = self._queue.get()
            if item is None:
                return
            try:
                self.pulse.begin()
                if isinstance(item, threading.Event):
                    item.set()
                    continue
                observers, ending = item
                if self._pictures:
                    self._take(ending)
                self._tell(observers, ending)
                # A job's frame goes back to its pool now, not when the next job ends.
                del observers, ending
            except BaseException as error:
                self._untold_records += 1
                FAULTS.note("records for observers", error)
            del item

    def _tell(self, observers: Sequence[Observer], ending: Ending) -> None:
        try:
            record, work = ending.make_record(), ending.work
        except BaseException as error:
            self._untold_records += 1
            FAULTS.note("records for observers", error)
            return
        for observer in observers:
            try:
                observer(record, work)
            except BaseException as error:
                # One that fails, even with sys.exit(), must not stop the others.
                FAULTS.note(f"an observer of task {record.task}", error)
