"""How many probes there may be: measuring anew must not cost others their deadlines."""

from __future__ import annotations

from jetson_dnn_rt.scheduling.job import Job

PROBE_INTERVAL = 30
"""Every so many frames in a row that the budget keeps out, one is run as a probe; and of the
workers' time all probes together take at most one part in so many, while others want it."""


class Probes:
    """Lets probes through, one at a time.

    Where there is too much work, the others keep a task out, and not its budget: a probe will
    most likely be late, and whatever it takes others miss. Each starving task would have its
    probe every `PROBE_INTERVAL` frames, so that with more and more tasks probes would in the end
    be all that runs. Hence, after a probe of 10 ms on one worker, the next one of any task comes
    300 ms later at the earliest. Where nothing but probes has begun for so long nobody is hurt:
    the budgets of all tasks may be wrong, and they probe without delay.
    """

    def __init__(self) -> None:
        self._outstanding: Job | None = None
        self._other_ns: int | None = None
        self._last_ns = self._pause_ns = 0
        self._next_ns: int | None = None

    def allow(self, job: Job, now_ns: int) -> bool:
        """Whether a job of a task that was kept out for long may be a probe; then it is one."""
        last = self._outstanding
        if last is not None and last.task != job.task:
            return False
        if self._next_ns is not None and now_ns < self._next_ns and self._is_wanted():
            return False
        self._outstanding = job
        return True

    def begin(self, job: Job, now_ns: int) -> None:
        """A job begins."""
        if job is not self._outstanding:
            self._other_ns = now_ns

    def end(self, job: Job, now_ns: int, workers: int) -> None:
        """A probe ended; one that never began does not count."""
        if job is self._outstanding:
            self._outstanding = None
        if job.start_ns is not None:
            time_ns = sum(stage.execution_time_ns for stage in job.stages)
            self._pause_ns = PROBE_INTERVAL * time_ns // workers
            self._next_ns = now_ns + self._pause_ns
            self._last_ns = job.start_ns

    def _is_wanted(self) -> bool:
        """Whether others than probes began shortly before the last probe, or after it."""
        return self._other_ns is not None and self._other_ns > self._last_ns - self._pause_ns
