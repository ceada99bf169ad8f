"""The ready queue: which job runs next, ties broken the same way every time."""

from __future__ import annotations

import heapq

from jetson_dnn_rt.scheduling.job import Job

DISCIPLINES = ("edf", "fifo")


class ReadyQueue:
    """Ready jobs in the order of a discipline.

    ``edf``: earliest absolute deadline first. Among equal deadlines (two tasks on one camera) a
    job that has started goes on, since preempting it would help nobody; then the task that
    started longest ago, so that neither starves when only one of them fits.
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
        self._heap: list[tuple[int, bool, int, int, Job]] = []
        self._count = 0

    def push(self, job: Job, last_start_ns: int) -> None:
        """Add a ready job; `last_start_ns` is when its task last started a job."""
        self._count += 1
        if self.discipline == "edf":
            waits = job.start_ns is None
            entry = (job.absolute_deadline_ns, waits, last_start_ns, self._count, job)
        else:
            entry = (job.ready_ns, False, 0, self._count, job)
        heapq.heappush(self._heap, entry)

    def pop(self) -> Job | None:
        """Take the first job that has not ended meanwhile; None when there is none."""
        while self._heap:
            job = heapq.heappop(self._heap)[-1]
            if not job.ended:
                return job
        return None
