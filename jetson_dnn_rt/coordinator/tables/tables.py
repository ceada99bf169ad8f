# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Profile tables: a policy's data on tasks and clocks.

The tables of NeuOS (Bateni & Liu 2020, table 1) relate each clock configuration to a speed-up and
a power-up, and each variant to a worst-case time and an accuracy score, per layer. These tables
have the same per stage, with two differences: whole distributions of measured times in place of
one worst case, and measured accuracy in place of one point per layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.scheduling.job import sub_deadlines_ns

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def order_statistic(values: npt.NDArray[Any], share: float) -> npt.NDArray[Any]:
    """Smallest values that cover a share of the last axis, without interpolation.

    Like `numpy.quantile` with ``method="inverted_cdf"``, which numpy 1.21 (Ubuntu 22.04) lacks.
    """
    rank = max(1, math.ceil(share * values.shape[-1]))
    return np.asarray(np.sort(values, axis=-1)[..., rank - 1])


@dataclass(frozen=True, eq=False)
class ClockTable:
    """The clock configurations that policies choose from.

    A policy identifies one by its position here: 0 is the slowest, the last one the fastest.
    """

    space: ClockSpace  # all configurations of the board
    indices: Integers  # positions in `space`, [C]
    idle_w: Floats  # power of the board while nothing runs, in watts, [C]
    max_n: int  # position of the board's fastest nvpmodel preset
    max_q: int  # position of its most frugal one

    def __post_init__(self) -> None:
        if self.indices.ndim != 1 or not self.indices.size:
            raise ValueError(f"indices must be a list of numbers: {self.indices.tolist()}")
        count = len(self.indices)
        if self.idle_w.shape != (count,):
            raise ValueError(
                f"idle_w must have one value for each of {count} indices: {self.idle_w.shape}"
            )
        if not self.idle_w.min() >= 0.0:
            raise ValueError(f"idle_w must be >= 0: {self.idle_w.min()}")
        if len(np.unique(self.indices)) != count or not (
            0 <= self.indices.min() <= self.indices.max() < len(self.space)
        ):
            raise ValueError(f"indices must be different numbers below {len(self.space)}")
        for key in ("max_n", "max_q"):
            if not 0 <= getattr(self, key) < count:
                raise ValueError(f"{key} must be in [0, {count}): {getattr(self, key)}")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def slowest(self) -> int:
        """Position of the slowest configuration."""
        return 0

    @property
    def fastest(self) -> int:
        """Position of the fastest configuration."""
        return len(self.indices) - 1

    @cached_property
    def _space_indices(self) -> list[int]:
        indices: list[int] = self.indices.tolist()
        return indices

    def delay_ns(self, present: int, target: int) -> int:
        """Time until a change from one position to another takes effect."""
        indices = self._space_indices
        return self.space.delay_ns(indices[present], indices[target])

    def describe(self, position: int) -> str:
        """The configuration in words."""
        return self.space.describe(self._space_indices[position])

    def take(self, positions: Sequence[int], *, keep_presets: bool = True) -> ClockTable:
        """Table of some of the configurations, in rising order of their speed.

        `max_n` and `max_q` must be among them; without `keep_presets` the last and the first one
        replace them.
        """
        kept = list(positions)
        if keep_presets:
            if not {self.max_n, self.max_q} <= set(kept):
                raise ValueError(
                    f"positions must hold max_n {self.max_n} and max_q {self.max_q}, or "
                    "keep_presets be false"
                )
            max_n, max_q = kept.index(self.max_n), kept.index(self.max_q)
        else:
            max_n, max_q = len(kept) - 1, 0
        return ClockTable(self.space, self.indices[kept], self.idle_w[kept], max_n, max_q)


@dataclass(frozen=True, eq=False)
class TaskTable:
    """Profile of a task: V variants, K stages, C clock configurations, S frames."""

    task: str  # its name
    stages: tuple[str, ...]  # K names in their order
    variants: tuple[str, ...]  # V names, the most accurate one first
    deadline_ns: int  # relative deadline
    period_ns: int  # expected time between frames
    times_ns: Integers
    """Stage times of S frames, each task alone, at the fastest clocks, [V, K, S]. ``[:, :, s]``
    belongs to one frame: the time of the rest of a frame is a sum along one column."""
    slowdown: Floats  # time at a clock configuration relative to the fastest, [V, K, C]
    power_w: Floats  # power of the whole board while this stage runs alone, in watts, [V, K, C]
    loss: Floats
    """Accuracy lost by running a stage in a variant, [V, K]; the accuracy of a frame is 1 minus
    the losses of what ran. Derived: the loss of a whole variant was measured; its division among
    the stages is a model (REFERENCE 1.6 has one point per layer)."""
    usefulness: tuple[float, ...] = ()
    """PredJoule's U of each stage, [K], where it was measured over all configurations of the
    board; () = it is computed from these."""

    def __post_init__(self) -> None:
        shape = (len(self.variants), len(self.stages))
        if not self.variants or not self.stages:
            raise ValueError(f"table of task {self.task!r} needs a variant and a stage")
        for key, names in (("stages", self.stages), ("variants", self.variants)):
            if len(set(names)) != len(names) or "" in names:
                raise ValueError(f"{key} of task {self.task!r} must have different names: {names}")
        if not (0 < self.deadline_ns < 1 << 63 and 0 < self.period_ns < 1 << 63):
            raise ValueError(f"deadline_ns and period_ns of task {self.task!r} must be > 0")
        configurations = self.slowdown.shape[2:]
        for key, array, tail in (
            ("times_ns", self.times_ns, self.times_ns.shape[2:]),
            ("slowdown", self.slowdown, configurations),
            ("power_w", self.power_w, configurations),
            ("loss", self.loss, ()),
        ):
            if array.shape != (*shape, *tail) or 0 in array.shape or array.ndim > 3:
                raise ValueError(
                    f"{key} of task {self.task!r} must be {(*shape, *tail)}: {array.shape}"
                )
        if self.times_ns.ndim != 3 or self.times_ns.min() <= 0:
            raise ValueError(f"times_ns of task {self.task!r} must be > 0, in [V, K, S]")
        if self.slowdown.ndim != 3 or self.slowdown.min() < 1e-9 or self.power_w.min() < 0:
            raise ValueError(f"slowdown must be >= 1e-9, power_w >= 0 in task {self.task!r}")
        if self.loss.min() < 0:
            raise ValueError(f"loss of task {self.task!r} must be >= 0: {self.loss.min()}")
        if self.usefulness and (
            len(self.usefulness) != len(self.stages) or not min(self.usefulness) > 0.0
        ):
            raise ValueError(
                f"usefulness of task {self.task!r} must have a value > 0 for each of "
                f"{len(self.stages)} stages: {self.usefulness}"
            )

    @cached_property
    def median_ns(self) -> Integers:
        """Median time of each stage at the fastest clocks, [V, K]."""
        return self.quantile_ns(0.5)

    def quantile_ns(self, share: float) -> Integers:
        """Smallest profiled time that covers a share of the frames, [V, K]."""
        return np.asarray(order_statistic(self.times_ns, share), dtype=np.int64)

    def frame_quantile_ns(self, share: float) -> Integers:
        """Smallest profiled time of a whole frame that covers a share of the frames, [V]."""
        return np.asarray(order_statistic(self.times_ns.sum(axis=1), share), dtype=np.int64)

    @cached_property
    def sub_deadlines_ns(self) -> tuple[int, ...]:
        """NeuOS' sub-deadline of each stage, of the most accurate variant (REFERENCE 1.1)."""
        return sub_deadlines_ns(self.deadline_ns, self.median_ns[0].tolist())

    def accuracy(self, variant: int) -> float:
        """Accuracy of a frame that runs in one variant throughout."""
        return 1.0 - float(self.loss[variant].sum())

    def frame_costs(self, variant: int) -> tuple[Floats, Floats]:
        """Time (ns) and energy (W ns) of a median frame in one variant, by clocks, [C] each."""
        times = self.median_ns[variant][:, np.newaxis] * self.slowdown[variant]
        return times.sum(axis=0), (times * self.power_w[variant]).sum(axis=0)

    def take_variants(self, numbers: Sequence[int]) -> TaskTable:
        """Table of some of the variants."""
        kept = list(numbers)
        return replace(
            self,
            variants=tuple(self.variants[number] for number in kept),
            times_ns=self.times_ns[kept],
            slowdown=self.slowdown[kept],
            power_w=self.power_w[kept],
            loss=self.loss[kept],
        )

    def take_clocks(self, positions: Sequence[int]) -> TaskTable:
        """Table of some of the clock configurations."""
        kept = list(positions)
        return replace(
            self,
            slowdown=np.ascontiguousarray(self.slowdown[:, :, kept]),
            power_w=np.ascontiguousarray(self.power_w[:, :, kept]),
        )
