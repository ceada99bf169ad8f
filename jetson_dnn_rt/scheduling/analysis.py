# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Schedulability analysis: utilisation, the EDF demand bound with blocking, weakly hard limits.

Costs are budgets (observed quantiles, so rounded up), deadlines are relative, all in nanoseconds;
the arithmetic is exact. `Verdict` words the result, for every log, summary and report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from jetson_dnn_rt.scheduling.task_state import WINDOW

TEST_POINT_LIMIT = 200_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """Observed times behind the budget of a stage."""

    stage: str
    budget_ns: int
    quantile: float  # of the observed times that is the budget, in (0, 1]
    count: int  # of the observed times
    largest_ns: int  # of the observed times

    def __str__(self) -> str:
        text = f"stage {self.stage} takes {_ms(self.budget_ns)}, the"
        if self.quantile == 1.0:
            return f"{text} largest of {self.count} times"
        return (
            f"{text} {100 * self.quantile:g} % quantile of {self.count} times (largest "
            f"{_ms(self.largest_ns)})"
        )

    def to_dict(self) -> dict[str, object]:
        """The estimate for JSON; times in milliseconds."""
        return {
            "stage": self.stage,
            "budget_ms": self.budget_ns / 1e6,
            "quantile": self.quantile,
            "count": self.count,
            "largest_ms": self.largest_ns / 1e6,
        }

    @property
    def steady_from(self) -> int:
        """Number of times from which on one slow time is not the budget; 0 = it is not now.

        0 as well where the quantile is so high that no number in the window would do.
        """
        counts = range(self.count, WINDOW + 1)
        least = next((n for n in counts if ceil(self.quantile * n) < n), self.count)
        return least if least > self.count else 0


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """A sporadic task in the analysis."""

    name: str
    cost_ns: int  # budget of a whole job
    longest_stage_ns: int  # budget of its longest stage: how long it can block others
    stages: int  # number of stages
    deadline_ns: int  # relative deadline
    period_ns: int  # least time between releases
    estimate: Estimate | None = None  # of its longest stage; None where nothing was observed
    met_of: tuple[int, ...] = ()  # its weakly hard limit, as in `TaskParameters`
    least_cost_ns: int = 0
    """Budget of a whole job at least, whatever variants it runs in; 0 = not known."""
    batch_group: str = ""  # tasks whose frames may share a run, as in `TaskParameters`

    @property
    def utilization(self) -> Fraction:
        """Share of one worker that the task needs."""
        return Fraction(self.cost_ns, self.period_ns)

    def __str__(self) -> str:
        whole = (
            f"task {self.name} with {_ms(self.cost_ns)} a frame by its budgets, a deadline of "
            f"{_ms(self.deadline_ns)} and a period of {_ms(self.period_ns)}"
        )
        return f"{whole}: its {self.estimate}" if self.estimate is not None else whole

    def to_dict(self) -> dict[str, object]:
        """The demand for JSON; times in milliseconds."""
        return {
            "task": self.name,
            "budget_ms": self.cost_ns / 1e6,
            "deadline_ms": self.deadline_ns / 1e6,
            "period_ms": self.period_ns / 1e6,
            "longest_stage": self.estimate and self.estimate.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the analysis."""

    schedulable: bool | None
    """None where a test that is only sufficient failed, or was given up."""
    utilization: float  # sum over the tasks; capacity is the number of workers
    workers: int
    reason: str  # the deciding test, in words and figures
    decided_by: TaskDemand | None = None
    """The task that weighs most in the test that failed; None where none did."""
    broken_limits: tuple[str, ...] = ()
    """Weakly hard limits that cannot hold by the budgets, each in words; see `find_broken`."""

    def __str__(self) -> str:
        words = {True: "schedulable", False: "NOT schedulable", None: "not proven schedulable"}
        text = (
            f"{words[self.schedulable]}: utilisation {self.utilization:.2f} of {self.workers} "
            f"worker{'s' if self.workers > 1 else ''}; {self.reason}"
        )
        if self.decided_by is not None:
            text = f"{text}; it rests on {self.decided_by}"
        return "; ".join((text, *self.broken_limits))

    def to_dict(self) -> dict[str, object]:
        """The verdict for JSON; times in milliseconds."""
        return {
            "schedulable": self.schedulable,
            "utilization": self.utilization,
            "workers": self.workers,
            "reason": self.reason,
            "rests_on": self.decided_by and self.decided_by.to_dict(),
            "broken_limits": list(self.broken_limits),
        }

    @property
    def advice(self) -> str:
        """What would change a verdict that is not `schedulable`."""
        advice = (
            "lengthen deadline_ms, lower the rate, or choose a faster variant or a smaller model; "
            "fewer threads make times steadier where cores are shared"
        )
        estimate = self.decided_by and self.decided_by.estimate
        if estimate and estimate.steady_from:
            return (
                f"measure more frames (warmup_runs before a start): with fewer than "
                f"{estimate.steady_from} times a single slow one is the budget; else {advice}"
            )
        return advice

    def explain(self, met: Mapping[str, tuple[int, int]]) -> str:
        """The verdict beside what happened.

        `met` has for each task the frames that met their deadlines, and all of its frames.
        """
        if self.schedulable:
            return str(self)
        counts = (f"{name} {count} of {frames}" for name, (count, frames) in met.items())
        text = f"{self}. Met in this run: {', '.join(counts)}"
        if met and all(count == frames > 0 for count, frames in met.values()):
            text += (
                "; the verdict is about the worst case within these budgets, in which every stage "
                "takes its whole budget and the frames of all tasks come at once: it did not occur"
            )
        return f"{text}. To change the verdict: {self.advice}"


def analyse(
    tasks: Sequence[TaskDemand],
    workers: int = 1,
    most_points: int = TEST_POINT_LIMIT,
    threads: int = 0,
) -> Verdict:
    """Test whether EDF with preemption at stage boundaries meets every deadline.

    For one worker the test is the processor demand criterion with blocking: for every absolute
    deadline t of the synchronous pattern, ``max{q_j : D_j > t} + sum dbf_i(t) <= t`` (Baruah,
    "The limited-preemption uniprocessor scheduling of sporadic task systems", ECRTS 2005, with
    q_j the longest stage). It is exact for utilisation and sufficient for blocking. For more
    workers: the density test of Goossens, Funk and Baruah (Real-Time Systems 25, 2003), costs
    inflated by one blocking per stage; sufficient only. An empty task set is schedulable. With
    more than `most_points` deadlines to look at, the first test is given up.

    Stages that can be cancelled count whole. The job of one is hopeless no earlier than its
    budgets let it be done, since their sum is at most the deadline; and nothing is cancelled for a
    more urgent frame (`preemption`) in a set that passes, since none would be late behind a stage.

    `threads` is how many stages run at once, helpers included, by default `workers`: weakly hard
    limits that not even so many can keep are named (`find_broken`).
    """
    utilization = sum((task.utilization for task in tasks), Fraction())
    schedulable, reason, decided_by = _judge(tasks, utilization, workers, most_points)
    broken = find_broken(tasks, max(threads, workers))
    return Verdict(schedulable, float(utilization), workers, reason, decided_by, broken)


def find_broken(tasks: Sequence[TaskDemand], threads: int) -> tuple[str, ...]:
    """Describe the weakly hard limits that cannot hold if no frame takes less than its budget.

    Nothing is said of one that may hold: of a task with a limit only m of k frames count, of
    others none, and of tasks that may share a run (a batch) the one that needs most. A frame that
    takes longer than its deadline is never met; a task runs its frames one after the other, so it
    needs m frames' time within k periods; and all such tasks together need no more than `threads`.
    """
    broken = []
    shares: dict[str, tuple[Fraction, str]] = {}  # of a thread, by batch group or task
    for task in tasks:
        if not task.met_of or not task.least_cost_ns:
            continue
        least, frames = task.met_of
        share = Fraction(least * task.least_cost_ns, frames * task.period_ns)
        text = f"met_of [{least}, {frames}] of task {task.name}"
        if task.least_cost_ns > task.deadline_ns:
            why = f"a frame takes {_ms(task.least_cost_ns)} of its {_ms(task.deadline_ns)}"
        elif share > 1:
            why = (
                f"{least} frames take {_ms(least * task.least_cost_ns)} one after the other, and "
                f"{frames} come in {_ms(frames * task.period_ns)}"
            )
        else:
            key = f"group {task.batch_group}" if task.batch_group else f"task {task.name}"
            shares[key] = max(shares.get(key, (share, text)), (share, text))
            continue
        broken.append(f"{text} cannot hold by its budgets: {why}")
    total = sum((share for share, _ in shares.values()), Fraction())
    if total > threads:
        texts = " and ".join(text for _, text in shares.values())
        broken.append(
            f"{texts} cannot hold together by their budgets: these frames alone need "
            f"{float(total):.2f} of {threads} thread{'s' if threads > 1 else ''}"
        )
    return tuple(broken)


def _ms(time_ns: int) -> str:
    # A deadline of microseconds is a mistake that is to be seen.
    return f"{time_ns / 1e6:{'.2g' if 1_000 <= time_ns < 1_000_000 else '.1f'}} ms"


def _judge(
    tasks: Sequence[TaskDemand], utilization: Fraction, workers: int, most_points: int
) -> tuple[bool | None, str, TaskDemand | None]:
    if utilization > workers:
        heaviest = max(tasks, key=lambda task: task.utilization)
        return False, "more work arrives than the workers can do", heaviest
    for task in tasks:
        if task.cost_ns > task.deadline_ns:
            text = f"task {task.name} alone needs {_ms(task.cost_ns)} of its "
            return False, text + _ms(task.deadline_ns), task
    if workers == 1:
        return _test_demand(tasks, utilization, most_points)
    return _test_density(tasks, workers)


def demand_ns(tasks: Sequence[TaskDemand], interval_ns: int) -> int:
    """Execution that must be done inside any interval of this length: sum of dbf_i."""
    return sum(_demand_of(task, interval_ns) for task in tasks)


def _demand_of(task: TaskDemand, interval_ns: int) -> int:
    if interval_ns < task.deadline_ns:
        return 0
    return ((interval_ns - task.deadline_ns) // task.period_ns + 1) * task.cost_ns


def blocking_ns(tasks: Sequence[TaskDemand], interval_ns: int) -> int:
    """Longest stage of a task whose deadline is beyond the interval."""
    return max((t.longest_stage_ns for t in tasks if t.deadline_ns > interval_ns), default=0)


def _test_demand(
    tasks: Sequence[TaskDemand], utilization: Fraction, most_points: int
) -> tuple[bool | None, str, TaskDemand | None]:
    horizon_ns = _horizon_ns(tasks, utilization, most_points)
    points: set[int] = set()
    for task in tasks:
        count = max(0, (horizon_ns - task.deadline_ns) // task.period_ns + 1)
        if len(points) + count > most_points:
            return None, "utilisation so near 1 that the demand test has too many points", None
        points.update(task.deadline_ns + k * task.period_ns for k in range(count))
    for point_ns in sorted(points):
        demand = demand_ns(tasks, point_ns)
        blocking = blocking_ns(tasks, point_ns)
        if demand + blocking > point_ns:
            text = f"within {_ms(point_ns)}, {_ms(demand)} must be done after {_ms(blocking)} of"
            if demand > point_ns:
                decided_by = max(tasks, key=lambda task: _demand_of(task, point_ns))
            else:
                later = (task for task in tasks if task.deadline_ns > point_ns)
                decided_by = max(later, key=lambda task: task.longest_stage_ns)
            return False, f"{text} blocking", decided_by
    return True, f"demand bound holds at {len(points)} test points", None


def _horizon_ns(tasks: Sequence[TaskDemand], utilization: Fraction, most_points: int) -> int:
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
        beyond = longer > most_points * min(task.period_ns for task in tasks)
        if longer == length or beyond:
            return max(longest_deadline_ns, longer)
        length = longer


def _test_density(
    tasks: Sequence[TaskDemand], workers: int
) -> tuple[bool | None, str, TaskDemand | None]:
    densities = []
    for task in tasks:
        cost_ns = task.cost_ns + task.stages * blocking_ns(tasks, task.deadline_ns)
        densities.append(Fraction(cost_ns, min(task.deadline_ns, task.period_ns)))
    total, largest = sum(densities, Fraction()), max(densities, default=Fraction())
    bound = workers - (workers - 1) * largest
    figures = f"density with blocking {float(total):.2f}, bound {float(bound):.2f}"
    if total <= bound and largest <= 1:
        return True, figures, None
    return None, figures + " (a sufficient test only)", tasks[densities.index(largest)]
