# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Plans for the rest of a frame and their costs, from every boundary on, at every clock.

A *plan* has a variant for each remaining stage. For each boundary a few plans are kept that no
other beats in both time and accuracy; for each of them and each clock configuration two times are
computed from the jointly profiled frames:

usual   what the plan takes as a rule (a quantile near the median)
safe    the high quantile, at the wanted confidence, of its next stage followed by the fastest
        rest: a frame that begins the plan and meets with bad luck can still be saved

A plan may begin when both `usual` and `safe` fit: later boundaries can still fall back on a faster
rest, so reserving the whole tail of the whole rest would be a waste.

Quantiles are of the *sum* over the stages of one frame, frame by frame. A sum of quantiles would
overestimate where stages vary independently, and a quantile of independent sums would
underestimate where they vary together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

import numpy as np

from jetson_dnn_rt.coordinator.tables.hull import new_minima
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, Integers, TaskTable

MAX_PLANS = 32
"""Plans kept per boundary. More would be finer steps in accuracy than stage times resolve."""

_TAIL_SHARE = 0.1
_PLENTY = 20
_FEW = 8


def tail_quantile(times: Floats, share: float) -> Floats:
    """High quantile of few samples, on the safe side.

    With `_PLENTY` samples beyond it, it is the empirical one. With fewer, the largest tenth is
    modelled as an exponential tail (a generalised Pareto one of shape 0, REFERENCE 6.3: heavier
    than the bounded tails of execution times), its scale at the upper end of its one-sided 95 %
    confidence interval; never less than the largest sample where that belongs to the tail. With
    fewer than `_FEW` samples there is no tail to fit: the largest one, widened by 1 / n.

    This is a budget, not a pWCET: nothing is claimed beyond `share`, in (0, 1). The samples lie
    along the last axis of `times`.
    """
    ordered = np.sort(times, axis=-1)
    count = ordered.shape[-1]
    beyond = count * (1.0 - share)
    empirical = ordered[..., _rank(count, share)]
    if beyond >= _PLENTY:
        return np.asarray(empirical)
    if count < _FEW:
        return np.asarray(ordered[..., -1] * (1.0 + 1.0 / count))
    excesses = max(ceil(_TAIL_SHARE * count), _FEW // 2)
    if beyond >= excesses:
        return np.asarray(empirical)
    threshold = ordered[..., -excesses - 1]
    scale = ordered[..., -excesses:].mean(axis=-1) - threshold
    scale *= 1.0 + 1.645 / excesses**0.5
    return np.asarray(np.maximum(empirical, threshold + scale * log(excesses / beyond)))


def _rank(count: int, share: float) -> int:
    """Rank of the smallest sample that covers a share of them."""
    return max(0, ceil(share * count - 1e-9) - 1)


@dataclass(frozen=True, eq=False)
class Rest:
    """Plans for the rest of a frame from one boundary on: P plans, C clock configurations.

    Times and energy are [P, C], alone on the machine; see the module for the two times.
    """

    plans: Integers  # a variant for each stage left, [P, K - stage]
    usual_ns: Floats
    safe_ns: Floats
    energy_j: Floats
    """Energy in addition to that of the idle board at its most frugal clocks: mean over the
    profiled frames."""
    loss: Floats  # accuracy lost, [P]

    def need_ns(self, reserve: float = 1.0) -> Floats:
        """Time that a plan needs to begin, [P, C].

        `reserve` >= 1 stretches `safe_ns`, for disturbances other than the frame's own scatter.
        """
        return np.maximum(self.usual_ns, reserve * self.safe_ns)


def build_rests(
    table: TaskTable, clock_table: ClockTable, confidence: float, usual: float
) -> tuple[Rest, ...]:
    """Find the plans of a task, one `Rest` for each boundary from 0 to K - 1.

    `confidence` is the quantile of `Rest.safe_ns`, `usual` that of `Rest.usual_ns`.
    """
    rests: list[Rest] = []
    later: Integers | None = None
    for stage in reversed(range(len(table.stages))):
        later = _extend(table, stage, later)
        rests.append(_evaluate(table, clock_table, stage, later, confidence, usual))
    return tuple(reversed(rests))


def _extend(table: TaskTable, stage: int, later: Integers | None) -> Integers:
    """Prepend each variant of a stage to each plan for the later stages; keep the best."""
    variants = np.arange(len(table.variants))
    if later is None:
        return variants[:, None]
    first = np.repeat(variants, len(later))
    plans = np.column_stack([first, np.tile(later, (len(variants), 1))])
    stages = np.arange(stage, len(table.stages))
    loss = table.loss[plans, stages].sum(axis=1)
    kept = np.all(plans == plans[:, :1], axis=1)
    # Stages slow down differently, so the fastest plan depends on the clocks: both ends count.
    for clocks in (-1, 0):
        scale = table.slowdown[:, :, clocks]
        time = (table.median_ns * scale)[plans, stages].sum(axis=1)
        # Between equals: accurate stages first. Later savings become unnecessary when the frame
        # turns out to be fast.
        order = np.lexsort((*plans.T[::-1], loss, time))
        kept[_thin(order[new_minima(loss[order], 1e-12)], loss)] = True
    return np.asarray(plans[kept])


def _thin(positions: Integers, loss: Floats) -> Integers:
    """Keep at most half of `MAX_PLANS` plans, evenly spread over the accuracy."""
    count = MAX_PLANS // 2
    if len(positions) <= count:
        return positions
    wanted = np.linspace(loss[positions[0]], loss[positions[-1]], count)
    nearest = np.abs(loss[positions][None, :] - wanted[:, None]).argmin(axis=1)
    return np.asarray(positions[np.unique(nearest)])


def _evaluate(
    table: TaskTable,
    clock_table: ClockTable,
    stage: int,
    plans: Integers,
    confidence: float,
    usual: float,
) -> Rest:
    """Times, energy and accuracy of plans."""
    stages = np.arange(stage, len(table.stages))
    clocks = len(clock_table)
    shape = (len(plans), clocks)
    usual_ns, safe_ns = np.empty(shape), np.empty(shape)
    rescue = table.median_ns[:, stages].argmin(axis=0)[1:]
    rescued = np.column_stack([plans[:, :1], np.tile(rescue, (len(plans), 1))])
    times = table.times_ns.astype(np.float64)
    for position in range(clocks):
        scale = table.slowdown[:, :, position]
        here = times * scale[:, :, None]
        whole = np.sort(here[plans, stages].sum(axis=1), axis=1)
        usual_ns[:, position] = whole[:, _rank(whole.shape[1], usual)]
        safe_ns[:, position] = tail_quantile(here[rescued, stages].sum(axis=1), confidence)
    added_w = np.maximum(0.0, table.power_w - clock_table.idle_w.min())
    joules = times.mean(axis=2)[:, :, None] * table.slowdown * added_w * 1e-9
    return Rest(
        plans,
        usual_ns,
        safe_ns,
        joules[plans, stages].sum(axis=1),
        table.loss[plans, stages].sum(axis=1),
    )
