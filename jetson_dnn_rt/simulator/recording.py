"""A recorded run as a world: its arrivals as they were, its execution times in blocks put anew.

A job trace (``jobs.jsonl`` of ``jetson-dnn-rt run --output``) says when every frame was released
and how long each of its stages took. In the simulator the frames come again at the same times, and
take the times of other recorded frames: recorded time is cut into blocks, and blocks drawn at
random are put one after the other. Inside a block nothing is torn apart, so bursts survive; all
tasks take the same block, so what disturbed them together still does (the moving-block bootstrap
of Kuensch, Annals of Statistics 1989).

What a trace cannot say: how long a frame that was not run, or not to its end, would have taken. A
stage that is missing gets the frame's other stages' mean deviation from their medians, a frame
without any that of the frame before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.tables import ClockTable, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.simulator.network import Floats
from jetson_dnn_rt.simulator.noise import make_generator
from jetson_dnn_rt.simulator.scenario import Scenario
from jetson_dnn_rt.simulator.world import World, WorldTask
from jetson_dnn_rt.tasks import JobRecord, StageRecord, TaskParameters
from jetson_dnn_rt.wcet.trace import read_trace


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
    overhead_ns : int64 [N]
        Time before each stage of a frame that neither stages nor waiting account for.
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


class RecordedLaboratory:
    """Makes the worlds of a scenario with a recording.

    Parameters
    ----------
    scenario : Scenario
        One with a recording.

    Raises
    ------
    ConfigurationError
        When the trace is missing, damaged, or too short to say anything.
    """

    def __init__(self, scenario: Scenario) -> None:
        if scenario.recording is None or scenario.trace is None:
            raise ConfigurationError(f"scenario {scenario.name} has no recording")
        self.scenario = scenario
        self._recording = scenario.recording
        self.recorded = read_recording(scenario.trace)
        for variant in self._recording.loss:
            if not any(variant in task.variants for task in self.recorded):
                raise ConfigurationError(
                    f"{scenario.name}: recording.loss: no task ran a variant {variant!r}"
                )

    @cached_property
    def clock_table(self) -> ClockTable:
        """One configuration: the clocks that it was recorded at."""
        idle_w = np.array([self._recording.idle_w])
        return ClockTable(ClockSpace(()), np.zeros(1, np.int64), idle_w, 0, 0)

    @cached_property
    def tables(self) -> list[TaskTable]:
        """The recorded frames as a profile."""
        return [self._table(task) for task in self.recorded]

    @property
    def true_tables(self) -> list[TaskTable]:
        """With the medians alone."""
        return [
            TaskTable(
                table.task,
                table.stages,
                table.variants,
                table.deadline_ns,
                table.period_ns,
                np.maximum(1, np.rint(task.base_ns)).astype(np.int64)[:, :, np.newaxis],
                table.slowdown,
                table.power_w,
                table.loss,
            )
            for table, task in zip(self.tables, self.recorded, strict=True)
        ]

    @property
    def interference(self) -> tuple[float, ...]:
        """None: the recorded times hold it already."""
        return (1.0,) * self.scenario.workers

    def world(self, seed: int, frames: int | None = None) -> World:
        """The recorded arrivals, with times resampled by the seed.

        Raises
        ------
        ConfigurationError
            When more frames are wanted than were recorded.
        """
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

    def _table(self, task: RecordedTask) -> TaskTable:
        times = task.base_ns[:, :, np.newaxis] * task.noise.T
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
        captures = task.captures_ns[:count] - origin_ns
        rows = resampling.rows(releases, task.releases_ns - origin_ns)
        shape = (1, *task.base_ns.shape, 1)
        activity = np.zeros((*shape, 3))
        activity[..., 0] = 1.0
        return WorldTask(
            parameters=TaskParameters(
                name=task.name,
                deadline_ns=task.deadline_ns,
                period_ns=task.period_ns,
                stages=task.stages,
                variants=task.variants,
                variant=task.variants[0],
                budget_quantile=self.scenario.budget_quantile,
            ),
            spans=task.spans,
            arrivals=tuple(
                zip(
                    releases.tolist(),
                    captures.tolist(),
                    task.sequences[:count].tolist(),
                    strict=True,
                )
            ),
            base_ns=task.base_ns,
            noise=task.noise[rows],
            slowdown=np.ones(shape),
            activity=activity,
            loss=self._loss(task),
            overhead_ns=task.overhead_ns[rows],
        )


class Resampling:
    """Which recorded time stands for which simulated one.

    Parameters
    ----------
    block_ns, length_ns : int
        Of a block, and of the recording. One block that is as long as the recording leaves
        everything where it was.
    seed, name : int, str
        Of the random numbers.
    """

    def __init__(self, block_ns: int, length_ns: int, seed: int, name: str) -> None:
        self._block_ns = block_ns
        blocks = length_ns // block_ns + 1
        latest_ns = max(0, length_ns - block_ns)
        generator = make_generator(seed, "blocks", name)
        self._starts_ns: Integers = generator.integers(0, latest_ns + 1, blocks)

    def rows(self, times_ns: Integers, recorded_ns: Integers) -> Integers:
        """For each time the recorded frame that stands for it.

        Parameters
        ----------
        times_ns : int64 [M]
            Releases, from the beginning.
        recorded_ns : int64 [N]
            Rising recorded releases, on the same origin.

        Returns
        -------
        int64 [M]
            Positions in `recorded_ns`: the nearest in time.
        """
        blocks = times_ns // self._block_ns
        sources = self._starts_ns[blocks] + times_ns - blocks * self._block_ns
        after = np.clip(np.searchsorted(recorded_ns, sources), 1, max(1, len(recorded_ns) - 1))
        after = np.minimum(after, len(recorded_ns) - 1)
        before = np.maximum(after - 1, 0)
        nearer = sources - recorded_ns[before] <= recorded_ns[after] - sources
        return np.asarray(np.where(nearer, before, after), dtype=np.int64)


# -- reading -------------------------------------------------------------------------------------


def read_recording(path: Path) -> list[RecordedTask]:
    """Read the tasks of a job trace, in the order of their names.

    Raises
    ------
    ConfigurationError
        When it is missing, damaged, or no frame of a task ran to its end.
    """
    jobs: dict[str, list[JobRecord]] = defaultdict(list)
    try:
        for record in read_trace(path):
            jobs[record.task].append(record)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"trace {path}: {error}") from error
    if not jobs:
        raise ConfigurationError(f"trace {path}: holds no job")
    try:
        return [read_task(records) for _, records in sorted(jobs.items())]
    except ValueError as error:
        raise ConfigurationError(f"trace {path}: {error}") from error


def read_task(records: Sequence[JobRecord]) -> RecordedTask:
    """What the records of one task say.

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
        overhead_ns=_find_overheads(jobs),
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
    ran = known.any(axis=1)
    means = np.nansum(noise[ran], axis=1) / known[ran].sum(axis=1)
    noise[ran] = np.where(known[ran], noise[ran], means[:, np.newaxis])
    return np.asarray(noise[_latest(ran)])


def _find_overheads(jobs: Sequence[JobRecord]) -> Integers:
    ran = np.array([bool(job.stages) for job in jobs])
    overheads = [job.overhead_ns // len(job.stages) if job.stages else 0 for job in jobs]
    return np.maximum(0, np.array(overheads, np.int64)[_latest(ran)])


def _latest(ran: npt.NDArray[np.bool_]) -> Integers:
    """For each frame the last one up to it that ran; for the first ones the first that did."""
    latest = np.maximum.accumulate(np.where(ran, np.arange(len(ran)), -1))
    latest[latest < 0] = int(np.argmax(ran))
    return latest
