"""Ready jobs that run only when no admitted one wants the worker."""

from __future__ import annotations

import heapq

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import Rank


class SpareQueue:
    """Jobs on spare time, put aside until they are wanted or hopeless.

    Where there is too much work there may be one of nearly every task. Asking each of them at
    every boundary whether it is admitted by now would make a boundary cost more with every task;
    here it costs the logarithm. A job's budget does not come to fit while it waits, as a rule:
    time only passes. One whose budget shrinks meanwhile is still found when no admitted job is
    ready, or when its time has come.
    """

    def __init__(self) -> None:
        self._by_rank: list[tuple[Rank, int, Job]] = []
        self._by_limit: list[tuple[int, int, Job]] = []

    def __len__(self) -> int:
        """Jobs in it; may count some that ended or left, until they come to the top."""
        return len(self._by_rank)

    def push(self, job: Job, rank: Rank, limit_ns: int) -> None:
        """Put a job aside that was popped from the ready queue.

        Parameters
        ----------
        job : Job
            The job.
        rank : tuple
            Where it belongs, see `ReadyQueue`.
        limit_ns : int
            After that it is hopeless, as far as is known now.
        """
        job.queued = True
        while self._by_rank and not _is_in(self._by_rank[0]):
            heapq.heappop(self._by_rank)
        heapq.heappush(self._by_rank, (rank, job.place, job))
        heapq.heappush(self._by_limit, (limit_ns, job.place, job))

    def pop(self) -> Job | None:
        """Take the first one in the order of the discipline; None when there is none."""
        while self._by_rank:
            entry = heapq.heappop(self._by_rank)
            if _is_in(entry):
                entry[-1].queued = False
                return entry[-1]
        return None

    def pop_overdue(self, now_ns: int) -> Job | None:
        """Take one whose limit has passed; None when there is none."""
        while self._by_limit and self._by_limit[0][0] < now_ns:
            entry = heapq.heappop(self._by_limit)
            if _is_in(entry):
                entry[-1].queued = False
                return entry[-1]
        return None


def _is_in(entry: tuple[object, int, Job]) -> bool:
    """Whether an entry still stands for its job."""
    _, place, job = entry
    return job.queued and place == job.place and not job.ended
