"""The ready queue: which job runs next, ties broken the same way every time."""

from __future__ import annotations

import heapq

from jetson_dnn_rt.scheduling.job import Job

DISCIPLINES = ("edf", "fifo")

_Tie = tuple[bool, int, int]
_NO_TIE: _Tie = (False, 0, 0)


class ReadyQueue:
    """Ready jobs in the order of a discipline.

    ``edf``: earliest absolute deadline first. Among equal deadlines (two tasks on one camera) a
    job that has started goes on, since preempting it would help nobody; then the task that missed
    most in a row, so that none starves where not all fit; then the task's precedence.
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
        self._heap: list[tuple[int, _Tie, int, Job]] = []
        self._count = 0

    def push(self, job: Job, misses_in_a_row: int, precedence: int) -> None:
        """Add a ready job, with what its task has to say in a tie."""
        self._count += 1
        if self.discipline == "edf":
            tie = (job.start_ns is None, -misses_in_a_row, precedence)
            heapq.heappush(self._heap, (job.absolute_deadline_ns, tie, self._count, job))
        else:
            heapq.heappush(self._heap, (job.ready_ns, _NO_TIE, self._count, job))

    def pop(self) -> Job | None:
        """Take the first job that has not ended meanwhile; None when there is none."""
        while self._heap:
            job = heapq.heappop(self._heap)[-1]
            if not job.ended:
                return job
        return None
