# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decisions about one job: next variant, hopeless or admitted, probe, room on its device."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Admission

_BUDGET, _PROBE = Admission.BUDGET, Admission.PROBE

RemainingTime = Callable[[str, int], int]
"""Maps a variant and a stage to the time from that stage to the end, in nanoseconds."""

PROBE_INTERVAL = 30
"""One frame in this many that are rejected in a row runs as a probe, at the latest; and all probes
together take at most one part in this many of the workers' time while other tasks want it."""


def select(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Choose the variant of the next stage; False when none can continue from here."""
    chosen = selector.choose(state, job, now_ns)
    stage = job.next_stage
    if state.usable(chosen, stage):
        job.variant = chosen
        return True
    for variant in (job.variant, state.parameters.variant, *state.parameters.variants):
        if state.usable(variant, stage):
            job.variant = variant
            return True
    return False


def shortest_ns(
    selector: Selector, state: TaskState, job: Job, stage: int, remaining_ns: RemainingTime
) -> int:
    """Remaining time of a job from a stage on, in the fastest variant that it may still choose."""
    allowed = selector.allowed(state, job)
    if len(allowed) == 1:
        variant = allowed[0]
        return remaining_ns(variant if state.usable(variant, stage) else job.variant, stage)
    times_ns = [
        remaining_ns(variant, stage) for variant in allowed if state.usable(variant, stage)
    ]
    return min(times_ns) if times_ns else remaining_ns(job.variant, stage)


def can_make_it(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Whether its usual time fits; a probe may try anyway."""
    if job.admission is _PROBE:
        return True
    usual_ns = shortest_ns(selector, state, job, job.next_stage, state.remaining_usual_ns)
    return now_ns + job.delay_ns + usual_ns <= job.absolute_deadline_ns


def is_lucky(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Whether it makes it with luck: worth a try only where that costs no other frame."""
    lucky_ns = shortest_ns(selector, state, job, job.next_stage, state.remaining_lucky_ns)
    return now_ns + job.delay_ns + lucky_ns <= job.absolute_deadline_ns


def is_admitted(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Whether its budget fits, or did at its start; a probe is always admitted."""
    if job.admission is _BUDGET or job.admission is _PROBE:
        return True
    budget_ns = shortest_ns(selector, state, job, job.next_stage, state.remaining_budget_ns)
    return now_ns + job.delay_ns + budget_ns <= job.absolute_deadline_ns


def predecessor_ns(state: TaskState, now_ns: int) -> int:
    """Expected time until the task's job in flight is done, if nothing preempts it."""
    job = state.in_flight
    if job is None:
        return 0
    if not job.running:
        return state.remaining_usual_ns(job.variant, job.next_stage)
    rest_ns = state.remaining_usual_ns(job.variant, job.next_stage + 1)
    return max(0, job.usual_end_ns - now_ns) + rest_ns


class Probes:
    """Admits probes, one at a time.

    Under overload it is the other tasks that keep a task out, not its budget: a probe will most
    likely be late, and the others miss the time it takes. With one probe per starving task every
    `PROBE_INTERVAL` frames, more and more tasks would in the end run nothing but probes. Hence,
    after a probe of 10 ms on one worker, the next one of any task comes 300 ms later at the
    earliest. Where no other task has started anything but probes for that long none is hurt: the
    budgets of all tasks may be wrong, and they probe without delay. The task that has asked for
    longest is next: one that is too slow for good does not keep the others from it.
    """

    def __init__(self) -> None:
        self._outstanding: Job | None = None
        self._asked_ns: dict[str, int] = {}  # tasks that wait for a probe: until when
        self._begins_ns: dict[str, int] = {}  # last start of a job that is no probe, by task
        self._last_ns = self._pause_ns = 0
        self._next_ns = 0

    def allow(self, job: Job, now_ns: int, period_ns: int) -> bool:
        """Return whether a job of a task that was kept out for long may probe, and reserve it."""
        last = self._outstanding
        if last is not None and last.task == job.task and last.start_ns is None:
            # It did not get to start: others are next.
            last.admission = Admission.NONE
            last = self._outstanding = None
            self._asked_ns.pop(job.task, None)
        self._asked_ns[job.task] = now_ns + 2 * period_ns
        if last is not None and last.task != job.task:
            return False
        for name, until_ns in self._asked_ns.items():
            if name == job.task:
                break
            if until_ns >= now_ns - self._pause_ns:  # its frames still come
                return False
        if now_ns < self._next_ns and self._is_wanted_beside(job.task):
            return False
        self._outstanding = job
        return True

    def forget(self, task: str) -> None:
        """The task is removed."""
        self._asked_ns.pop(task, None)
        self._begins_ns.pop(task, None)

    def begin(self, job: Job, now_ns: int) -> None:
        """Record a job's start."""
        self._asked_ns.pop(job.task, None)
        if job is not self._outstanding:
            self._begins_ns[job.task] = now_ns

    def end(self, job: Job, now_ns: int, workers: int) -> None:
        """Record a probe's end; one that never started does not count."""
        if job is self._outstanding:
            self._outstanding = None
        if job.start_ns is not None:
            time_ns = sum(stage.execution_time_ns for stage in job.stages)
            self._pause_ns = PROBE_INTERVAL * time_ns // workers
            self._next_ns = now_ns + self._pause_ns
            self._last_ns = job.start_ns

    def _is_wanted_beside(self, task: str) -> bool:
        """Whether other tasks started jobs shortly before or after the last probe."""
        since_ns = self._last_ns - self._pause_ns
        return any(
            begin_ns > since_ns for name, begin_ns in self._begins_ns.items() if name != task
        )


class DeviceLimits:
    """Counts the stages in flight on the devices that have a limit."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        if any(limit < 1 for limit in limits.values()):
            raise ValueError(f"max_inflight must be >= 1 for each device: {dict(limits)}")
        self._limits = dict(limits)
        self._in_flight: Counter[str] = Counter()

    def room(self, state: TaskState, job: Job, held: Iterable[Job] = ()) -> int:
        """Number of stages that may still start on the device of the job's next one."""
        run = state.runs[job.variant][job.next_stage]
        if run is None or run.device not in self._limits:
            return sys.maxsize
        kept = sum(other.device == run.device for other in held)
        return self._limits[run.device] - self._in_flight[run.device] - kept

    def keep_place(self, state: TaskState, job: Job) -> None:
        """Record the device of a job that is about to join `held`."""
        run = state.runs[job.variant][job.next_stage]
        job.device = "" if run is None else run.device

    def places(self, running: Iterable[Job], now_ns: int) -> dict[str, list[int]]:
        """For each device with a limit, the times when its places become free, by the budgets."""
        places: dict[str, list[int]] = {device: [] for device in self._limits}
        for job in running:
            if job.device in places:
                places[job.device].append(max(now_ns, job.due_ns))
        for device, limit in self._limits.items():
            places[device] += [now_ns] * (limit - len(places[device]))
        return places

    def take(self, state: TaskState, job: Job) -> None:
        """Count the job's next stage, which is starting."""
        # Stored in the job, since the task may be replaced while the stage runs.
        self.keep_place(state, job)
        self._in_flight[job.device] += 1

    def give_back(self, job: Job) -> None:
        """Count the job's stage as done."""
        self._in_flight[job.device] -= 1

    def recount(self, running: Iterable[Job]) -> None:
        """Reset the counts to these jobs."""
        self._in_flight = Counter(job.device for job in running)
