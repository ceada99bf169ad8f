# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""D3: every stage gets a deadline of its own, anew from what is left, and what fits into it."""

from __future__ import annotations

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.policy import Policy


class D3(Policy):
    """Dynamic deadlines (Gog, Kalra, Schafhalter, Gonzalez & Stoica, EuroSys 2022).

    A deadline policy divides the end-to-end deadline among the components of a pipeline. Each
    component is proactive: it runs the most accurate of its implementations whose profiled time
    fits its deadline, and the fastest where none does (Pylot's detector, `_pick_model`). When
    components take more or less time than they were given, the deadlines downstream are adjusted.

    Readings: a pipeline is a frame and its components are the stages. At every boundary the time
    that is left is divided among the remaining stages in proportion to their profiled times in the
    most accurate variant. A profiled time is the quantile at ``confidence`` (0.999 by default:
    Pylot reckons with P99.9) at the present clocks, times the interference of as many tasks as
    there are workers, since Pylot profiles the running pipeline. The end-to-end deadline is the
    task's parameter ``deadline_ms``, which may change while it runs.

    Left out: computing that deadline from speed and obstacles, which a perception node does not
    know; handlers that replace the output of a component that is late by an older or cheaper one
    (the maps between the stages of one frame are of no use to another: the engine aborts a frame
    whose rest does not fit in any variant); speculative execution.
    """

    adjusts_variants = True

    def prepare(self) -> None:
        """Compute the profiled times, and each stage's variants by rising loss."""
        together = min(len(self.tables), self.workers, len(self.interference))
        self._slowed = self.interference[together - 1]
        self._times_ns: list[list[list[int]]] = []
        self._orders: list[list[list[int]]] = []
        for table in self.tables:
            times_ns = table.quantile_ns(self.settings.confidence)
            self._times_ns.append(times_ns.tolist())
            # Along the variants, for each stage.
            orders = np.lexsort((times_ns, table.loss), axis=0)
            self._orders.append(orders.T.tolist())

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Divide what is left to the deadline; choose for the next stage."""
        variants = [member.variant for member in cohort.members]
        deciding = cohort.deciding
        if deciding >= 0:
            left_ns = cohort.members[deciding].absolute_deadline_ns - now_ns
            variants[deciding] = self._choose(cohort, deciding, left_ns)
        return Decision(tuple(variants), cohort.clocks_target)

    def _choose(self, cohort: Cohort, number: int, left_ns: int) -> int:
        """The most accurate variant that fits the next stage's share of what is left."""
        member, times_ns = cohort.members[number], self._times_ns[number]
        slowdown, clocks, stage = self.tables[number].slowdown, cohort.clocks, member.stage
        rest_ns = 0.0
        for later in range(stage, len(times_ns[0])):
            rest_ns += times_ns[0][later] * slowdown.item(0, later, clocks)
        share_ns = left_ns * times_ns[0][stage] * slowdown.item(0, stage, clocks)
        fastest, least_ns = member.variant, float("inf")
        for variant in self._orders[number][stage]:
            if not member.usable[variant]:
                continue
            time_ns = times_ns[variant][stage] * slowdown.item(variant, stage, clocks)
            # time <= left * full / rest, multiplied out: an exact fit has to be one.
            if time_ns * self._slowed * rest_ns <= share_ns:
                return variant
            if time_ns < least_ns:
                fastest, least_ns = variant, time_ns
        return fastest
