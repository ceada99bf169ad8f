# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Summary of a run from its job records: counts, exact order statistics, variants."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.traces.variant_use import VariantUse

Number = TypeVar("Number", int, float)

_TAILS = {"p99": 0.99, "p99.9": 0.999}


def order_statistic(ordered: Sequence[Number], quantile: float) -> Number:
    """Smallest of the ascending values that covers a share in (0, 1] of them.

    No interpolation: the p99 of a latency is a latency that occurred.
    """
    if not ordered:
        raise ValueError("ordered must hold at least one value")
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile must be in (0, 1]: {quantile}")
    return ordered[math.ceil(quantile * len(ordered)) - 1]


def has_quantile(count: int, quantile: float) -> bool:
    """Whether so many values have one above the quantile: else it is just their maximum.

    A p99 takes 100 values, a p99.9 takes 1,000.
    """
    return math.ceil(round(quantile * count, 6)) < count  # 99.9 / 100 is above 0.999


def hide_tails(times: Mapping[str, float | None], count: int) -> dict[str, float | None]:
    """Copy times for printing, with None for tails that are just the maximum of so many values."""
    return {
        name: time if name not in _TAILS or has_quantile(count, _TAILS[name]) else None
        for name, time in times.items()
    }


def summarize_ms(times_ns: Iterable[int]) -> dict[str, float | None]:
    """p50, p99 and maximum in milliseconds; None without observations.

    With fewer than 100 the p99 is the maximum: `hide_tails` leaves it out of what is printed.
    """
    ordered = sorted(times_ns)
    if not ordered:
        return {"p50": None, "p99": None, "max": None}
    return {
        "p50": order_statistic(ordered, 0.50) / 1e6,
        "p99": order_statistic(ordered, 0.99) / 1e6,
        "max": ordered[-1] / 1e6,
    }


_times = partial(array, "q")


@dataclass(slots=True)
class TaskSummary:
    """Counts and times of one task, added record by record; 24 bytes per completed job.

    Times are those of completed jobs (``met`` and ``late``): the others have no response.
    Variants are counted for every job that started, in `use` by what the network ran in.
    """

    deadline_ns: int = 0  # the last
    deadlines_ns: set[int] = field(default_factory=set)  # all: it can be changed
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    variants: Counter[str] = field(default_factory=Counter)
    use: VariantUse = field(default_factory=VariantUse)
    response_ns: array[int] = field(default_factory=_times)
    execution_ns: array[int] = field(default_factory=_times)
    overhead_ns: array[int] = field(default_factory=_times)

    def add(self, record: JobRecord) -> None:
        """Add a job that ended."""
        self.deadline_ns = record.absolute_deadline_ns - record.release_ns
        self.deadlines_ns.add(self.deadline_ns)
        self.outcomes[record.outcome] += 1
        if record.reason:
            self.reasons[f"{record.outcome.value}: {record.reason}"] += 1
        if record.start_ns is not None:
            self.variants[record.variant] += 1
            self.use.add(record)
        if record.outcome in (Outcome.MET, Outcome.LATE):
            self.response_ns.append(record.response_time_ns)
            self.execution_ns.append(record.execution_time_ns)
            self.overhead_ns.append(record.overhead_ns)

    @property
    def released(self) -> int:
        """Number of jobs: each ended in exactly one outcome."""
        return sum(self.outcomes.values())

    @property
    def met_ratio(self) -> float | None:
        """Share of all jobs that were met; None before the first."""
        return self.outcomes[Outcome.MET] / self.released if self.released else None

    def to_dict(self) -> dict[str, object]:
        """The task's part of the JSON of ``jetson-dnn-rt run``; times in milliseconds."""
        started = sum(self.variants.values())
        return {
            "released": self.released,
            "outcomes": {outcome.value: self.outcomes[outcome] for outcome in Outcome},
            "deadline_ms": self.deadline_ns / 1e6,
            "deadlines_ms": [deadline_ns / 1e6 for deadline_ns in sorted(self.deadlines_ns)],
            "finished": len(self.response_ns),
            "response_ms": summarize_ms(self.response_ns),
            "execution_ms": summarize_ms(self.execution_ns),
            "overhead_ms": summarize_ms(self.overhead_ns),
            "variants": {name: count / started for name, count in self.variants.most_common()},
            "configured_variant": self.use.configured or None,
            "first_variant": self.use.first or None,
            "time_shares": self.use.time_shares,
            "switches": {f"{a} -> {b}": n for (a, b), n in self.use.switches.most_common()},
        }


class RunSummary:
    """`TaskSummary` of every task, including named tasks that never got a frame.

    `configured` has the variants that tasks are configured with, by task.
    """

    def __init__(self, configured: Mapping[str, str] = MappingProxyType({})) -> None:
        self.tasks = {
            task: TaskSummary(use=VariantUse(variant)) for task, variant in configured.items()
        }

    def add(self, record: JobRecord) -> None:
        """Add a job that ended."""
        if record.task not in self.tasks:
            self.tasks[record.task] = TaskSummary()
        self.tasks[record.task].add(record)

    def to_dict(self) -> dict[str, object]:
        """Every task's `TaskSummary.to_dict`, by name."""
        return {name: task.to_dict() for name, task in self.tasks.items()}
