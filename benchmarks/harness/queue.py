# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One FIFO queue of steps and worker threads: the baseline for schedulers."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

Step = Callable[[], object]
Ended = Callable[[Exception | None], object]
"""Called on a worker when a job has ended, with its error."""


@contextmanager
def _on_cpu() -> Iterator[Step]:
    yield lambda: None


@dataclass(slots=True, eq=False)
class _Job:
    task: str
    steps: deque[Step]
    ended: Ended


class FifoQueue:
    """Worker threads and one queue of steps, first in first out, without deadlines.

    Every job that was begun runs to its end, however old it is; after each step its next one goes
    to the end of the queue. A task runs one job at a time, since its steps share their buffers:
    jobs that come meanwhile wait, and beyond `depth` the oldest is dropped; 10 is the depth of ROS
    2's default profile. `around` makes the context of a worker thread, whose value is called after
    each step, on that thread.
    """

    def __init__(
        self,
        workers: int = 1,
        depth: int = 10,
        around: Callable[[], AbstractContextManager[Step]] = _on_cpu,
    ) -> None:
        self._around = around
        self._waiting: dict[str, deque[_Job]] = defaultdict(lambda: deque(maxlen=depth))
        self._busy: set[str] = set()
        self._ready: deque[_Job] = deque()
        self._condition = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"fifo-{index}", daemon=True)
            for index in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: str, steps: Iterable[Step], ended: Ended) -> None:
        """Submit a job of at least one step."""
        with self._condition:
            self._waiting[task].append(_Job(task, deque(steps), ended))
            if task not in self._busy:
                self._begin_next(task)
                self._condition.notify()

    def stop(self) -> None:
        """Stop the workers; unfinished jobs are lost."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join()

    def _begin_next(self, task: str) -> None:
        self._busy.discard(task)
        if self._waiting[task]:
            self._busy.add(task)
            self._ready.append(self._waiting[task].popleft())

    def _work(self) -> None:
        with self._around() as settle:
            while (job := self._take()) is not None:
                failure = None
                try:
                    job.steps.popleft()()
                    settle()
                except Exception as error:
                    failure = error
                if job.steps and failure is None:
                    with self._condition:
                        self._ready.append(job)
                    continue
                job.ended(failure)
                with self._condition:
                    self._begin_next(job.task)

    def _take(self) -> _Job | None:
        with self._condition:
            while not self._ready and not self._stopping:
                self._condition.wait()
            return None if self._stopping else self._ready.popleft()
