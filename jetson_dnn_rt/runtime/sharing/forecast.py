# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Forecast of met deadlines: the scheduling engine at the tasks' rates, on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import Outcome, Work

FRAMES = 100  # of the task that comes least often
MOST_FRAMES = 1500  # of all tasks together, so that a forecast ends soon

_START, _VARIANT = 1_000_000_000, "measured"


Times = list[tuple[int, ...]]
"""Run by run the times of the stages of a task."""


@dataclass(frozen=True)
class TrialTask:
    """A task before it is loaded, and how often its frames come; `frame` is as large as they."""

    config: TaskConfig
    period_ns: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Forecast:
    """Frames of all tasks, and those that were done in time."""

    released: int
    met: int
    response_ms: float  # mean of those that were met; infinite where there is none

    @property
    def met_share(self) -> float:
        """Met frames by released ones."""
        return self.met / self.released


def forecast(
    tasks: Sequence[TrialTask], times: Mapping[str, Times], workers: int, discipline: str = "edf"
) -> Forecast:
    """Run the tasks in the engine, all released together at first, each at its rate.

    There is at least one task, and at least one run of each in `times`; they are taken in turn.
    Every stage takes what it took in that run, whichever others run beside it.
    """
    engine = Engine(workers, discipline)
    for precedence, task in enumerate(tasks):
        name = task.config.name
        # Of its parameters only these count: every frame is run, and by its deadline.
        config = TaskConfig(name, budget_quantile=task.config.budget_quantile)
        engine.add_task(
            config.for_engine(
                tuple(f"stage-{number + 1}" for number in range(len(times[name][0]))),
                (_VARIANT,),
                period_ns=task.period_ns,
                deadline_ns=task.config.deadline_ns(task.period_ns),
                precedence=precedence,
            )
        )
        engine.seed_budgets(name, _VARIANT, times[name])
    image = np.zeros((1, 1, 3), np.uint8)
    releases = [
        (_START + number * task.period_ns, precedence, task.config.name, number)
        for precedence, task in enumerate(tasks)
        for number in range(_count_frames(tasks, task))
    ]
    heapq.heapify(releases)
    running: list[tuple[int, int, int, Job]] = []
    order = 0
    while releases or running:
        now_ns = min(queue[0][0] for queue in (releases, running) if queue)
        while running and running[0][0] == now_ns:
            _, _, begin_ns, job = heapq.heappop(running)
            engine.boundary(job, now_ns, begin_ns, now_ns)
        while releases and releases[0][0] == now_ns:
            _, _, name, number = heapq.heappop(releases)
            engine.release(name, now_ns, now_ns, Work(Frame(image, "bgr8", now_ns, number)))
        while (started := engine.next(now_ns)) is not None:
            runs = times[started.task]
            time_ns = runs[started.sequence % len(runs)][started.next_stage]
            order += 1
            # A stage takes time, or the loop would not advance.
            heapq.heappush(running, (now_ns + max(1, time_ns), order, now_ns, started))
    ended = [record for record, _ in engine.take_ended()]
    met = [record.response_time_ns for record in ended if record.outcome is Outcome.MET]
    response_ms = sum(met) / len(met) / 1e6 if met else float("inf")
    return Forecast(len(ended), len(met), response_ms)


def _count_frames(tasks: Sequence[TrialTask], task: TrialTask) -> int:
    """Frames of a task while the slowest has `FRAMES`, or fewer where there are too many."""
    span_ns = FRAMES * max(other.period_ns for other in tasks)
    total = sum(span_ns / other.period_ns for other in tasks)
    share = min(1.0, MOST_FRAMES / total)
    return max(1, int(span_ns / task.period_ns * share))
