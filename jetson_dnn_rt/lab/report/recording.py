"""A trace as columns: what the report's figures and tables are made of.

A million jobs are some 80 MB of them; single rows are never made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.wcet.samples import KEYS, Sample, campaign_names, read_samples
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import Trace
from jetson_dnn_rt.traces.schema import TraceMetadata

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

OUTCOMES = tuple(Outcome)
"""What the codes in `TaskColumns.outcome` stand for."""

GAP_NS = 1_000_000_000
"""Between pooled traces on the axis of time: their clocks have nothing to do with each other."""

_MET, _LATE = OUTCOMES.index(Outcome.MET), OUTCOMES.index(Outcome.LATE)
_ABORTED = OUTCOMES.index(Outcome.ABORTED)
_NUMBERS = ("release_ns", "completion_ns", "absolute_deadline_ns", "waiting_ns")


@dataclass(frozen=True, eq=False)
class TaskColumns:
    """All jobs of a task, by rising release: N of them.

    Attributes
    ----------
    name : str
        Of the task.
    release_ns, response_ns, execution_ns, waiting_ns : int64 [N]
        Release counts from the beginning of the recording.
    deadline_ns : int64 [N]
        Relative deadlines; they may change while a task runs.
    outcome : int8 [N]
        Positions in `OUTCOMES`.
    variant : int32 [N]
        Positions in `variants`.
    variants : tuple of str
        Most used first; what ran only in part of a frame is joined by ``+``.
    started, warm_up : bool [N]
        Whether a stage ran; whether it is marked as warm-up.
    reasons : Counter of str
        Why jobs ended as they did: ``skipped: budget``.
    """

    name: str
    release_ns: Integers
    response_ns: Integers
    execution_ns: Integers
    waiting_ns: Integers
    deadline_ns: Integers
    outcome: npt.NDArray[np.int8]
    variant: npt.NDArray[np.int32]
    variants: tuple[str, ...]
    started: Flags
    warm_up: Flags
    reasons: Counter[str]

    def __len__(self) -> int:
        return len(self.release_ns)

    @property
    def finished(self) -> Flags:
        """Met or late: these have a response."""
        return np.asarray((self.outcome == _MET) | (self.outcome == _LATE))

    @property
    def missed(self) -> Flags:
        """Everything but met: the robot got no result in time."""
        return np.asarray(self.outcome != _MET)

    @property
    def usual_deadline_ns(self) -> int:
        """The median one."""
        return int(np.median(self.deadline_ns))

    @property
    def period_ns(self) -> int:
        """Median time between releases; 0 for a single job."""
        return int(np.median(np.diff(self.release_ns))) if len(self) > 1 else 0

    def count(self, outcome: Outcome) -> int:
        """Jobs that ended so."""
        return int(np.count_nonzero(self.outcome == OUTCOMES.index(outcome)))


@dataclass(frozen=True, eq=False)
class Recording:
    """One trace, or several pooled, with the samples for statistics.

    Attributes
    ----------
    label : str
        What the reader knows it by.
    metadata : TraceMetadata
        Of the first trace.
    tasks : dict of str to TaskColumns
        By name.
    samples : list of Sample
        Execution times by task and variant, and by clocks where they were recorded.
    stages : list of Sample
        The same of single stages, in the order of running.
    span_ns : int
        From the first release to the last completion.
    side_by_side : int
        Most stages that ran at the same moment: at least so many workers there were.
    """

    label: str
    metadata: TraceMetadata
    tasks: dict[str, TaskColumns]
    samples: list[Sample]
    stages: list[Sample]
    span_ns: int
    side_by_side: int = 1

    def samples_of(self, task: str) -> list[Sample]:
        """Campaigns of a task that hold a time, largest first."""
        chosen = [s for s in self.samples if dict(s.key)["task"] == task and len(s)]
        return sorted(chosen, key=len, reverse=True)

    def count_cut_off(self, sample: Sample) -> int:
        """Frames whose execution would be in a sample if they had not been aborted."""
        key = dict(sample.key)
        task = self.tasks[key["task"]]
        lost = (task.outcome == _ABORTED) & ~task.warm_up
        if "variant" in key:
            lost &= task.variant == task.variants.index(key["variant"])
        return int(np.count_nonzero(lost))

    def whole_of(self, task: str) -> Sample:
        """Execution times of a task in whatever variants it ran."""
        columns = self.tasks[task]
        measured = columns.finished & ~columns.warm_up
        return Sample(
            (("task", task),),
            columns.execution_ns[measured],
            columns.release_ns[measured],
            columns.execution_ns[columns.finished & columns.warm_up],
            columns.usual_deadline_ns,
        )

    def whole_stages_of(self, task: str) -> list[Sample]:
        """Stages of a task in whatever variants they ran."""
        found: dict[str, list[Sample]] = {}
        for stage in self.stages_of(task):
            found.setdefault(dict(stage.key)["stage"], []).append(stage)
        return [
            Sample(
                (("task", task), ("stage", name)),
                np.concatenate([stage.times_ns for stage in same]),
                np.concatenate([stage.release_ns for stage in same]),
                np.concatenate([stage.warm_up_ns for stage in same]),
            )
            for name, same in found.items()
        ]

    def stages_of(self, task: str) -> list[Sample]:
        """Stages of a task."""
        return [s for s in self.stages if dict(s.key)["task"] == task and len(s)]


@dataclass(slots=True)
class _Parts:
    """Columns of a task, batch by batch."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, **columns: Any) -> None:
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)


def read_recording(label: str, traces: Sequence[Trace]) -> Recording:
    """Read traces as one recording, one after the other in time.

    Parameters
    ----------
    label : str
        For the reader.
    traces : sequence of Trace
        At least one.

    Raises
    ------
    ConfigurationError
        When there is no job in them.
    ValueError
        When one of them is damaged.
    """
    parts: dict[str, _Parts] = {}
    order: dict[tuple[str, str], int] = {}
    with_clocks = False
    side_by_side = 1
    begin_ns = 0
    for trace in traces:
        origin_ns, end_ns = None, begin_ns
        for batch in trace.batches():
            if batch.num_rows:
                if origin_ns is None:
                    # Batches come by completion; a release before the first one's is possible.
                    origin_ns = int(_numbers(batch, "release_ns").min())
                shift_ns = begin_ns - origin_ns
                last_ns = _read_batch(batch, shift_ns, parts)
                with_clocks |= _read_stage_order(batch, order)
                side_by_side = max(side_by_side, _count_side_by_side(batch.column("stages")))
                end_ns = max(end_ns, last_ns)
        begin_ns = end_ns + GAP_NS
    if not parts:
        raise ConfigurationError(f"{label}: there is no job in it")
    by = [name for name in KEYS if name != "stage" and (name != "clocks" or with_clocks)]
    stages = read_samples(traces, [*by, "stage"])
    stages.sort(key=lambda sample: _place(sample, order))
    return Recording(
        label=label,
        metadata=traces[0].metadata,
        tasks={name: _finish(name, found) for name, found in sorted(parts.items())},
        samples=read_samples(traces, by),
        stages=stages,
        span_ns=begin_ns - GAP_NS,
        side_by_side=side_by_side,
    )


def _place(sample: Sample, order: dict[tuple[str, str], int]) -> tuple[str, str, int]:
    key = dict(sample.key)
    return key["task"], key["variant"], order.get((key["task"], key["stage"]), 0)


def _numbers(batch: Any, name: str) -> Integers:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.int64)


def _read_batch(batch: Any, shift_ns: int, parts: dict[str, _Parts]) -> int:
    """Share out the rows of a batch among the tasks; return the last completion."""
    release, completion, deadline, waiting = (_numbers(batch, name) for name in _NUMBERS)
    outcome = _code(batch.column("outcome"), [outcome.value for outcome in OUTCOMES])
    execution = _sum_stages(batch.column("stages"))
    started = ~np.asarray(batch.column("start_ns").is_null().to_numpy(zero_copy_only=False))
    warm_up = np.asarray(batch.column("warm_up").to_numpy(zero_copy_only=False), bool)
    variants = np.array(campaign_names(batch, "variant").to_pylist(), object)
    reasons = np.array(batch.column("reason").to_pylist(), object)
    tasks = batch.column("task").dictionary_encode()
    numbers = np.asarray(tasks.indices.to_numpy(zero_copy_only=False))
    for number, name in enumerate(tasks.dictionary.to_pylist()):
        rows = np.flatnonzero(numbers == number)
        found = parts.setdefault(name, _Parts())
        found.add(
            release_ns=release[rows] + shift_ns,
            response_ns=(completion - release)[rows],
            execution_ns=execution[rows],
            waiting_ns=waiting[rows],
            deadline_ns=(deadline - release)[rows],
            outcome=outcome[rows],
            variant=variants[rows],
            started=started[rows],
            warm_up=warm_up[rows],
        )
        for row in rows[reasons[rows] != ""]:
            found.reasons[f"{OUTCOMES[outcome[row]].value}: {reasons[row]}"] += 1
    return int(completion.max()) + shift_ns


def _code(column: Any, names: list[str]) -> npt.NDArray[np.int8]:
    encoded = column.dictionary_encode()
    table = np.array([names.index(name) for name in encoded.dictionary.to_pylist()], np.int8)
    return np.asarray(table[encoded.indices.to_numpy(zero_copy_only=False)])


def _stage_field(stages: Any, name: str) -> Any:
    return stages.values.field(name)


def _offsets(stages: Any) -> Integers:
    return np.asarray(stages.offsets.to_numpy(zero_copy_only=False), np.int64)


def _stage_times(stages: Any) -> tuple[Integers, Integers]:
    start, end = (
        np.asarray(_stage_field(stages, name).to_numpy(zero_copy_only=False), np.int64)
        for name in ("start_ns", "end_ns")
    )
    return start, end


def _count_side_by_side(stages: Any) -> int:
    """Most stages of a batch that ran at once; one that ends as another starts is not beside."""
    start, end = _stage_times(stages)
    first, last = stages.offsets[0].as_py(), stages.offsets[-1].as_py()
    times = np.concatenate([end[first:last], start[first:last]])
    steps = np.repeat([-1, 1], last - first)
    # Ends come first in the array, and the sort is stable: at equal times they count first.
    return int(np.cumsum(steps[np.argsort(times, kind="stable")]).max(initial=0))


def _sum_stages(stages: Any) -> Integers:
    """Execution of each job: the sum over its stages."""
    start, end = _stage_times(stages)
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(end - start)])
    offsets = _offsets(stages)
    return np.asarray(total[offsets[1:]] - total[offsets[:-1]])


def _read_stage_order(batch: Any, order: dict[tuple[str, str], int]) -> bool:
    """Take the place of each stage in its job; return whether clocks were read."""
    stages = batch.column("stages")
    offsets = _offsets(stages)
    names = _stage_field(stages, "name").dictionary_encode()
    codes = np.asarray(names.indices.to_numpy(zero_copy_only=False))
    jobs = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    codes = codes[offsets[0] : offsets[-1]]
    places = np.arange(offsets[0], offsets[-1]) - offsets[:-1][jobs]
    tasks = batch.column("task").dictionary_encode()
    of_task = np.asarray(tasks.indices.to_numpy(zero_copy_only=False))[jobs]
    task_names, stage_names = tasks.dictionary.to_pylist(), names.dictionary.to_pylist()
    for task, code, place in np.unique(np.stack([of_task, codes, places]), axis=1).T.tolist():
        key = (task_names[task], stage_names[code])
        order[key] = min(place, order.get(key, place))
    clocks = _stage_field(stages, "clocks").dictionary_encode()
    return any(clocks.dictionary.to_pylist())


def _finish(name: str, found: _Parts) -> TaskColumns:
    columns = {key: np.concatenate(values) for key, values in found.columns.items()}
    rising = np.argsort(columns["release_ns"], kind="stable")
    columns = {key: values[rising] for key, values in columns.items()}
    counts = Counter(columns["variant"].tolist())
    variants = tuple(variant for variant, _ in counts.most_common())
    places = {variant: place for place, variant in enumerate(variants)}
    columns["variant"] = np.array([places[v] for v in columns["variant"].tolist()], np.int32)
    return TaskColumns(name=name, variants=variants, reasons=found.reasons, **columns)
