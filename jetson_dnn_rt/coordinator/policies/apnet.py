# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ApNet: the least approximation that meets a task's deadline, planned offline."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.policy import Policy, usable
from jetson_dnn_rt.coordinator.tables.tables import TaskTable


class ApNet(Policy):
    """Layer-wise approximation without DVFS (Bateni & Liu, RTSS 2018).

    Derived (REFERENCE 2). Offline, per layer, a table of variants with their worst-case time and
    score; the plan is the least approximation with ``sum WCET <= D``, found greedily by time
    saved per score lost. The plan depends on how slow the machine is; all plans lie on one line
    from the original to the fastest, so a decision looks up a position on it.

    Readings: the WCET is the profiled quantile at ``confidence``, times the slow-down of the
    present clocks (of the whole network), times the interference of as many tasks as there are
    workers: ApNet plans for the worst case of its whole cohort. Its batching of two tasks at a
    layer with the same weights is left out: tasks of a cohort do not share weights here.
    """

    adjusts_variants = True

    def prepare(self) -> None:
        """Compute the plans of all tasks."""
        together = min(len(self.tables), self.workers, len(self.interference))
        slowed = self.interference[together - 1]
        self._plans = [make_plans(table, self.settings.confidence) for table in self.tables]
        self._slowness: list[list[float]] = []
        for table in self.tables:
            times, _ = table.frame_costs(0)
            fastest = float(table.median_ns[0].sum())
            self._slowness.append((times / fastest * slowed).tolist())

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Look up the plan of each task at the present clocks."""
        clocks = cohort.clocks
        variants = []
        for member, (times, plans), slowness in zip(
            cohort.members, self._plans, self._slowness, strict=True
        ):
            place = bisect_left(times, -member.deadline_ns / slowness[clocks])
            plan = plans[place] if place < len(plans) else plans[-1]
            variant = plan[member.stage if member.active else 0]
            if not member.usable[variant]:
                variant = _nearest(usable(member), variant)
            variants.append(variant)
        return Decision(tuple(variants), cohort.clocks_target)


def make_plans(table: TaskTable, confidence: float) -> tuple[list[int], list[tuple[int, ...]]]:
    """Plans from the original to the fastest, each step saving the most time per score lost.

    Of each stage only the variants on the convex hull of (score lost, time) are steps: the next
    one never saves more per score than the one before, so the order by best ratio keeps the order
    within each stage.

    Returns the worst-case time of each plan in nanoseconds, negated: rising, as `bisect` needs it;
    and the plans, a variant for each stage.
    """
    worst_ns = table.quantile_ns(confidence)
    steps: list[tuple[float, int, int]] = []
    plan = []
    for stage in range(len(table.stages)):
        times, losses = worst_ns[:, stage].tolist(), table.loss[:, stage].tolist()
        present = min(range(len(times)), key=lambda v: (losses[v], times[v]))
        plan.append(present)
        bound = float("inf")
        while True:
            ratio, chosen = 0.0, -1
            for variant, (time, loss) in enumerate(zip(times, losses, strict=True)):
                if time < times[present] and loss > losses[present]:
                    saved = (times[present] - time) / (loss - losses[present])
                    if saved > ratio:
                        ratio, chosen = saved, variant
            if chosen < 0:
                break
            # Rounding must not move a step before its predecessor.
            bound = min(bound, ratio)
            steps.append((-bound, stage, chosen))
            present = chosen
    stages = np.arange(len(plan))
    totals, plans = [-int(worst_ns[plan, stages].sum())], [tuple(plan)]
    # Stable: the steps of a stage keep their order where ratios are equal.
    for _, stage, chosen in sorted(steps, key=lambda step: step[:2]):
        plan[stage] = chosen
        totals.append(-int(worst_ns[plan, stages].sum()))
        plans.append(tuple(plan))
    return totals, plans


def _nearest(variants: Sequence[int], wanted: int) -> int:
    """The nearest usable variant in the table, faster ones first; `wanted` if there is none."""
    return min(variants, key=lambda v: (v < wanted, abs(v - wanted)), default=wanted)
