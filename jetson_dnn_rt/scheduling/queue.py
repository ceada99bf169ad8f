"""The ready queue: which job runs next, ties broken the same way every time."""

from __future__ import annotations

import heapq

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import TaskParameters

Rank = tuple[int, int, bool, int, int]
"""What a discipline orders jobs by; the last three decide ties."""


class ReadyQueue:
    """Ready jobs in the order of a discipline.

    ``edf``: earliest absolute deadline first. Among equal deadlines (two tasks on one camera) a
    job that has started goes on, since preempting it would help nobody; then the task that missed
    most in a row, so that none starves where not all fit; then the task's precedence.
    ``priority``: highest priority of the task first, among equals as ``edf``.
    ``fifo``: in the order in which stages became ready (the queue of the Tucker paper).
    Last tie-break is the order of arrival (simpy's heap key).

    Parameters
    ----------
    discipline : str
        One of `DISCIPLINES`.

    Raises
    ------
    ValueError
        For another discipline.
    """

    def __init__(self, discipline: str = "edf") -> None:
        if discipline not in DISCIPLINES:
            raise ValueError(f"discipline must be one of {list(DISCIPLINES)}: {discipline!r}")
        self.discipline = discipline
        self._heap: list[tuple[Rank, int, Job]] = []
        self._count = 0

    def __len__(self) -> int:
        """Jobs in it; may count some that ended or were taken, until they come to the top."""
        return len(self._heap)

    def rank(
        self,
        job: Job,
        parameters: TaskParameters,
        misses_in_a_row: int,
        ready_ns: int,
        *,
        started: bool,
    ) -> Rank:
        """Where a job belongs that is ready from some time on, and has started by then or not."""
        if self.discipline == "fifo":
            return (ready_ns, 0, False, 0, 0)
        first = -parameters.priority if self.discipline == "priority" else 0
        tie = (not started, -misses_in_a_row, parameters.precedence)
        return (first, job.absolute_deadline_ns, *tie)

    def rank_now(self, job: Job, parameters: TaskParameters, misses_in_a_row: int) -> Rank:
        """Where a ready job belongs."""
        started = job.start_ns is not None
        return self.rank(job, parameters, misses_in_a_row, job.ready_ns, started=started)

    def push(self, job: Job, parameters: TaskParameters, misses_in_a_row: int) -> None:
        """Add a job that became ready, with what its task has to say."""
        self._count += 1
        job.place = self._count
        self.put_back(job, parameters, misses_in_a_row)

    def put_back(self, job: Job, parameters: TaskParameters, misses_in_a_row: int) -> None:
        """Add a job that was popped and did not run, in its old place among equals."""
        rank = self.rank_now(job, parameters, misses_in_a_row)
        job.queued = True
        heapq.heappush(self._heap, (rank, job.place, job))

    def pop(self) -> Job | None:
        """Take the first job that has not ended meanwhile; None when there is none."""
        while self._heap:
            _, place, job = heapq.heappop(self._heap)
            if job.queued and place == job.place and not job.ended:
                job.queued = False
                return job
        return None

    def take(self, job: Job) -> None:
        """Take a job out of turn."""
        job.queued = False

    def waiting(self) -> list[Job]:
        """The jobs in it, in their order."""
        return [
            job
            for _, place, job in sorted(self._heap)
            if job.queued and place == job.place and not job.ended
        ]
