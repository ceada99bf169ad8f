# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Recording: a trace as columns, the basis of the report's figures and tables.

A million jobs take some 80 MB; single rows are never built.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.wcet.samples import (
    KEYS,
    Flags,
    Integers,
    Sample,
    campaign_names,
    encode,
    find_usual,
    read_numbers,
    read_samples,
    read_stages,
    read_warm_up,
    sum_stages,
)
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import Trace
from jetson_dnn_rt.traces.schema import TraceMetadata

OUTCOMES = tuple(Outcome)
"""Outcomes by their codes in `TaskColumns.outcome`."""

GAP_NS = 1_000_000_000
"""Gap between pooled traces on the time axis: their clocks are unrelated."""

_MET, _LATE = OUTCOMES.index(Outcome.MET), OUTCOMES.index(Outcome.LATE)
_ABORTED = OUTCOMES.index(Outcome.ABORTED)


def quantile(ordered: Any, share: float) -> float:
    """Return the smallest observed value that covers a share of the ascending values."""
    return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])


@dataclass(frozen=True, eq=False)
class TaskColumns:
    """All N jobs of a task, by ascending release.

    Releases count from the beginning of the recording; deadlines are relative and may change while
    a task runs. `outcome` holds positions in `OUTCOMES`, `variant` positions in `variants`, which
    has the most used first; variants that ran in parts of one frame are joined by ``+``. `started`
    marks jobs of which a stage ran. `reasons` counts why jobs ended as they did:
    ``skipped: budget``.
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
        """Jobs that met their deadline or were late, and so have a response."""
        return np.asarray((self.outcome == _MET) | (self.outcome == _LATE))

    @property
    def missed(self) -> Flags:
        """All jobs that were not met: the robot got no result in time."""
        return np.asarray(self.outcome != _MET)

    @property
    def usual_deadline_ns(self) -> int:
        """Median of the relative deadlines, one that it had."""
        return find_usual(self.deadline_ns)

    @cached_property
    def deadlines_ns(self) -> list[int]:
        """The relative deadlines that it had, ascending: one, unless it was changed."""
        return [int(deadline_ns) for deadline_ns in np.unique(self.deadline_ns)]

    @property
    def deadline_title(self) -> str:
        """What `usual_deadline_ns` is to be called."""
        return "usual deadline" if len(self.deadlines_ns) > 1 else "deadline"

    @property
    def slowest(self) -> tuple[int, str] | None:
        """Longest execution of a finished frame in any variant, and that variant; warm-up apart.

        None where no frame finished.
        """
        rows = np.flatnonzero(self.finished & ~self.warm_up)
        if not len(rows):
            return None
        row = rows[np.argmax(self.execution_ns[rows])]
        return int(self.execution_ns[row]), self.variants[self.variant[row]]

    @property
    def period_ns(self) -> int:
        """Median time between releases; 0 for a single job."""
        return int(np.median(np.diff(self.release_ns))) if len(self) > 1 else 0

    @cached_property
    def bursts(self) -> Bursts:
        """Runs of misses."""
        return find_bursts(self.missed, self.release_ns, self.period_ns)

    def count(self, outcome: Outcome) -> int:
        """Count the jobs with an outcome."""
        return int(np.count_nonzero(self.outcome == OUTCOMES.index(outcome)))


@dataclass(frozen=True, eq=False)
class Bursts:
    """Runs of consecutive frames without a result in time: lengths and first positions, [B] each.

    `longest_ns` is the longest time without a result: from the release of the first missed frame
    to that of the next met one, or of the last frame plus a period. `after_miss` is
    P(miss | the frame before was missed), NaN when no miss has a successor.
    """

    lengths: Integers
    starts: Integers
    longest: int
    longest_ns: int
    longest_start_ns: int
    after_miss: float


def find_bursts(missed: Flags, release_ns: Integers, period_ns: int) -> Bursts:
    """Find the runs of misses among frames in the order of release.

    The period is used as the time to the frame after the last.
    """
    edges = np.diff(np.concatenate([[0], missed.astype(np.int8), [0]]))
    starts, ends = (np.flatnonzero(edges == step).astype(np.int64) for step in (1, -1))
    lengths = ends - starts
    followed = missed[:-1]
    after = float(missed[1:][followed].mean()) if followed.any() else math.nan
    if not len(lengths):
        return Bursts(lengths, starts, 0, 0, 0, after)
    times_ns = np.append(release_ns, release_ns[-1] + period_ns)[ends] - release_ns[starts]
    worst = int(np.argmax(times_ns))
    longest_start_ns = int(release_ns[starts[worst]])
    return Bursts(
        lengths, starts, int(lengths.max()), int(times_ns[worst]), longest_start_ns, after
    )


def expect_bursts(lengths: Integers, count: int, miss_ratio: float) -> list[float]:
    """Expect how many bursts of each length there would be if misses fell independently.

    A run of exactly k among N independent frames: about ``N q^2 p^k`` with ``q = 1 - p``.
    """
    kept = 1.0 - miss_ratio
    return [count * kept * kept * miss_ratio**length for length in lengths.tolist()]


@dataclass(frozen=True)
class Spent:
    """Mean parts of the response of some frames; their sum is the response."""

    title: str
    execution_ns: float
    waiting_ns: float
    other_ns: float

    @property
    def response_ns(self) -> float:
        """Mean response of these frames."""
        return self.execution_ns + self.waiting_ns + self.other_ns


def split_response(task: TaskColumns) -> list[Spent]:
    """Split the response of usual frames, of the slowest percent and of the slowest frame.

    Only finished frames count, without warm-up; empty if there is none.
    """
    chosen = np.flatnonzero(task.finished & ~task.warm_up)
    if not len(chosen):
        return []
    order = chosen[np.argsort(task.response_ns[chosen], kind="stable")]
    count = len(order)
    found = []
    for title, rows in (
        ("usual frames", order[math.floor(0.25 * count) : max(1, math.ceil(0.75 * count))]),
        ("slowest 1 %", order[min(count - 1, math.floor(0.99 * count)) :]),
        ("slowest frame", order[-1:]),
    ):
        execution, waiting = task.execution_ns[rows].mean(), task.waiting_ns[rows].mean()
        rest = task.response_ns[rows].mean() - execution - waiting
        found.append(Spent(title, float(execution), float(waiting), max(0.0, float(rest))))
    return found


@dataclass(frozen=True, eq=False)
class Recording:
    """One trace, or several pooled, with the samples for statistics.

    `samples` are execution times by task and variant, and by clocks where they were recorded;
    `stages` those of single stages, in the order of running. `side_by_side` is the greatest number
    of stages that ran at once: there were at least so many workers.
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

    def stages_of(self, task: str, sample: Sample | None = None) -> list[Sample]:
        """Stages of a task that hold a time; with a sample, only those of its campaign."""
        keys = {("task", task), *(sample.key if sample else ())}
        return [s for s in self.stages if keys <= set(s.key) and len(s)]

    def count_cut_off(self, sample: Sample) -> int:
        """Count the frames missing from a sample because they were aborted."""
        key = dict(sample.key)
        task = self.tasks[key["task"]]
        lost = (task.outcome == _ABORTED) & ~task.warm_up
        if "variant" in key:
            lost &= task.variant == task.variants.index(key["variant"])
        return int(np.count_nonzero(lost))

    def whole_of(self, task: str) -> Sample:
        """Execution times of a task in all its variants."""
        columns = self.tasks[task]
        measured = columns.finished & ~columns.warm_up
        return Sample(
            (("task", task),),
            columns.execution_ns[measured],
            columns.release_ns[measured],
            columns.execution_ns[columns.finished & columns.warm_up],
            columns.usual_deadline_ns,
            columns.deadline_ns[measured],
        )

    def whole_stages_of(self, task: str) -> list[Sample]:
        """Stages of a task in all of its variants."""
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


def read_recording(label: str, traces: Sequence[Trace]) -> Recording:
    """Read one or more traces as one recording, one after the other in time.

    Raises
    ------
    ConfigurationError
        When they hold no job.
    ValueError
        When one of them is damaged.
    """
    parts: list[dict[str, Any]] = []
    order: dict[tuple[str, str], int] = {}
    with_clocks = False
    side_by_side = 1
    begin_ns = 0
    for trace in traces:
        origin_ns, end_ns = None, begin_ns
        for batch in trace.batches():
            if not batch.num_rows:
                continue
            if origin_ns is None:
                # Batches are ordered by completion; a release before the first one's is possible.
                origin_ns = int(read_numbers(batch, "release_ns").min())
            jobs = _read_jobs(batch, begin_ns - origin_ns)
            parts.append(jobs)
            with_clocks |= _read_stage_order(batch, order)
            side_by_side = max(side_by_side, _count_side_by_side(batch))
            end_ns = max(end_ns, int((jobs["release_ns"] + jobs["response_ns"]).max()))
        begin_ns = end_ns + GAP_NS
    if not parts:
        raise ConfigurationError(f"{label}: there is no job in it")

    def place(stage: Sample) -> tuple[str, str, int]:
        key = dict(stage.key)
        return key["task"], key["variant"], order.get((key["task"], key["stage"]), 0)

    by = [name for name in KEYS if name != "stage" and (name != "clocks" or with_clocks)]
    return Recording(
        label=label,
        metadata=traces[0].metadata,
        tasks=_split_tasks({name: np.concatenate([one[name] for one in parts]) for name in jobs}),
        samples=read_samples(traces, by),
        stages=sorted(read_samples(traces, [*by, "stage"]), key=place),
        span_ns=begin_ns - GAP_NS,
        side_by_side=side_by_side,
    )


def _read_jobs(batch: Any, shift_ns: int) -> dict[str, Any]:
    """Read the columns of a batch; times are shifted."""
    release, completion, deadline, waiting = (
        read_numbers(batch, name)
        for name in ("release_ns", "completion_ns", "absolute_deadline_ns", "waiting_ns")
    )

    def read_texts(column: Any) -> Any:
        # Rows share their texts.
        texts, codes = encode(column)
        return np.array(texts, object)[codes]

    names = [outcome.value for outcome in OUTCOMES]
    outcomes, codes = encode(batch.column("outcome"))
    return {
        "task": read_texts(batch.column("task")),
        "release_ns": release + shift_ns,
        "response_ns": completion - release,
        "execution_ns": sum_stages(*read_stages(batch)),
        "waiting_ns": waiting,
        "deadline_ns": deadline - release,
        "outcome": np.array([names.index(text) for text in outcomes], np.int8)[codes],
        "variant": read_texts(campaign_names(batch, "variant")),
        "started": ~np.asarray(batch.column("start_ns").is_null().to_numpy(zero_copy_only=False)),
        "warm_up": read_warm_up(batch),
        "reason": read_texts(batch.column("reason")),
    }


def _count_side_by_side(batch: Any) -> int:
    """Count the stages that ran at once; one that ends as another starts does not overlap it."""
    stages, _ = read_stages(batch)
    times = np.concatenate([stages["end_ns"], stages["start_ns"]])
    steps = np.repeat([-1, 1], len(times) // 2)
    # Ends come first in the array, and the sort is stable: at equal times they count first.
    return int(np.cumsum(steps[np.argsort(times, kind="stable")]).max(initial=0))


def _read_stage_order(batch: Any, order: dict[tuple[str, str], int]) -> bool:
    """Note the position of each stage in its job; return whether clocks were recorded."""
    stages, offsets = read_stages(batch)
    stage_names, codes = encode(stages["name"])
    jobs = np.repeat(np.arange(batch.num_rows), np.diff(offsets))
    places = np.arange(len(codes)) - offsets[:-1][jobs]
    task_names, numbers = encode(batch.column("task"))
    found = np.unique(np.stack([numbers[jobs], codes, places]), axis=1)
    for task, code, place in found.T.tolist():
        key = (task_names[task], stage_names[code])
        order[key] = min(place, order.get(key, place))
    return any(encode(stages["clocks"])[0])


def _split_tasks(columns: dict[str, Any]) -> dict[str, TaskColumns]:
    """Split jobs by task name; those of each task by ascending release."""
    tasks, reasons = columns.pop("task"), columns.pop("reason")
    rising = np.argsort(columns["release_ns"], kind="stable")
    tasks = tasks[rising]
    found = {}
    for name in sorted(set(tasks)):
        rows = rising[tasks == name]
        own = {column: values[rows] for column, values in columns.items()}
        own["variants"] = tuple(text for text, _ in Counter(own["variant"]).most_common())
        places = {variant: place for place, variant in enumerate(own["variants"])}
        own["variant"] = np.array([places[variant] for variant in own["variant"]], np.int32)
        own["reasons"] = Counter(
            f"{OUTCOMES[code].value}: {reason}"
            for code, reason in zip(own["outcome"], reasons[rows], strict=True)
            if reason
        )
        found[name] = TaskColumns(name=name, **own)
    return found
