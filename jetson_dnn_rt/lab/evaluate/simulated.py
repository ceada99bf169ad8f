"""Measured times through the simulator: what if deadlines, rates, policies or the cohort differed.

No net runs. The times come out of a job trace of an earlier evaluation or run: of a ``realtime``
one with its arrivals and overheads, of a ``sequential`` one with those of the bag and no
overheads, since nothing waited there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.arrivals import Arrivals, Integers, plan_arrivals
from jetson_dnn_rt.lab.simulate.recording import (
    RecordedLaboratory,
    RecordedTask,
    Timeline,
    read_task,
)
from jetson_dnn_rt.lab.simulate.scenario import record_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.traces.reader import Trace
from jetson_dnn_rt.traces.schema import TracedJob

IN_ORDER_MS = 1e12
"""A block that is longer than any recording: every frame takes its own recorded times."""

SEQUENTIAL = "sequential"

WARM_UP = "warm_up_ns"
"""Parameter of a trace: by task and variant the times of the runs that seeded its budgets."""


@dataclass(frozen=True)
class WhatIf:
    """What differs from the recording; the defaults change nothing.

    Attributes
    ----------
    deadlines_ns : mapping of str to int
        By task.
    variants : mapping of str to str
        The variant that a task runs, unless the policy says otherwise.
    cohort : tuple of str
        Tasks that run, a name twice for two of the kind; empty = those recorded.
    speed, rate_hz : float
        See `plan_arrivals`.
    policy : str
        One of `simulator.session.policy_names`.
    workers, discipline : int, str
        Of the engine.
    seeds : int
        0 = once, every frame with its own times; else so many runs with the times put anew in
        blocks.
    block_ms : float
        Length of those blocks.
    budget_quantile : float
        Of the engine's budgets, as recorded.
    """

    deadlines_ns: Mapping[str, int] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    cohort: tuple[str, ...] = ()
    speed: float = 1.0
    rate_hz: float = 0.0
    policy: str = "static"
    workers: int = 1
    discipline: str = "edf"
    seeds: int = 0
    block_ms: float = 2000.0
    budget_quantile: float = 0.99


def read_recorded(
    traces: Sequence[Trace], arrivals_ns: Mapping[str, Integers] | None = None
) -> list[RecordedTask]:
    """The tasks of job traces, in the trace's order: among equal deadlines the first goes first.

    Parameters
    ----------
    traces : sequence of Trace
        Of one kind: all sequential, or none.
    arrivals_ns : mapping of str to int64 [N], optional
        For traces of sequential evaluations by stream (``camera``) when each message of the
        topic was logged; without it the stamps of the frames are taken.

    Raises
    ------
    ConfigurationError
        When there is no job, no frame ran to its end, or the kinds are mixed.
    """
    kinds = {trace.metadata.parameters.get("mode") == SEQUENTIAL for trace in traces}
    if len(kinds) > 1:
        raise ConfigurationError("traces of sequential evaluations and of others cannot be mixed")
    jobs = [job for trace in traces for job in trace.jobs()]
    if not jobs:
        raise ConfigurationError(f"{', '.join(str(t.path) for t in traces)}: holds no job")
    try:
        if kinds == {True}:
            tasks = _read_sequential(jobs, arrivals_ns or {})
        else:
            tasks = _read_played([job.record for job in jobs])
    except ValueError as error:
        raise ConfigurationError(f"{traces[0].path}: {error}") from error
    metadata = traces[0].metadata
    order = {name: place for place, name in enumerate(metadata.tasks)}
    tasks.sort(key=lambda task: (order.get(task.name, len(order)), task.name))
    warm_up = metadata.parameters.get(WARM_UP, {})
    return [
        replace(
            task,
            warm_up_ns={
                variant: [tuple(run) for run in runs]
                for variant, runs in warm_up.get(task.name, {}).items()
            },
        )
        for task in tasks
    ]


def _read_played(records: Sequence[JobRecord]) -> list[RecordedTask]:
    timeline = Timeline.of(records)
    by_task: dict[str, list[JobRecord]] = defaultdict(list)
    for record in records:
        by_task[record.task].append(record)
    return [read_task(by_task[name], timeline) for name in sorted(by_task)]


def _read_sequential(
    jobs: Sequence[TracedJob], arrivals_ns: Mapping[str, Integers]
) -> list[RecordedTask]:
    timeline = Timeline.of(job.record for job in jobs)
    found: dict[str, dict[str, list[TracedJob]]] = defaultdict(lambda: defaultdict(list))
    seen = set()
    for job in jobs:
        record = job.record
        # Of repetitions the first: the others are the same frames again.
        place = record.task, record.variant, job.camera, record.sequence
        if not job.warm_up and place not in seen:
            seen.add(place)
            found[record.task][record.variant].append(job)
    return [_join_variants(found[name], timeline, arrivals_ns) for name in sorted(found)]


def _join_variants(
    variants: Mapping[str, list[TracedJob]],
    timeline: Timeline,
    arrivals_ns: Mapping[str, Integers],
) -> RecordedTask:
    """One task of its variants: every frame deviates from the usual as in the first of them."""
    tasks = [read_task([job.record for job in jobs], timeline) for jobs in variants.values()]
    first, jobs = tasks[0], next(iter(variants.values()))
    if any(task.stages != first.stages for task in tasks):
        raise ValueError(f"variants of task {first.name!r} differ in their stages")
    jobs = sorted(jobs, key=lambda job: job.record.release_ns)
    recorded = np.concatenate([[0], _arrived(jobs, arrivals_ns)]).astype(np.int64)[1:]
    arrivals = plan_arrivals(recorded, period_ns=first.period_ns)
    return replace(
        first,
        variants=tuple(name for task in tasks for name in task.variants),
        spans={name: spans for task in tasks for name, spans in task.spans.items()},
        base_ns=np.concatenate([task.base_ns for task in tasks]),
        releases_ns=arrivals.times_ns,
        captures_ns=arrivals.times_ns,
        sequences=np.arange(len(jobs)),
        period_ns=arrivals.period_ns,
        overhead_ns=np.zeros_like(first.overhead_ns),
        wake_ns=np.zeros_like(first.wake_ns),
    )


def _arrived(jobs: Iterable[TracedJob], arrivals_ns: Mapping[str, Integers]) -> list[int]:
    times = []
    for job in jobs:
        known = arrivals_ns.get(job.camera)
        time_ns = job.stamp_ns if known is None else int(known[job.record.sequence])
        if time_ns is None:
            raise ValueError("the trace says no time of its frames: give the bag, too")
        times.append(time_ns)
    return times


def change(tasks: Sequence[RecordedTask], what_if: WhatIf) -> list[RecordedTask]:
    """The recorded tasks as they would be.

    Raises
    ------
    ConfigurationError
        When a task or a variant that is named was not recorded, or the arrivals cannot be had.
    """
    by_name = {task.name: task for task in tasks}
    cohort = what_if.cohort or tuple(by_name)
    _check_names("cohort", cohort, by_name)
    _check_names("deadline", what_if.deadlines_ns, by_name)
    _check_names("variant", what_if.variants, by_name)
    return [
        replace(_change_task(by_name[name], what_if), name=title)
        for name, title in zip(cohort, _number(cohort), strict=True)
    ]


def _check_names(option: str, names: Iterable[str], known: Mapping[str, object]) -> None:
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"{option}: task {name!r} was not recorded, but {', '.join(known)}"
            )


def _number(names: Sequence[str]) -> list[str]:
    """Names that come more than once get numbers: ``detector``, ``detector-2``."""
    titles = []
    for place, name in enumerate(names):
        before = names[:place].count(name)
        titles.append(f"{name}-{before + 1}" if before else name)
    return titles


def _change_task(task: RecordedTask, what_if: WhatIf) -> RecordedTask:
    if task.name in what_if.variants:
        task = _put_first(task, what_if.variants[task.name])
    deadline_ns = what_if.deadlines_ns.get(task.name, task.deadline_ns)
    if what_if.speed == 1.0 and not what_if.rate_hz:
        return replace(task, deadline_ns=deadline_ns)
    origin_ns = task.releases_ns[0]
    arrivals: Arrivals = plan_arrivals(
        task.releases_ns - origin_ns,
        speed=what_if.speed,
        rate_hz=what_if.rate_hz,
        period_ns=task.period_ns,
    )
    releases = origin_ns + arrivals.times_ns
    return replace(
        task,
        deadline_ns=deadline_ns,
        releases_ns=releases,
        captures_ns=releases - (task.releases_ns - task.captures_ns),
        period_ns=arrivals.period_ns,
    )


def _put_first(task: RecordedTask, variant: str) -> RecordedTask:
    if variant not in task.variants:
        raise ConfigurationError(
            f"variant: {task.name} was not recorded in {variant}, but in "
            f"{', '.join(task.variants)}"
        )
    place = task.variants.index(variant)
    order = [place, *(other for other in range(len(task.variants)) if other != place)]
    return replace(
        task, variants=tuple(task.variants[i] for i in order), base_ns=task.base_ns[order]
    )


def simulate_recorded(
    tasks: Sequence[RecordedTask],
    what_if: WhatIf,
    observer: Callable[[JobRecord], None],
) -> list[Tally]:
    """Run the engine on recorded tasks, changed or not.

    Parameters
    ----------
    tasks : sequence of RecordedTask
        As `read_recorded` has them.
    what_if : WhatIf
        What differs.
    observer : callable
        Sees the record of every job, of all seeds.

    Returns
    -------
    list of Tally
        One for each seed.

    Raises
    ------
    ConfigurationError
        See `change`; or there is no such policy.
    """

    def observe(frame: SimulatedFrame) -> None:
        observer(frame.record)

    block_ms = what_if.block_ms if what_if.seeds else IN_ORDER_MS
    scenario = record_scenario(
        Path("evaluation"),
        block_ms=block_ms,
        workers=what_if.workers,
        discipline=what_if.discipline,
    )
    scenario = replace(scenario, budget_quantile=what_if.budget_quantile)
    changed = change(tasks, what_if)
    laboratory = RecordedLaboratory(scenario, changed)
    warm_up_ns = {task.name: task.warm_up_ns for task in changed}
    return [
        simulate(laboratory, what_if.policy, seed=seed, observer=observe, warm_up_ns=warm_up_ns)
        for seed in range(max(1, what_if.seeds))
    ]
