# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Whether a running stage is cancelled for a more urgent frame that would be late behind it.

A cancelled stage runs again from its beginning, so its time so far is lost. The rule compares two
schedules of the frames that are here, in the order of the queue, as if no more came:

* *behind it*: the stage goes on, the urgent frame is too late;
* *instead*: the stage ends after the latency of a cancel, and begins again when its job is next.

It is cancelled only if the urgent frame and the job itself both make their deadlines instead, and
so does every other frame that makes it behind it. Instead counts by budgets, behind it by usual
times: both estimates err towards letting it run.

So no frame that is here is lost by it while budgets hold. One that arrives later may be, as after
any decision: it finds more work left, by the time that was lost. A set of tasks that the verdict
calls schedulable sees no cancel at all, since no frame in it is too late behind a stage.

For one worker: with more, another is free soon. Not while batches are formed, nor with a
coordinator, which counts each stage once.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import Rank, ReadyQueue
from jetson_dnn_rt.scheduling.task_state import TaskState

Plan = list[tuple[Rank, Job, int]]
"""Frames that are to run, in no order, with the time that each takes."""


def is_worth_cancelling(
    tasks: Mapping[str, TaskState],
    queue: ReadyQueue,
    running: Job,
    urgent: Job,
    now_ns: int,
    latency_ns: int,
) -> bool:
    """Whether the stage of `running` should end for `urgent`, whose task has no job in flight."""
    state = tasks[running.task]
    running_rank = _rank(state, queue, running, running.ready_ns)
    urgent_rank = _rank(tasks[urgent.task], queue, urgent, now_ns)
    if urgent_rank > running_rank:
        return False
    stage = running.next_stage
    whole_ns = state.remaining_budget_ns(running.variant, stage)
    rest_ns = state.remaining_usual_ns(
        running.variant, stage + state.spans[running.variant][stage]
    )
    urgent_ns = tasks[urgent.task].remaining_budget_ns(urgent.variant)
    instead: Plan = [(running_rank, running, whole_ns), (urgent_rank, urgent, urgent_ns)]
    behind: Plan = [(running_rank, running, rest_ns)]
    for other in tasks.values():
        if other.parameters.name == urgent.task:
            continue  # its older frame that waits is superseded
        for job in (other.in_flight, other.waiting):
            if job is None or job is running:
                continue
            rank = _rank(other, queue, job, job.ready_ns)
            variant, stage = job.variant, job.next_stage
            instead.append((rank, job, other.remaining_budget_ns(variant, stage)))
            behind.append((rank, job, other.remaining_usual_ns(variant, stage)))
    made = _find_made(instead, now_ns + latency_ns)
    if urgent not in made or running not in made:
        return False
    return _find_made(behind, max(now_ns, running.usual_end_ns)) <= made


def _rank(state: TaskState, queue: ReadyQueue, job: Job, ready_ns: int) -> Rank:
    started = job.start_ns is not None
    return queue.rank(job, state.parameters, state.misses_in_a_row, ready_ns, started=started)


def _find_made(plan: Plan, begin_ns: int) -> set[Job]:
    """Frames that make their deadlines one after the other; one that cannot takes no time."""
    made: set[Job] = set()
    for _, job, time_ns in sorted(plan, key=lambda entry: entry[0]):
        if begin_ns + time_ns <= job.absolute_deadline_ns:
            begin_ns += time_ns
            made.add(job)
    return made
