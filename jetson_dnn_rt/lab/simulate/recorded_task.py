"""What a job trace says about the tasks in it: arrivals, times of their stages, overheads.

What a trace cannot say: how long a frame that was not run, or not to its end, would have taken. A
stage that is missing deviates from its median as it did in the frames before and after, and as far
as the frame itself ran, as that part did: each counts with its share of the frame's usual time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.tables.tables import Integers
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.network import Floats
from jetson_dnn_rt.tasks import JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.reader import open_trace


@dataclass(frozen=True, eq=False)
class RecordedTask:
    """What a trace says about a task: V variants, K stages, N frames.

    Attributes
    ----------
    name : str
        Of the task.
    stages, variants : tuple of str
        The variant that most frames ran first.
    spans : mapping of str to tuple of int
        For each variant how many stages each of its runs does.
    deadline_ns, period_ns : int
        The usual ones.
    releases_ns, captures_ns : int64 [N]
        On the clock of the trace.
    sequences : int64 [N]
        Numbers of the frames.
    base_ns : float64 [V, K]
        Median times; that of a run over several stages is shared out among them.
    noise : float64 [N, K]
        Recorded time over the median.
    overhead_ns : int64 [N, K]
        From when a stage could have begun, with a worker free, to when it did.
    wake_ns : int64 [N]
        From the release to when an idle worker looked for work.
    warm_up_ns : mapping of str to list of tuple of int
        For each variant the times of its runs in warm-up frames, where they are known: the first
        budgets came from them.
    """

    name: str
    stages: tuple[str, ...]
    variants: tuple[str, ...]
    spans: dict[str, tuple[int, ...]]
    deadline_ns: int
    period_ns: int
    releases_ns: Integers
    captures_ns: Integers
    sequences: Integers
    base_ns: Floats
    noise: Floats
    overhead_ns: Integers
    wake_ns: Integers
    warm_up_ns: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeline:
    """Starts and ends of the stages of all tasks, both rising."""

    starts_ns: Sequence[int]
    ends_ns: Sequence[int]

    @classmethod
    def of(cls, records: Iterable[JobRecord]) -> Timeline:
        """That of all jobs of a trace."""
        stages = [stage for record in records for stage in record.stages]
        return cls(sorted(s.start_ns for s in stages), sorted(s.end_ns for s in stages))


def read_recording(path: Path) -> list[RecordedTask]:
    """Read the tasks of a job trace, in the order of their names.

    Raises
    ------
    ConfigurationError
        When it is missing, damaged, or no frame of a task ran to its end.
    """
    jobs: dict[str, list[JobRecord]] = defaultdict(list)
    try:
        for job in open_trace(path).jobs():
            jobs[job.record.task].append(job.record)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"trace {path}: {error}") from error
    if not jobs:
        raise ConfigurationError(f"trace {path}: holds no job")
    timeline = Timeline.of(record for records in jobs.values() for record in records)
    try:
        return [read_task(records, timeline) for _, records in sorted(jobs.items())]
    except ValueError as error:
        raise ConfigurationError(f"trace {path}: {error}") from error


def read_task(records: Sequence[JobRecord], timeline: Timeline) -> RecordedTask:
    """What the records of one task say.

    Parameters
    ----------
    records : sequence of JobRecord
        At least one, all of one task.
    timeline : Timeline
        Of all tasks in the trace: when workers were busy.

    Raises
    ------
    ValueError
        When no frame ran to its end, or frames differ in their stages.
    """
    jobs = sorted(records, key=lambda record: record.release_ns)
    name = jobs[0].task
    stages = _find_stages(jobs)
    runs = [_locate(job, stages) for job in jobs]
    used = Counter(stage.variant for job in runs for _, _, stage in job)
    variants = tuple(variant for variant, _ in used.most_common())
    spans = {variant: _find_spans(variant, runs, len(stages)) for variant in variants}
    base_ns = _find_medians(runs, variants, spans, len(stages))
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
        noise=_find_noise(runs, variants, base_ns),
        overhead_ns=_find_overheads(jobs, runs, timeline.ends_ns, len(stages)),
        wake_ns=_find_wakes(jobs, timeline),
    )


_Run = tuple[int, int, StageRecord]
"""First stage, number of stages, and the record."""


def _expand(name: str) -> list[str]:
    """Names of the single stages: ``inference-1..3`` stands for three."""
    first, dots, last = name.partition("..")
    if not dots:
        return [name]
    stem, _, begin = first.rpartition("-")
    if not (begin.isdecimal() and last.isdecimal() and int(begin) < int(last)):
        raise ValueError(f"{name!r} is no name of a run of stages")
    return [f"{stem}-{number}" for number in range(int(begin), int(last) + 1)]


def _find_stages(jobs: Sequence[JobRecord]) -> tuple[str, ...]:
    """Stages of the task, from the frames that ran to their end."""
    found = {
        tuple(name for stage in job.stages for name in _expand(stage.name))
        for job in jobs
        if job.outcome.value in ("met", "late")
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
    """How many stages a variant does from each on; 0 where it cannot be entered."""
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
) -> Floats:
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for runs in jobs:
        for first, _, stage in runs:
            times[stage.variant, first].append(stage.execution_time_ns)
    base = np.zeros((len(variants), count))
    for row, variant in enumerate(variants):
        for first, span in enumerate(spans[variant]):
            if not span:
                continue
            if (variant, first) not in times:
                raise ValueError(f"stage {first + 1} never ran in variant {variant!r}")
            median_ns = max(1.0, float(np.median(times[variant, first])))
            base[row, first : first + span] = median_ns / span
    return base


def _find_noise(jobs: Sequence[list[_Run]], variants: tuple[str, ...], base_ns: Floats) -> Floats:
    noise = np.full((len(jobs), base_ns.shape[1]), np.nan)
    for row, runs in enumerate(jobs):
        for first, span, stage in runs:
            expected = base_ns[variants.index(stage.variant), first : first + span].sum()
            noise[row, first : first + span] = stage.execution_time_ns / expected
    known = ~np.isnan(noise)
    neighbours = _interpolate(noise)
    weights = base_ns[0] / base_ns[0].sum()
    ran = np.where(known, weights, 0.0).sum(axis=1)
    own = np.where(known, weights * noise, 0.0).sum(axis=1) / np.where(ran > 0.0, ran, 1.0)
    guess = own[:, np.newaxis] * ran[:, np.newaxis] + neighbours * (1.0 - ran[:, np.newaxis])
    return np.asarray(np.where(known, noise, guess))


def _find_overheads(
    jobs: Sequence[JobRecord], runs: Sequence[list[_Run]], ends_ns: Sequence[int], count: int
) -> Integers:
    """Time before each stage in which a worker was free and the frame ready.

    With several workers a lower bound: the worker that became free last need not be this one.
    Where the first stage waited for nobody, the time is that of an idle worker to wake up. A frame
    that was aborted was so at a boundary that came when it came: what was lost until then is lost
    before the stage that it did not run.
    """
    overheads = np.full((len(jobs), count), np.nan)
    for row, (job, located) in enumerate(zip(jobs, runs, strict=True)):
        ready_ns = job.release_ns
        for first, span, stage in located:
            place = bisect_right(ends_ns, stage.start_ns)
            free_ns = ends_ns[place - 1] if place else ready_ns
            if first or free_ns > ready_ns:
                overheads[row, first] = stage.start_ns - max(ready_ns, free_ns)
            overheads[row, first + 1 : first + span] = 0.0
            ready_ns = stage.end_ns
        next_stage = sum(span for _, span, _ in located)
        if job.outcome is Outcome.ABORTED and 0 < next_stage < count:
            free_ns = ends_ns[bisect_right(ends_ns, job.completion_ns) - 1]
            overheads[row, next_stage] = job.completion_ns - max(ready_ns, free_ns)
    return np.maximum(0.0, _interpolate(overheads)).astype(np.int64)


def _find_wakes(jobs: Sequence[JobRecord], timeline: Timeline) -> Integers:
    """Time from a release to the first decision of a worker that was idle then.

    That is the first start after it, of whichever task, or the end of a frame that was skipped at
    its start. Where no worker was idle for sure, or the frame was skipped at its release, nothing
    is known. An idle worker decides so late: by then a budget may fit no more.
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


def _interpolate(values: Floats) -> Floats:
    """Fill what is NaN with the mean of the last known value before and the first one after.

    Where nothing is known at all, it is 0.
    """
    filled = np.zeros_like(values)
    for column in range(values.shape[1]):
        if np.isnan(values[:, column]).all():
            continue
        before, after = _nearest(~np.isnan(values[:, column]))
        filled[:, column] = (values[before, column] + values[after, column]) / 2.0
    return filled


def _nearest(known: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """For each place the last known one up to it, and the first from it on.

    Before the first and after the last known one both are that one.
    """
    places = np.flatnonzero(known)
    everything = np.arange(len(known))
    after = np.searchsorted(places, everything, side="left")
    before = np.searchsorted(places, everything, side="right") - 1
    last = len(places) - 1
    first: Integers = places[np.clip(before, 0, last)]
    second: Integers = places[np.clip(after, 0, last)]
    return first, second
