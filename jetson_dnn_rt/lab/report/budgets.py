# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Schedulability with measured budgets: which tasks fit together, and which deadline would fit.

A budget is the time a job may take: an observed quantile, the high-water mark or, if there is one,
the upper bound of the pWCET. The analysis (`scheduling.analysis`) is a proof for jobs that stay
within their budgets and does not cover the others: hence one verdict for each budget.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jetson_dnn_rt.lab.report.recording import Recording, quantile
from jetson_dnn_rt.lab.wcet.samples import Sample
from jetson_dnn_rt.lab.wcet.statement import Campaign
from jetson_dnn_rt.scheduling.analysis import Estimate, TaskDemand, Verdict, analyse
from jetson_dnn_rt.traces.summary import has_quantile

P99, P999, HIGHEST, BOUND = "p99", "p99.9", "highest seen", "pWCET 1e-4"
"""Budgets, from the most optimistic to the most careful. Those that every task has are used: a
quantile needs a time above it, else it would be the highest one under another name."""

_QUANTILES = {P99: 0.99, P999: 0.999}
_BOUND_EXCEEDANCE = 1e-4
LEAST_TIMES = 20
"""Variants with fewer measured jobs get no budget."""
MOST_CHOICES = 48
"""Maximum number of combinations of variants that are analysed."""
MOST_VARIANTS = 3
_SEARCH_LIMIT = 64


@dataclass(frozen=True)
class Choice:
    """Choice of one variant for each of some tasks, with a verdict for each budget."""

    variants: dict[str, str]
    verdicts: dict[str, Verdict]

    @property
    def most_careful(self) -> str:
        """Most careful budget with which the choice fits; empty if there is none."""
        fitting = [name for name, verdict in self.verdicts.items() if verdict.schedulable]
        return fitting[-1] if fitting else ""


@dataclass(frozen=True)
class Needs:
    """Needs of a task beside the others as measured in all its variants, by budget.

    `variant` is the only one, or says how many there were; `slowest` is the one that the highest
    time was seen in. `deadline_ns` is the usual of `deadlines`. `least_deadline_ns` is the least
    relative deadline with which the analysis succeeds, the other tasks unchanged; None if no
    deadline would do.
    """

    variant: str
    slowest: str
    budgets_ns: dict[str, int]
    deadline_ns: int
    deadlines: int
    period_ns: int
    least_deadline_ns: dict[str, int | None]


@dataclass(frozen=True)
class Schedulability:
    """Verdicts on the whole cohort, as it ran and in each combination of variants.

    `ran` and `needs` are about all frames of each task, whatever variant they ran in: else the
    highest time seen would be that of one variant, under the name of them all. `count` is the
    number of measured jobs of the task with the fewest. `workers` stages run side by side.
    `mean_load` is that of all jobs that started, in workers: above `workers` no schedule helps.
    `choices` are all tasks in each combination of measured variants. If not all tasks fit with
    the highest times seen, `together` has the largest sets that do.
    """

    count: int
    workers: int
    mean_load: float
    ran: Choice
    needs: dict[str, Needs]
    choices: list[Choice]
    together: list[Choice]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdicts on the cohort as it ran, by budget."""
        return self.ran.verdicts

    @property
    def least_careful(self) -> str:
        """Most optimistic of the budgets."""
        return next(iter(self.verdicts))

    @property
    def left_out(self) -> list[str]:
        """Quantiles that are no budgets, because they would be the highest time seen."""
        return [name for name in _QUANTILES if name not in self.verdicts]


@dataclass(frozen=True)
class _Measured:
    """Measured task in one variant, or in all of them.

    `slowest` is the variant of the highest time.
    """

    task: str
    variant: str
    slowest: str
    count: int
    demands: dict[str, TaskDemand]


def analyse_recording(
    recording: Recording, campaigns: Mapping[str, Campaign], workers: int = 1
) -> Schedulability | None:
    """Analyse what was measured, with the usual deadlines and periods of its tasks.

    Campaigns are by title of the sample; a missing one means no bound. The result is None when no
    task has enough measured jobs, or none is released more than once.
    """
    measured: dict[str, list[_Measured]] = {}
    ran: list[_Measured] = []
    for name in recording.tasks:
        if (whole := _measure_whole(recording, name, campaigns)) is not None:
            ran.append(whole)
            measured[name] = _measure_variants(recording, name, campaigns) or [whole]
    if not ran:
        return None
    names = [b for b in (P99, P999, HIGHEST, BOUND) if all(b in m.demands for m in ran)]
    choices = [
        _judge(combination, names, workers)
        for combination in itertools.islice(itertools.product(*measured.values()), MOST_CHOICES)
    ]
    whole_cohort = _judge(ran, names, workers)
    fits = whole_cohort.verdicts[HIGHEST].schedulable
    together = [] if fits else _find_together(measured, names, workers)
    return Schedulability(
        min(m.count for m in ran),
        workers,
        sum(_mean_load(recording, name) for name in measured),
        whole_cohort,
        {
            m.task: _find_needs(m, ran, names, workers, len(recording.tasks[m.task].deadlines_ns))
            for m in ran
        },
        choices,
        together,
    )


def find_period(recording: Recording, task: str) -> int:
    """Return the time between frames: as configured, else as measured; 0 = unknown.

    A profile and a sequential evaluation run frame after frame: their releases have no period.
    """
    described = recording.metadata.tasks.get(task)
    asked_ns = described.period_ns if described else 0
    return asked_ns or recording.tasks[task].period_ns


def _mean_load(recording: Recording, task: str) -> float:
    """Return the load if every frame had been started."""
    columns = recording.tasks[task]
    return float(columns.execution_ns[columns.finished].mean()) / find_period(recording, task)


def _measure_whole(
    recording: Recording, task: str, campaigns: Mapping[str, Campaign]
) -> _Measured | None:
    """Measure a task in all its variants; None with too few jobs, or without a period."""
    sample, samples = recording.whole_of(task), recording.samples_of(task)
    slowest = recording.tasks[task].slowest
    if len(sample) < LEAST_TIMES or slowest is None:
        return None
    if len(samples) == 1:
        bounds = [_find_bound(samples[0], campaigns)]
        stages, runs = recording.stages_of(task, samples[0]), 0
        title = samples[0].subtitle
    else:
        bounds = [_find_bound(one, campaigns) for one in samples]
        stages = recording.whole_stages_of(task)
        # Variants run the network in different numbers of runs: the most that a frame had.
        runs = max(len(recording.stages_of(task, one)) for one in samples)
        title = f"all {len(samples)} variants"
    # Without a bound for each variant there is none for the task.
    bound_ns = max(bounds) if all(bounds) else 0
    return _measure(recording, sample, stages, title, slowest[1], bound_ns, runs)


def _measure_variants(
    recording: Recording, task: str, campaigns: Mapping[str, Campaign]
) -> list[_Measured]:
    """Measure the variants of a task that ran most, each by itself."""
    found: list[_Measured] = []
    for sample in recording.samples_of(task):
        if len(sample) < LEAST_TIMES or len(found) == MOST_VARIANTS:
            continue
        stages, title = recording.stages_of(task, sample), sample.subtitle
        bound_ns = _find_bound(sample, campaigns)
        one = _measure(recording, sample, stages, title, title, bound_ns)
        found += [] if one is None else [one]
    return found


def _find_bound(sample: Sample, campaigns: Mapping[str, Campaign]) -> int:
    """Return the bound of a campaign that is a budget; 0 without one."""
    for bound in campaigns[sample.title].bounds if sample.title in campaigns else ():
        if math.isclose(bound.exceedance, _BOUND_EXCEEDANCE) and math.isfinite(bound.upper_ns):
            return max(math.ceil(bound.upper_ns), int(sample.times_ns.max()))
    return 0


def _measure(
    recording: Recording,
    sample: Sample,
    stages: Sequence[Sample],
    title: str,
    slowest: str,
    bound_ns: int,
    runs: int = 0,
) -> _Measured | None:
    """Make the demands of a sample; None without a period. `runs` = 0: as many as stages."""
    task = dict(sample.key)["task"]
    period_ns = find_period(recording, task)
    if not period_ns:
        return None
    largest = max(stages, key=lambda stage: _budgets(stage)[HIGHEST], default=None)
    longest_ns = _budgets(largest)[HIGHEST] if largest else 0
    budgets = _budgets(sample)
    if bound_ns:
        budgets[BOUND] = max(bound_ns, budgets[HIGHEST])
    fixed = max(1, runs or len(stages)), recording.tasks[task].usual_deadline_ns, period_ns
    demands = {}
    for name, budget_ns in budgets.items():
        longest = min(longest_ns, budget_ns) or budget_ns
        demands[name] = TaskDemand(task, max(1, budget_ns), longest, *fixed)
    if largest is not None:
        name = dict(largest.key)["stage"]
        estimate = Estimate(name, longest_ns, 1.0, len(largest), longest_ns)
        demands[HIGHEST] = replace(demands[HIGHEST], estimate=estimate)
    return _Measured(task, title, slowest, len(sample), demands)


def _budgets(sample: Sample) -> dict[str, int]:
    ordered = np.sort(sample.times_ns)
    budgets = {
        name: int(quantile(ordered, q))
        for name, q in _QUANTILES.items()
        if has_quantile(len(ordered), q)
    }
    return {**budgets, HIGHEST: int(ordered[-1])}


def _judge(measured: Sequence[_Measured], names: Sequence[str], workers: int) -> Choice:
    return Choice(
        {m.task: m.variant for m in measured},
        {
            name: analyse([m.demands[name] for m in measured], workers)
            for name in names
            if all(name in m.demands for m in measured)
        },
    )


def _find_together(
    measured: Mapping[str, list[_Measured]], names: Sequence[str], workers: int
) -> list[Choice]:
    """Find the largest sets of tasks, each in its fastest variant, that fit with highest times."""
    fastest = [
        min(variants, key=lambda m: m.demands[HIGHEST].cost_ns) for variants in measured.values()
    ]
    for size in range(len(fastest), 0, -1):
        sets = itertools.islice(itertools.combinations(fastest, size), MOST_CHOICES)
        judged = [_judge(chosen, names, workers) for chosen in sets]
        fitting = [choice for choice in judged if choice.verdicts[HIGHEST].schedulable]
        if fitting:
            return fitting
    return []


def _find_needs(
    measured: _Measured,
    cohort: Sequence[_Measured],
    names: Sequence[str],
    workers: int,
    deadlines: int,
) -> Needs:
    others = [m for m in cohort if m is not measured]
    demands = {name: measured.demands[name] for name in names}
    return Needs(
        measured.variant,
        measured.slowest,
        {name: demand.cost_ns for name, demand in demands.items()},
        demands[HIGHEST].deadline_ns,
        deadlines,
        demands[HIGHEST].period_ns,
        {
            name: find_least_deadline(demand, [m.demands[name] for m in others], workers)
            for name, demand in demands.items()
        },
    )


def find_least_deadline(
    task: TaskDemand, others: Sequence[TaskDemand], workers: int = 1, step_ns: int = 100_000
) -> int | None:
    """Find the least relative deadline, a multiple of `step_ns`, with which the analysis succeeds.

    The other tasks keep theirs. With one worker a longer deadline never hurts, so bisection finds
    the least; with several the test is only sufficient, and the result is one that it accepts.
    None when even 64 periods would not do.
    """

    def fits(steps: int) -> bool:
        changed = replace(task, deadline_ns=steps * step_ns)
        return bool(analyse([changed, *others], workers).schedulable)

    low = max(1, -(-task.cost_ns // step_ns))
    high = max(low, -(-_SEARCH_LIMIT * task.period_ns // step_ns))
    if not fits(high):
        return None
    return (low + bisect_left(range(low, high), True, key=fits)) * step_ns
