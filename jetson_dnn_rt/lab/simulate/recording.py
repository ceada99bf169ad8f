# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A recorded run as a world: the recorded arrivals, with execution times resampled in blocks.

A job trace (of ``jetson-dnn-rt run --output``) has the release of every frame and the time of each
of its stages. In the simulator the frames come at the same times, but with the execution times of
other recorded frames: recorded time is cut into blocks, and blocks drawn at random follow one
another. Bursts survive inside a block, and all tasks use the same block, so that a common
disturbance stays common (the circular block bootstrap of Politis & Romano, 1992).

A trace lacks the time that a frame would have taken if it was not run, or not to its end. A
missing stage is assumed to deviate from its median as it did in the frames before and after, and
as the part of the frame itself that ran: each counts with its share of the frame's usual time.

Networks that ran narrow (`scheduling.places`) took longer than their medians by a factor, too,
which is the median of all that did; where none did, it is what was measured before the run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.board import Floats
from jetson_dnn_rt.lab.simulate.scenario import Scenario
from jetson_dnn_rt.lab.simulate.sharing import Sharing
from jetson_dnn_rt.lab.simulate.world import World, WorldTask, make_generator
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import SHARED_STAGES, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import WARM_UP, TraceMetadata

_DONE = (Outcome.MET, Outcome.LATE)

WarmUpTimes = Mapping[str, list[tuple[int, ...]]]
"""For each variant, run by run, the times of its stages in ns."""


@dataclass(frozen=True, eq=False)
class RecordedTask:
    """A task of a trace: V variants, K stages, N frames."""

    name: str
    stages: tuple[str, ...]
    variants: tuple[str, ...]  # the one that most frames ran first
    spans: dict[str, tuple[int, ...]]  # by variant: stages in each of its runs
    deadline_ns: int  # the most common one
    period_ns: int  # the median
    releases_ns: Integers  # [N], on the clock of the trace
    captures_ns: Integers  # [N]
    sequences: Integers  # [N]
    base_ns: Floats  # [V, K] medians; that of a run over several stages is split among them
    noise: Floats  # [N, K] recorded time over the median
    overhead_ns: Integers  # [N, K] from a stage being ready and a worker free to its start
    wake_ns: Integers  # [N] from the release to when an idle worker looked for work
    report_ns: Integers  # [N] from the end of the last stage to when its frame was done
    has_gpu: bool = False  # whether the machine has one
    # [V, K] narrow time over wide time, medians; None: nothing is known of narrow ones.
    narrow: Floats | None = None
    # Before the run, how many times as long the network took narrow; if not known, while it ran.
    narrow_slowdowns: tuple[float, ...] = ()
    # By variant, the times of its warm-up runs if known: the first budgets came from them.
    warm_up_ns: WarmUpTimes = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.stages)) < len(self.stages):
            raise ValueError(f"two stages of task {self.name!r} have one name: {self.stages}")


@dataclass(frozen=True)
class Timeline:
    """Starts and ends of the stages of all tasks, each in ascending order.

    A last stage ends when its frame is done: only then is its worker free. `decisions_ns` are the
    times after which a stage that was ready may have begun: ends of others and, with helpers,
    releases.
    """

    starts_ns: Sequence[int]
    ends_ns: Sequence[int]
    decisions_ns: Sequence[int]
    sharing: Sharing
    has_gpu: bool = False  # whether the machine has one

    @classmethod
    def of(cls, records: Iterable[JobRecord], metadata: TraceMetadata) -> Timeline:
        """Make the timeline of all jobs of a trace; `ValueError` if the metadata is damaged."""
        records = list(records)
        stages = [stage for record in records for stage in record.stages]
        ends_ns = sorted(end_ns for record in records for end_ns in _list_ends(record))
        decisions_ns, sharing = ends_ns, Sharing.of(metadata)
        if sharing.helpers:
            decisions_ns = sorted([*ends_ns, *(record.release_ns for record in records)])
        starts_ns = sorted(stage.start_ns for stage in stages)
        has_gpu = bool(metadata.machine.get("gpu"))
        return cls(starts_ns, ends_ns, decisions_ns, sharing, has_gpu)


def read_recording(path: Path) -> list[RecordedTask]:
    """Read the tasks of a job trace, by name.

    `ConfigurationError` if it is missing, damaged, or no frame of a task ran to its end.
    """
    jobs: dict[str, list[JobRecord]] = defaultdict(list)
    try:
        trace = open_trace(path)
        for job in trace.jobs():
            jobs[job.record.task].append(job.record)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"trace {path}: {error}") from error
    if not jobs:
        raise ConfigurationError(f"trace {path}: holds no job")
    every = (record for records in jobs.values() for record in records)
    try:
        timeline, warm_up = Timeline.of(every, trace.metadata), read_warm_up(trace.metadata)
        return [
            replace(read_task(records, timeline), warm_up_ns=warm_up.get(name, {}))
            for name, records in sorted(jobs.items())
        ]
    except ValueError as error:
        raise ConfigurationError(f"trace {path}: {error}") from error


def read_warm_up(metadata: TraceMetadata) -> dict[str, WarmUpTimes]:
    """Read the times that the first budgets came from, by task; none of a trace without them.

    `ValueError` if they are damaged.
    """
    try:
        return {
            name: {
                variant: [tuple(int(time_ns) for time_ns in run) for run in runs]
                for variant, runs in given.items()
            }
            for name, given in metadata.parameters.get(WARM_UP, {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{WARM_UP} must hold rows of times by task and variant") from error


def read_task(records: Sequence[JobRecord], timeline: Timeline) -> RecordedTask:
    """Build a recorded task from its records, at least one.

    `timeline` covers all tasks of the trace, to tell when workers were busy. `ValueError` if no
    frame ran to its end, or frames differ in their stages, or a stage only ran narrow and it is
    not known how many times as long it takes so.
    """
    jobs = sorted(records, key=lambda record: record.release_ns)
    name = jobs[0].task
    stages = _find_stages(jobs)
    runs = [_locate(job, stages) for job in jobs]
    used = Counter(stage.variant for job in runs for _, _, stage in job)
    variants = tuple(variant for variant, _ in used.most_common())
    spans = {variant: _find_spans(variant, runs, len(stages)) for variant in variants}
    slowdowns = (timeline.sharing.narrow_slowdowns or {}).get(name, ())
    base_ns, narrow = _find_medians(runs, variants, spans, len(stages), slowdowns)
    seen = [
        stage.execution_time_ns
        / base_ns[variants.index(stage.variant), first : first + span].sum()
        for job in runs
        for first, span, stage in job
        if stage.narrow
    ]
    releases = np.array([job.release_ns for job in jobs], np.int64)
    deadlines = Counter(job.absolute_deadline_ns - job.release_ns for job in jobs)
    return RecordedTask(
        name=name,
        stages=stages,
        variants=variants,
        spans={v: tuple(span for span in spans[v] if span) for v in variants},
        deadline_ns=deadlines.most_common(1)[0][0],
        period_ns=int(np.median(np.diff(releases))) if len(jobs) > 1 else releases.item() or 1,
        releases_ns=releases,
        captures_ns=np.array([job.capture_ns for job in jobs], np.int64),
        sequences=np.array([job.sequence for job in jobs], np.int64),
        base_ns=base_ns,
        noise=_find_noise(runs, variants, base_ns, narrow),
        overhead_ns=_find_overheads(jobs, runs, timeline, len(stages)),
        wake_ns=_find_wakes(jobs, timeline),
        report_ns=_find_reports(jobs),
        has_gpu=timeline.has_gpu,
        narrow=narrow if seen or slowdowns else None,
        narrow_slowdowns=slowdowns or tuple(seen),
    )


def _list_ends(record: JobRecord) -> list[int]:
    ends_ns = [stage.end_ns for stage in record.stages]
    if record.outcome in _DONE:
        ends_ns[-1] = max(ends_ns[-1], record.completion_ns)
    return ends_ns


_Run = tuple[int, int, StageRecord]  # first stage, number of stages, record


def _expand(name: str) -> list[str]:
    """Names of the single stages: ``inference-1..3`` is three of them."""
    first, dots, last = name.partition("..")
    if not dots:
        return [name]
    stem, _, begin = first.rpartition("-")
    if not (begin.isdecimal() and last.isdecimal() and int(begin) < int(last)):
        raise ValueError(f"{name!r} does not name a run of stages")
    return [f"{stem}-{number}" for number in range(int(begin), int(last) + 1)]


def _find_stages(jobs: Sequence[JobRecord]) -> tuple[str, ...]:
    """Find the stages of the task, from the frames that ran to their end."""
    found = {
        tuple(name for stage in job.stages for name in _expand(stage.name))
        for job in jobs
        if job.outcome in _DONE
    }
    if not found:
        raise ValueError(f"no frame of task {jobs[0].task!r} ran to its end")
    if len(found) > 1:
        raise ValueError(f"frames of task {jobs[0].task!r} differ in their stages: {found}")
    return found.pop()


def _locate(job: JobRecord, stages: tuple[str, ...]) -> list[_Run]:
    runs, position = [], 0
    for stage in job.stages:
        span = len(_expand(stage.name))
        runs.append((position, span, stage))
        position += span
    if position > len(stages):
        raise ValueError(f"frame {job.sequence} of task {job.task!r} has too many stages")
    return runs


def _find_spans(variant: str, jobs: Sequence[list[_Run]], count: int) -> tuple[int, ...]:
    """Find the length of the run that a variant starts at each stage; 0 inside a run."""
    spans = [1] * count
    for runs in jobs:
        for first, span, stage in runs:
            if stage.variant == variant and span > 1:
                spans[first : first + span] = [span, *(0,) * (span - 1)]
    return tuple(spans)


def _find_medians(
    jobs: Sequence[list[_Run]],
    variants: tuple[str, ...],
    spans: dict[str, tuple[int, ...]],
    count: int,
    narrow_slowdowns: Sequence[float],
) -> tuple[Floats, Floats]:
    """Find the wide times of the stages, and how many times as long they are narrow."""
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    narrow_times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for runs in jobs:
        for first, _, stage in runs:
            found = narrow_times if stage.narrow else times
            found[stage.variant, first].append(stage.execution_time_ns)
    usual = float(np.median(narrow_slowdowns)) if narrow_slowdowns else 0.0
    base = np.zeros((len(variants), count))
    factors = np.full(base.shape, np.nan)
    for row, variant in enumerate(variants):
        for first, span in enumerate(spans[variant]):
            if not span:
                continue
            wide, narrow = times[variant, first], narrow_times[variant, first]
            if not wide and not (narrow and usual):
                how = "only narrow" if narrow else "never"
                raise ValueError(f"stage {first + 1} ran {how} in variant {variant!r}")
            median_ns = np.median(wide) if wide else np.median(narrow) / usual
            base[row, first : first + span] = max(1.0, float(median_ns)) / span
            if narrow:
                factors[row, first : first + span] = np.median(narrow) / max(1.0, median_ns)
    if not usual and not np.isnan(factors).all():
        usual = float(np.nanmedian(factors))
    return base, np.where(np.isnan(factors), usual or 1.0, factors)


def _find_noise(
    jobs: Sequence[list[_Run]], variants: tuple[str, ...], base_ns: Floats, narrow: Floats
) -> Floats:
    noise = np.full((len(jobs), base_ns.shape[1]), np.nan)
    for row, runs in enumerate(jobs):
        for first, span, stage in runs:
            variant = variants.index(stage.variant)
            expected = base_ns[variant, first : first + span].sum()
            if stage.narrow:
                expected *= narrow[variant, first]
            noise[row, first : first + span] = stage.execution_time_ns / expected
    known = ~np.isnan(noise)
    neighbours = _interpolate(noise)
    weights = base_ns[0] / base_ns[0].sum()
    ran = np.where(known, weights, 0.0).sum(axis=1)
    own = np.where(known, weights * noise, 0.0).sum(axis=1) / np.where(ran > 0.0, ran, 1.0)
    guess = own[:, np.newaxis] * ran[:, np.newaxis] + neighbours * (1.0 - ran[:, np.newaxis])
    return np.asarray(np.where(known, noise, guess))


def _find_overheads(
    jobs: Sequence[JobRecord], runs: Sequence[list[_Run]], timeline: Timeline, count: int
) -> Integers:
    """Find the time before each stage in which a worker was free and the frame ready.

    With several workers it is a lower bound: the worker that became free last need not be this
    one. If the first stage did not wait, the time belongs to `_find_wakes`. For an aborted frame,
    the time until its abort is that before the stage that did not run. With helpers a first stage
    may have waited until it was due: as long as the second one, if not known.
    """
    ends_ns = timeline.decisions_ns
    overheads = np.full((len(jobs), count), np.nan)
    for row, (job, located) in enumerate(zip(jobs, runs, strict=True)):
        ready_ns = job.release_ns
        for first, span, stage in located:
            place = bisect_right(ends_ns, stage.start_ns)
            free_ns = ends_ns[place - 1] if place else ready_ns
            if first or (free_ns > ready_ns and not timeline.sharing.helpers):
                overheads[row, first] = stage.start_ns - max(ready_ns, free_ns)
            overheads[row, first + 1 : first + span] = 0.0
            ready_ns = stage.end_ns
        next_stage = sum(span for _, span, _ in located)
        if job.outcome is Outcome.ABORTED and 0 < next_stage < count:
            free_ns = ends_ns[bisect_right(ends_ns, job.completion_ns) - 1]
            overheads[row, next_stage] = job.completion_ns - max(ready_ns, free_ns)
    if timeline.sharing.helpers and count > 1:
        overheads[:, 0] = overheads[:, 1]
    return np.maximum(0.0, _interpolate(overheads)).astype(np.int64)


def _find_wakes(jobs: Sequence[JobRecord], timeline: Timeline) -> Integers:
    """Find the time from a release to the first decision of a worker that was idle then.

    The decision is the first start after the release, of any task, or the end of a frame that was
    skipped at its start. Unknown if no worker was certainly idle, or the frame was skipped at its
    release. The time matters since a budget may no longer fit when the idle worker decides.
    """
    wakes = np.full((len(jobs), 1), np.nan)
    starts_ns, ends_ns = timeline.starts_ns, timeline.ends_ns
    for row, job in enumerate(jobs):
        release_ns, first = job.release_ns, bisect_left(starts_ns, job.release_ns)
        running = first - bisect_right(ends_ns, release_ns)
        if running > 0 or (job.start_ns is None and job.completion_ns == release_ns):
            continue
        decided_ns = job.completion_ns if job.start_ns is None else job.start_ns
        if first < len(starts_ns):
            decided_ns = min(decided_ns, starts_ns[first])
        wakes[row] = decided_ns - release_ns
    return np.maximum(0.0, _interpolate(wakes)).astype(np.int64)[:, 0]


def _find_reports(jobs: Sequence[JobRecord]) -> Integers:
    """Find the time from the end of the last stage to when the frame was done.

    It counts for the deadline, and on a busy machine it is not short: the worker needs a core, and
    the lock, before anybody knows of the result.
    """
    reports = np.full((len(jobs), 1), np.nan)
    for row, job in enumerate(jobs):
        if job.outcome in _DONE:
            reports[row] = job.completion_ns - job.stages[-1].end_ns
    return np.maximum(0.0, _interpolate(reports)).astype(np.int64)[:, 0]


def _interpolate(values: Floats) -> Floats:
    """Fill NaN with the mean of the nearest known values above and below in its column, or 0."""
    filled = np.zeros_like(values)
    rows = np.arange(len(values))
    for column in range(values.shape[1]):
        known = np.flatnonzero(~np.isnan(values[:, column]))
        if not len(known):
            continue
        last = len(known) - 1
        before = known[np.clip(np.searchsorted(known, rows, side="right") - 1, 0, last)]
        after = known[np.clip(np.searchsorted(known, rows, side="left"), 0, last)]
        filled[:, column] = (values[before, column] + values[after, column]) / 2.0
    return filled


class RecordedLaboratory:
    """Maker of the worlds of a scenario with a recording.

    `recorded` replaces the tasks of the scenario's trace. `ConfigurationError` if the trace is
    missing, damaged, or too short.
    """

    def __init__(self, scenario: Scenario, recorded: Sequence[RecordedTask] | None = None) -> None:
        if scenario.recording is None or scenario.trace is None:
            raise ConfigurationError(f"scenario {scenario.name} has no recording")
        self.scenario = scenario
        self._recording = scenario.recording
        self.recorded = read_recording(scenario.trace) if recorded is None else list(recorded)
        for variant in self._recording.loss:
            if not any(variant in task.variants for task in self.recorded):
                raise ConfigurationError(
                    f"{scenario.name}: recording.loss: no task ran a variant {variant!r}"
                )

    @property
    def warm_up_ns(self) -> dict[str, WarmUpTimes]:
        """Times that the first budgets of each task come from; empty where none are known."""
        return {task.name: task.warm_up_ns for task in self.recorded}

    @cached_property
    def clock_table(self) -> ClockTable:
        """Table of a single configuration: the clocks of the recording."""
        idle_w = np.array([self._recording.idle_w])
        return ClockTable(ClockSpace(()), np.zeros(1, np.int64), idle_w, 0, 0)

    @cached_property
    def tables(self) -> list[TaskTable]:
        """Recorded frames as a profile."""
        return [
            self._table(task, task.base_ns[:, :, np.newaxis] * task.noise.T)
            for task in self.recorded
        ]

    @property
    def true_tables(self) -> list[TaskTable]:
        """Tables of the medians only."""
        return [self._table(task, task.base_ns[:, :, np.newaxis]) for task in self.recorded]

    @property
    def interference(self) -> tuple[float, ...]:
        """No slow-down: the recorded times include it."""
        return (1.0,) * self.scenario.workers

    def world(self, seed: int, frames: int | None = None) -> World:
        """World of the recorded arrivals, with resampled times; at most the recorded frames."""
        recorded = max(len(task.sequences) for task in self.recorded)
        if frames is not None and frames > recorded:
            raise ConfigurationError(
                f"{self.scenario.name}: {frames} frames wanted, the trace has {recorded}"
            )
        origin_ns = min(int(task.releases_ns[0]) for task in self.recorded)
        last_ns = max(int(task.releases_ns[-1]) for task in self.recorded)
        resampling = Resampling(
            round(self._recording.block_ms * 1e6), last_ns - origin_ns, seed, self.scenario.name
        )
        tasks = tuple(
            self._world_task(task, origin_ns, resampling, frames) for task in self.recorded
        )
        power_w = np.zeros((1, 1, 3))
        power_w[0, 0, 0] = self._recording.busy_w - self._recording.idle_w
        return World(
            tasks=tasks,
            clock_table=self.clock_table,
            workers=self.scenario.workers,
            discipline=self.scenario.discipline,
            helpers=self.scenario.helpers,
            interference=self.interference,
            idle_w=self.clock_table.idle_w[np.newaxis],
            dynamic_w=power_w,
            end_ns=max(task.arrivals[-1][0] + task.parameters.deadline_ns for task in tasks),
            co_runners=self.scenario.co_runners,
        )

    def _loss(self, task: RecordedTask) -> Floats:
        stages = len(task.stages)
        losses = [self._recording.loss.get(variant, 0.0) for variant in task.variants]
        return np.repeat(np.array(losses)[:, np.newaxis] / stages, stages, axis=1)

    def _table(self, task: RecordedTask, times: Floats) -> TaskTable:
        ones = np.ones((*task.base_ns.shape, 1))
        return TaskTable(
            task.name,
            task.stages,
            task.variants,
            task.deadline_ns,
            task.period_ns,
            np.maximum(1, np.rint(times)).astype(np.int64),
            ones,
            ones * self._recording.busy_w,
            self._loss(task),
        )

    def _world_task(
        self, task: RecordedTask, origin_ns: int, resampling: Resampling, frames: int | None
    ) -> WorldTask:
        count = len(task.sequences) if frames is None else min(frames, len(task.sequences))
        releases = task.releases_ns[:count] - origin_ns
        columns = (releases, task.captures_ns[:count] - origin_ns, task.sequences[:count])
        rows = resampling.rows(releases, task.releases_ns - origin_ns)
        shape = (1, *task.base_ns.shape, 1)
        activity = np.zeros((*shape, 3))
        activity[..., 0] = 1.0
        return WorldTask(
            parameters=TaskConfig(
                task.name, budget_quantile=self.scenario.budget_quantile
            ).for_engine(
                task.stages, task.variants, period_ns=task.period_ns, deadline_ns=task.deadline_ns
            ),
            spans={v: _list_runs(v, spans, task) for v, spans in task.spans.items()},
            arrivals=tuple(map(tuple, np.stack(columns, axis=1).tolist())),
            base_ns=task.base_ns,
            noise=task.noise[rows],
            slowdown=np.ones(shape),
            activity=activity,
            loss=self._loss(task),
            overhead_ns=task.overhead_ns[rows],
            wake_ns=task.wake_ns[rows],
            report_ns=task.report_ns[rows],
            narrow=task.narrow,
            narrow_slowdowns=task.narrow_slowdowns,
        )


def _list_runs(variant: str, spans: Sequence[int], task: RecordedTask) -> tuple[Run, ...]:
    """Runs of a variant with their devices: its network's is that of its back end."""
    backend = variant.partition("@")[2].partition("-")[0]
    on_gpu = backend.startswith("tensorrt") or (backend == "torch" and task.has_gpu)
    device = "cuda" if on_gpu else "cpu"
    firsts = accumulate(spans[:-1], initial=0)
    return tuple(
        Run(span, "cpu" if task.stages[first] in SHARED_STAGES else device)
        for first, span in zip(firsts, spans, strict=True)
    )


class Resampling:
    """Map from simulated to recorded time.

    One block as long as the recording leaves everything in place.
    """

    def __init__(self, block_ns: int, length_ns: int, seed: int, name: str) -> None:
        self._block_ns = block_ns
        self._length_ns = length_ns
        blocks = length_ns // block_ns + 1
        starts_ns: Integers = np.zeros(1, np.int64)
        if blocks > 1:
            generator = make_generator(seed, "blocks", name)
            starts_ns = generator.integers(0, length_ns + 1, blocks)
        self._starts_ns = starts_ns

    def rows(self, times_ns: Integers, recorded_ns: Integers) -> Integers:
        """Position of the recorded frame, of ascending releases, nearest to each resampled time.

        Both count from the start of the recording.
        """
        blocks = times_ns // self._block_ns
        sources = self._starts_ns[blocks] + times_ns - blocks * self._block_ns
        # Wraps around at the end, so that all recorded times are equally likely.
        sources %= self._length_ns + 1
        after = np.clip(np.searchsorted(recorded_ns, sources), 1, max(1, len(recorded_ns) - 1))
        after = np.minimum(after, len(recorded_ns) - 1)
        before = np.maximum(after - 1, 0)
        nearer = sources - recorded_ns[before] <= recorded_ns[after] - sources
        return np.asarray(np.where(nearer, before, after), dtype=np.int64)
