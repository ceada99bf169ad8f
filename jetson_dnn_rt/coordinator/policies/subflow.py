# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""SubFlow: when a frame begins, as much of the network as fits its time, and no change after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policy import Policy, usable


class SubFlow(Policy):
    """Time-bound execution of a sub-network (Lee & Nirjon, RTAS 2020).

    A task has to be complete within a time budget, which may change from one execution to the
    next. The largest sub-network whose execution fits the budget is executed, and only that one.

    Readings: a sub-network is a variant of the task, the larger the more accurate; the budget is
    what a frame that begins has left to its deadline; the time of a variant is the quantile of
    profiled frames at ``confidence``, scaled to the present clocks, times the interference of as
    many tasks as there are workers. Where nothing fits, the fastest is executed.

    Left out: constructing sub-networks at run time from the importance of neurons, which takes
    kernels for partly active layers (variants here are built and measured before); training.
    """

    adjusts_variants = True

    def prepare(self) -> None:
        """Compute each task's variants by rising loss, and their times at the fastest clocks."""
        together = min(len(self.tables), self.workers, len(self.interference))
        self._slowed = self.interference[together - 1]
        self._menus: list[list[tuple[int, float]]] = []
        self._scales = []
        for table in self.tables:
            frames_ns = table.frame_quantile_ns(self.settings.confidence)
            order = np.lexsort((frames_ns, table.loss.sum(axis=1))).tolist()
            self._menus.append([(variant, float(frames_ns[variant])) for variant in order])
            totals_ns = table.median_ns.sum(axis=1)
            self._scales.append([table.frame_costs(v)[0] / t for v, t in enumerate(totals_ns)])

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Choose for a frame that begins."""
        variants = [member.variant for member in cohort.members]
        deciding = cohort.deciding
        if deciding >= 0 and not _keeps(cohort.members[deciding]):
            variants[deciding] = self._choose(cohort, deciding, now_ns)
        return Decision(tuple(variants), cohort.clocks_target)

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """The choice for the frame; before its start all usable variants."""
        state = cohort.members[member]
        return (state.variant,) if _keeps(state) else usable(state)

    def _choose(self, cohort: Cohort, number: int, now_ns: int) -> int:
        member, clocks = cohort.members[number], cohort.clocks
        budget_ns = member.absolute_deadline_ns - now_ns
        fastest, least_ns = member.variant, float("inf")
        for variant, frame_ns in self._menus[number]:
            if not member.usable[variant]:
                continue
            time_ns = frame_ns * float(self._scales[number][variant][clocks]) * self._slowed
            if time_ns <= budget_ns:
                return variant
            if time_ns < least_ns:
                fastest, least_ns = variant, time_ns
        return fastest


def _keeps(member: Member) -> bool:
    """Whether its frame has begun, in a variant that is still usable."""
    return member.started and member.usable[member.variant]
