# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Schedulability analysis: utilisation and the EDF demand bound with blocking.

Costs are budgets (observed quantiles, so rounded up), deadlines are relative, all in nanoseconds;
the arithmetic is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

TEST_POINT_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """A sporadic task in the analysis."""

    name: str
    cost_ns: int  # budget of a whole job
    longest_stage_ns: int  # budget of its longest stage: how long it can block others
    stages: int  # number of stages
    deadline_ns: int  # relative deadline
    period_ns: int  # least time between releases

    @property
    def utilization(self) -> Fraction:
        """Share of one worker that the task needs."""
        return Fraction(self.cost_ns, self.period_ns)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the analysis."""

    schedulable: bool | None
    """None where a test that is only sufficient failed, or was given up."""
    utilization: float  # sum over the tasks; capacity is the number of workers
    workers: int
    reason: str  # the deciding test, in words and figures

    def __str__(self) -> str:
        words = {True: "schedulable", False: "NOT schedulable", None: "not proven schedulable"}
        return (
            f"{words[self.schedulable]}: utilisation {self.utilization:.2f} of {self.workers} "
            f"worker{'s' if self.workers > 1 else ''}; {self.reason}"
        )


def analyse(tasks: Sequence[TaskDemand], workers: int = 1) -> Verdict:
    """Test whether EDF with preemption at stage boundaries meets every deadline.

    For one worker the test is the processor demand criterion with blocking: for every absolute
    deadline t of the synchronous pattern, ``max{q_j : D_j > t} + sum dbf_i(t) <= t`` (Baruah,
    "The limited-preemption uniprocessor scheduling of sporadic task systems", ECRTS 2005, with
    q_j the longest stage). It is exact for utilisation and sufficient for blocking. For more
    workers: the density test of Goossens, Funk and Baruah (Real-Time Systems 25, 2003), costs
    inflated by one blocking per stage; sufficient only. An empty task set is schedulable.
    """
    utilization = sum((task.utilization for task in tasks), Fraction())
    schedulable, reason = _judge(tasks, utilization, workers)
    return Verdict(schedulable, float(utilization), workers, reason)


def _judge(
    tasks: Sequence[TaskDemand], utilization: Fraction, workers: int
) -> tuple[bool | None, str]:
    if utilization > workers:
        return False, "more work arrives than the workers can do"
    for task in tasks:
        if task.cost_ns > task.deadline_ns:
            return False, (
                f"task {task.name} alone needs {task.cost_ns / 1e6:.1f} ms "
                f"of its {task.deadline_ns / 1e6:.1f} ms"
            )
    if workers == 1:
        return _test_demand(tasks, utilization)
    return _test_density(tasks, workers)


def demand_ns(tasks: Sequence[TaskDemand], interval_ns: int) -> int:
    """Execution that must be done inside any interval of this length: sum of dbf_i."""
    return sum(
        ((interval_ns - task.deadline_ns) // task.period_ns + 1) * task.cost_ns
        for task in tasks
        if interval_ns >= task.deadline_ns
    )


def blocking_ns(tasks: Sequence[TaskDemand], interval_ns: int) -> int:
    """Longest stage of a task whose deadline is beyond the interval."""
    return max((t.longest_stage_ns for t in tasks if t.deadline_ns > interval_ns), default=0)


def _test_demand(tasks: Sequence[TaskDemand], utilization: Fraction) -> tuple[bool | None, str]:
    horizon_ns = _horizon_ns(tasks, utilization)
    points: set[int] = set()
    for task in tasks:
        count = max(0, (horizon_ns - task.deadline_ns) // task.period_ns + 1)
        if len(points) + count > TEST_POINT_LIMIT:
            return None, "utilisation so near 1 that the demand test has too many points"
        points.update(task.deadline_ns + k * task.period_ns for k in range(count))
    for point_ns in sorted(points):
        demand = demand_ns(tasks, point_ns)
        blocking = blocking_ns(tasks, point_ns)
        if demand + blocking > point_ns:
            return False, (
                f"within {point_ns / 1e6:.1f} ms, {demand / 1e6:.1f} ms must be done after "
                f"{blocking / 1e6:.1f} ms of blocking"
            )
    return True, f"demand bound holds at {len(points)} test points"


def _horizon_ns(tasks: Sequence[TaskDemand], utilization: Fraction) -> int:
    """Interval length beyond which the demand cannot exceed the interval.

    The smaller of the linear bound (utilisation < 1) and the synchronous busy period.
    """
    longest_deadline_ns = max((task.deadline_ns for task in tasks), default=0)
    if utilization < 1:
        slack = sum(
            (max(0, task.period_ns - task.deadline_ns) * task.utilization for task in tasks),
            Fraction(),
        )
        linear = -(-slack // (1 - utilization))
        return max(longest_deadline_ns, int(linear))
    length = sum(task.cost_ns for task in tasks)
    while True:
        longer = sum(-(-length // task.period_ns) * task.cost_ns for task in tasks)
        beyond = longer > TEST_POINT_LIMIT * min(task.period_ns for task in tasks)
        if longer == length or beyond:
            return max(longest_deadline_ns, longer)
        length = longer


def _test_density(tasks: Sequence[TaskDemand], workers: int) -> tuple[bool | None, str]:
    densities = []
    for task in tasks:
        cost_ns = task.cost_ns + task.stages * blocking_ns(tasks, task.deadline_ns)
        densities.append(Fraction(cost_ns, min(task.deadline_ns, task.period_ns)))
    total, largest = sum(densities, Fraction()), max(densities, default=Fraction())
    bound = workers - (workers - 1) * largest
    figures = f"density with blocking {float(total):.2f}, bound {float(bound):.2f}"
    if total <= bound and largest <= 1:
        return True, figures
    return None, figures + " (a sufficient test only)"
