# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Policies that leave the variants alone and need no tables."""

from __future__ import annotations

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.policy import Policy, configured


class Static(Policy):
    """The baseline: tasks run their configured variants, clocks stay as they were found."""

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Change nothing."""
        return Decision(configured(cohort), self.clocks(cohort))

    def clocks(self, cohort: Cohort) -> int:
        """The wanted clocks: those requested last."""
        return cohort.clocks_target


class MaxN(Static):
    """nvpmodel's Max-N: clocks as high as the preset allows.

    A reading: the stock governors below the preset are assumed to stay at its caps as long as the
    cohort runs. They lower clocks only after windows that are longer than the gaps between the
    frames of a camera stream.
    """

    adjusts_clocks = True
    preset = "max_n"

    def prepare(self) -> None:
        """Look up the preset."""
        self.fastest_clocks = getattr(self.clock_table, self.preset)

    def clocks(self, cohort: Cohort) -> int:
        """The preset's clocks."""
        return self.fastest_clocks


class MaxQ(MaxN):
    """nvpmodel's Max-Q, or the 15 W preset where there is none; the same reading as `MaxN`."""

    preset = "max_q"


class RaceToIdle(Static):
    """The fastest clocks while a job runs, the slowest when none does.

    Over a period T with work for the time t its energy is ``E = P_max t + P_idle (T - t)``
    (REFERENCE 2): it pays off where idling is cheap and clocks change at once.
    """

    adjusts_clocks = True

    def clocks(self, cohort: Cohort) -> int:
        """The fastest, unless no frame waits or is in flight."""
        for member in cohort.members:
            if member.active:
                return self.clock_table.fastest
        return self.clock_table.slowest
