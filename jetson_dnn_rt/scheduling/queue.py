# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Queues of ready jobs: the ready queue, and the jobs that run on spare time only."""

from __future__ import annotations

import heapq

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import TaskParameters

Rank = tuple[int, int, bool, int, int]
"""Sort key of a job under a discipline; the last three break ties."""


class ReadyQueue:
    """Ready jobs in the order of a discipline.

    ``edf``: earliest absolute deadline first. Among equal deadlines (two tasks on one camera) a
    job that has started continues, since preempting it would gain nothing; then the task with the
    most misses in a row, so that none starves where not all fit; then the task's precedence.
    ``priority``: highest priority of the task first, among equals as ``edf``. ``fifo``: in the
    order in which stages became ready (the queue of the Tucker paper). The last tie-break is the
    order of arrival (simpy's heap key).
    """

    def __init__(self, discipline: str = "edf") -> None:
        if discipline not in DISCIPLINES:
            raise ValueError(f"discipline must be one of {list(DISCIPLINES)}: {discipline!r}")
        self.discipline = discipline
        self.entries: list[tuple[Rank, int, Job]] = []
        """A heap; jobs that ended or were removed stay in it until they reach the top."""
        self.beside: list[tuple[Rank, int, Job]] = []
        """The same of jobs whose next stage may run beside a network."""
        self._count = 0

    def rank(
        self,
        job: Job,
        parameters: TaskParameters,
        misses_in_a_row: int,
        ready_ns: int,
        *,
        started: bool,
    ) -> Rank:
        """Sort key of a job that becomes ready at some time, started by then or not."""
        if self.discipline == "fifo":
            return (ready_ns, 0, False, 0, 0)
        first = -parameters.priority if self.discipline == "priority" else 0
        tie = (not started, -misses_in_a_row, parameters.precedence)
        return (first, job.absolute_deadline_ns, *tie)

    def push(
        self, job: Job, parameters: TaskParameters, misses_in_a_row: int, *, beside: bool = False
    ) -> None:
        """Add a job that became ready."""
        self._count += 1
        job.place = self._count
        self.put_back(job, parameters, misses_in_a_row, beside=beside)

    def put_back(
        self, job: Job, parameters: TaskParameters, misses_in_a_row: int, *, beside: bool = False
    ) -> None:
        """Put a popped job that did not run back to its old place among equals."""
        started = job.start_ns is not None
        rank = self.rank(job, parameters, misses_in_a_row, job.ready_ns, started=started)
        heapq.heappush(self.beside if beside else self.entries, (rank, job.place, job))
        job.queued = True  # last: where the heap has no room, nobody must believe that it is there

    def pop(self) -> Job | None:
        """Remove and return the first job that has not ended; None when there is none."""
        if self.beside and self._first_is_beside():
            return _pop(self.beside)
        return _pop(self.entries)

    def _first_is_beside(self) -> bool:
        _drop_invalid(self.entries)
        _drop_invalid(self.beside)
        return bool(self.beside) and not (self.entries and self.entries[0] < self.beside[0])

    def pop_beside(self) -> Job | None:
        """Remove and return the first whose next stage may run beside a network."""
        return _pop(self.beside)

    def first(self) -> Job | None:
        """The first of those whose next stage may not."""
        _drop_invalid(self.entries)
        return self.entries[0][-1] if self.entries else None

    def waiting(self) -> list[Job]:
        """The jobs in it, in their order."""
        entries = sorted([*self.entries, *self.beside])
        return [entry[-1] for entry in entries if _is_valid(entry)]


class SpareQueue:
    """Jobs on spare time, put aside until they are wanted or hopeless.

    Under overload nearly every task may have one. Testing at every boundary whether each of them
    is admitted by now would make the cost of a boundary grow with the number of tasks; here it
    grows with the logarithm. A waiting job's budget usually does not start to fit, since time only
    passes. One whose budget shrinks meanwhile is still found when no admitted job is ready, or at
    its limit.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Rank, int, Job]] = []
        self._by_limit: list[tuple[int, int, Job]] = []

    def push(self, job: Job, rank: Rank, limit_ns: int) -> None:
        """Add a job from the ready queue; by current estimates it is hopeless after `limit_ns`."""
        _drop_invalid(self.entries)
        heapq.heappush(self.entries, (rank, job.place, job))
        heapq.heappush(self._by_limit, (limit_ns, job.place, job))
        job.queued = True

    def pop(self) -> Job | None:
        """Remove and return the first in the order of the discipline; None when empty."""
        return _pop(self.entries)

    def first(self) -> Job | None:
        """The first in the order of the discipline; None when empty."""
        _drop_invalid(self.entries)
        return self.entries[0][-1] if self.entries else None

    def pop_overdue(self, now_ns: int) -> Job | None:
        """Remove and return one whose limit has passed; None when there is none."""
        while self._by_limit and self._by_limit[0][0] < now_ns:
            entry = heapq.heappop(self._by_limit)
            if _is_valid(entry):
                entry[-1].queued = False
                return entry[-1]
        return None


def _pop(heap: list[tuple[Rank, int, Job]]) -> Job | None:
    while heap:
        _, place, job = heapq.heappop(heap)
        if job.queued and place == job.place and not job.ended:
            job.queued = False
            return job
    return None


def _is_valid(entry: tuple[object, int, Job]) -> bool:
    """Whether a heap entry is still valid for its job."""
    _, place, job = entry
    return job.queued and place == job.place and not job.ended


def _drop_invalid(heap: list[tuple[Rank, int, Job]]) -> None:
    while heap and not _is_valid(heap[0]):
        heapq.heappop(heap)
