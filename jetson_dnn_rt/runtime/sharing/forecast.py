"""Which deadlines would be kept: the scheduling engine at the tasks' rates, on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import Outcome, TaskParameters, Work

FRAMES = 100
"""Frames of the task that comes least often."""

MOST_FRAMES = 1500
"""Frames of all tasks together: the time that a forecast may take has an end."""

_START, _VARIANT = 1_000_000_000, "measured"


@dataclass(frozen=True, slots=True)
class ForecastTask:
    """A task and what its stages took.

    Attributes
    ----------
    name : str
        Of the task.
    period_ns, deadline_ns : int
        Between two frames, and from a frame's release to its deadline.
    times_ns : sequence of tuple of int
        Run by run the time of each stage; taken in turn.
    budget_quantile : float
        Of these times, that is the budget.
    """

    name: str
    period_ns: int
    deadline_ns: int
    times_ns: Sequence[tuple[int, ...]]
    budget_quantile: float = 0.99


@dataclass(frozen=True, slots=True)
class Forecast:
    """What became of the frames.

    Attributes
    ----------
    released, met : int
        Frames of all tasks, and those that were done in time.
    response_ms : float
        Mean time from release to the end of those that were; infinite where there is none.
    """

    released: int
    met: int
    response_ms: float

    @property
    def met_share(self) -> float:
        """Met frames by released ones."""
        return self.met / self.released


def forecast(tasks: Sequence[ForecastTask], workers: int, discipline: str = "edf") -> Forecast:
    """Run the tasks in the engine, all released together at first, each at its rate.

    Every stage takes what it took in one of the measured runs, whoever runs beside it then.

    Parameters
    ----------
    tasks : sequence of ForecastTask
        At least one, each with at least one run.
    workers, discipline : int, str
        As those of `Engine`.
    """
    engine = Engine(workers, discipline)
    for precedence, task in enumerate(tasks):
        stages = tuple(f"stage-{number + 1}" for number in range(len(task.times_ns[0])))
        engine.add_task(
            TaskParameters(
                task.name,
                task.deadline_ns,
                task.period_ns,
                stages,
                (_VARIANT,),
                _VARIANT,
                budget_quantile=task.budget_quantile,
                precedence=precedence,
            )
        )
        engine.seed_budgets(task.name, _VARIANT, list(task.times_ns))
    by_name = {task.name: task for task in tasks}
    image = np.zeros((1, 1, 3), np.uint8)
    releases = [
        (_START + number * task.period_ns, precedence, task.name, number)
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
            runs = by_name[started.task].times_ns
            time_ns = runs[started.sequence % len(runs)][started.next_stage]
            order += 1
            # A stage takes time, or the loop would not get on.
            heapq.heappush(running, (now_ns + max(1, time_ns), order, now_ns, started))
    ended = [record for record, _ in engine.take_ended()]
    met = [record.response_time_ns for record in ended if record.outcome is Outcome.MET]
    response_ms = sum(met) / len(met) / 1e6 if met else float("inf")
    return Forecast(len(ended), len(met), response_ms)


def _count_frames(tasks: Sequence[ForecastTask], task: ForecastTask) -> int:
    """Frames of a task while the slowest has `FRAMES`, or fewer where there are too many."""
    span_ns = FRAMES * max(other.period_ns for other in tasks)
    total = sum(span_ns / other.period_ns for other in tasks)
    share = min(1.0, MOST_FRAMES / total)
    return max(1, int(span_ns / task.period_ns * share))
