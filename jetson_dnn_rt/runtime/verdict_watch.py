# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Present schedulability: with learned budgets, present deadlines and measured rates.

The verdict at the start rests on a few warm-up runs and on expected rates. It is wrong if the
machine was busy then, a deadline has been changed, or a topic has another rate.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.scheduling.analysis import (
    TEST_POINT_LIMIT,
    Estimate,
    TaskDemand,
    Verdict,
    analyse,
)
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import stage_name

PERIOD_NS = 900_000_000
"""Greatest age of a verdict; the diagnostics of several nodes ask for it once a second."""

READINGS = 11
"""Counts of released frames that are kept: rates are those of the last ten seconds."""

LEAST_FRAMES = 5
"""With fewer in that time the rate is not known: the expected one is assumed."""

MOST_POINTS = 5_000
"""Points of the demand test, which take some milliseconds: diagnostics share a thread with the
image callbacks."""


@dataclass(frozen=True, slots=True)
class PresentVerdict:
    """A verdict, and the rates that it rests on."""

    verdict: Verdict
    rates_hz: dict[str, float]
    assumed: frozenset[str]
    """Tasks whose rate is the expected one, since too few of their frames came lately."""

    def describe_rates(self) -> str:
        """The rates in words."""
        return ", ".join(
            f"{task} {rate_hz:.1f} Hz" + (" (assumed)" if task in self.assumed else "")
            for task, rate_hz in self.rates_hz.items()
        )

    def __str__(self) -> str:
        return f"{self.verdict}; frames come at: {self.describe_rates()}"


class VerdictWatch:
    """Judges the tasks of an executor at most once in `PERIOD_NS`; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=READINGS)
        self._last: PresentVerdict | None = None
        self._last_ns = 0

    def judge(self, executor: Executor, now_ns: int, *, over: bool = False) -> PresentVerdict:
        """The present verdict; with `over` frames have ceased, and the rates stay as they were.

        `NotAnsweringError` when a thread keeps the executor's lock.
        """
        with self._lock:
            if self._last is not None and not over and now_ns - self._last_ns < PERIOD_NS:
                return self._last
            expected_ns = executor.read_tasks(lambda state: state.parameters.period_ns)
            if not over:
                released = executor.read_tasks(lambda state: state.released)
                self._readings.append((now_ns, released))
            measured_ns = {
                task: period_ns
                for task in expected_ns
                if (period_ns := self._find_period_ns(task)) is not None
            }
            periods_ns = {**expected_ns, **measured_ns}
            self._last_ns = now_ns
            self._last = PresentVerdict(
                judge_tasks(executor, measured_ns, MOST_POINTS),
                {task: 1e9 / period_ns for task, period_ns in periods_ns.items()},
                frozenset(expected_ns.keys() - measured_ns.keys()),
            )
            return self._last

    def _find_period_ns(self, task: str) -> int | None:
        """Mean time between two frames lately, rounded down; None with too few frames."""
        counts: list[tuple[int, int]] = []
        for time_ns, released in reversed(self._readings):
            count = released.get(task)
            # The task was removed or added since: what was before is of another configuration.
            if count is None or (counts and count > counts[-1][1]):
                break
            counts.append((time_ns, count))
        if not counts:
            return None
        (last_ns, last), (first_ns, first) = counts[0], counts[-1]
        frames = last - first
        return max(1, (last_ns - first_ns) // frames) if frames >= LEAST_FRAMES else None


def judge_tasks(
    executor: Executor,
    periods_ns: Mapping[str, int] = MappingProxyType({}),
    most_points: int = TEST_POINT_LIMIT,
) -> Verdict:
    """Schedulability of the present tasks with the present budgets, deadlines and variants.

    Periods are those of `periods_ns` by task, else the expected ones; `most_points` as in
    `scheduling.analysis.analyse`. `NotAnsweringError` when a thread keeps the executor's lock.
    """
    demands = executor.read_tasks(lambda state: _make_demand(state, periods_ns))
    return analyse(list(demands.values()), executor.workers, most_points, executor.threads)


def _make_demand(state: TaskState, periods_ns: Mapping[str, int]) -> TaskDemand:
    parameters, spans = state.parameters, state.spans[state.parameters.variant]
    stages = state.budgets[parameters.variant]
    index = max(range(len(stages)), key=lambda index: stages[index].budget_ns)
    longest = stages[index]
    estimate = Estimate(
        stage_name(parameters.stages, index, spans[index]),
        longest.budget_ns,
        longest.quantile,
        longest.count,
        longest.largest_ns,
    )
    return TaskDemand(
        name=parameters.name,
        cost_ns=sum(stage.budget_ns for stage in stages),
        longest_stage_ns=longest.budget_ns,
        stages=len(stages),
        deadline_ns=parameters.deadline_ns,
        period_ns=periods_ns.get(parameters.name, parameters.period_ns),
        estimate=estimate if longest.count else None,
        met_of=parameters.met_of,
        least_cost_ns=state.least_budget_ns(),
        batch_group=parameters.batch_group,
    )
