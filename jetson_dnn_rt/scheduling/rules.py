"""The engine's questions about one job: in which variant, is it hopeless, is it admitted."""

from __future__ import annotations

from collections.abc import Callable, Collection

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import Selector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Admission

_BUDGET, _PROBE = Admission.BUDGET, Admission.PROBE

RemainingTime = Callable[[str, int], int]
"""From a variant and a stage to the time from there to the end."""


def select(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Choose the variant of the next stage; False when none can go on from here."""
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
    """What is left of a job from a stage on, in the fastest variant that it may yet choose."""
    allowed = selector.allowed(state, job)
    if len(allowed) == 1:
        variant = allowed[0]
        return remaining_ns(variant if state.usable(variant, stage) else job.variant, stage)
    times_ns = [
        remaining_ns(variant, stage) for variant in allowed if state.usable(variant, stage)
    ]
    return min(times_ns) if times_ns else remaining_ns(job.variant, stage)


def can_make_it(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Whether it will more likely than not be done in time; a probe may try all the same."""
    if job.admission is _PROBE:
        return True
    usual_ns = shortest_ns(selector, state, job, job.next_stage, state.remaining_usual_ns)
    return now_ns + usual_ns <= job.absolute_deadline_ns


def is_admitted(selector: Selector, state: TaskState, job: Job, now_ns: int) -> bool:
    """Whether its budget fits, or did at its start; a probe is admitted whatever it is."""
    if job.admission is _BUDGET or job.admission is _PROBE:
        return True
    budget_ns = shortest_ns(selector, state, job, job.next_stage, state.remaining_budget_ns)
    return now_ns + budget_ns <= job.absolute_deadline_ns


def blocking_ns(running: Collection[Job], workers: int, now_ns: int) -> int:
    """Time until the first worker is free, as usual."""
    if len(running) < workers:
        return 0
    return max(0, min(job.usual_end_ns for job in running) - now_ns)


def predecessor_ns(state: TaskState, now_ns: int) -> int:
    """Time until the task's job in flight is done, as usual, if nothing preempts it."""
    job = state.in_flight
    if job is None:
        return 0
    if not job.running:
        return state.remaining_usual_ns(job.variant, job.next_stage)
    rest_ns = state.remaining_usual_ns(job.variant, job.next_stage + 1)
    return max(0, job.usual_end_ns - now_ns) + rest_ns
