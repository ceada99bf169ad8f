"""Limits on the stages that run at once on a device."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import TaskState


class DeviceLimits:
    """Counts the stages in flight on the devices that have a limit."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        if any(limit < 1 for limit in limits.values()):
            raise ValueError(f"max_inflight must be >= 1 for each device: {dict(limits)}")
        self._limits = dict(limits)
        self._in_flight: Counter[str] = Counter()

    def room(self, state: TaskState, job: Job, held: Iterable[Job] = ()) -> int:
        """How many more stages may start where the job's next one runs, less those of `held`."""
        run = state.runs[job.variant][job.next_stage]
        if run is None or run.device not in self._limits:
            return sys.maxsize
        kept = sum(other.device == run.device for other in held)
        return self._limits[run.device] - self._in_flight[run.device] - kept

    def keep_place(self, state: TaskState, job: Job) -> None:
        """Note the device of a job that is about to be one of `held`."""
        run = state.runs[job.variant][job.next_stage]
        job.device = "" if run is None else run.device

    def places(self, running: Iterable[Job], now_ns: int) -> dict[str, list[int]]:
        """For each device with a limit, when each of its places is free, by the budgets."""
        places: dict[str, list[int]] = {device: [] for device in self._limits}
        for job in running:
            if job.device in places:
                places[job.device].append(max(now_ns, job.due_ns))
        for device, limit in self._limits.items():
            places[device] += [now_ns] * (limit - len(places[device]))
        return places

    def take(self, state: TaskState, job: Job) -> None:
        """Count the job's next stage, which starts."""
        # Noted in the job, since the task may be replaced while the stage runs.
        self.keep_place(state, job)
        self._in_flight[job.device] += 1

    def give_back(self, job: Job) -> None:
        """Count the job's stage as done."""
        self._in_flight[job.device] -= 1

    def recount(self, running: Iterable[Job]) -> None:
        """Reset the counts to these jobs."""
        self._in_flight = Counter(job.device for job in running)
