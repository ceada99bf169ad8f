"""Hands the records of ended jobs to observers, on a thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from jetson_dnn_rt.scheduling.ending import Ending
from jetson_dnn_rt.tasks import JobRecord, Work

logger = logging.getLogger(__name__)

Observer = Callable[[JobRecord, Work], None]

_Item = tuple[Sequence[Observer], Ending] | threading.Event | None
"""A job that ended and who is told, a mark that says how far the delivery is, or the end."""


class Delivery:
    """A queue of jobs that ended and the thread that tells the observers.

    Observers are publishers and writers: neither their time nor their errors reach a worker. The
    records are made here too.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._deliver, name="rt-delivery", daemon=True)
        self._thread.start()

    def put(self, observers: Sequence[Observer], ending: Ending) -> None:
        """Queue a job that ended; returns at once."""
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

    def _deliver(self) -> None:
        failures: Counter[str] = Counter()
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            observers, ending = item
            record, work = ending.make_record(), ending.work
            for observer in observers:
                try:
                    observer(record, work)
                except Exception as error:
                    # One that breaks must not stop the others.
                    kind = f"{type(error).__name__}: {error}"
                    failures[kind] += 1
                    if failures[kind] == 1:
                        logger.exception("an observer of task %s failed", record.task)
            # A job's frame goes back to its pool now, not when the next job ends.
            del item, observers, observer, ending, record, work
