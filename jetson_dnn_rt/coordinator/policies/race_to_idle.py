"""As fast as possible, then as slow as possible."""

from __future__ import annotations

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.static import Static


class RaceToIdle(Static):
    """The fastest clocks while a job runs, the slowest when none does.

    Over a period T with work for the time t its energy is ``E = P_max t + P_idle (T - t)``
    (REFERENCE 2): it pays where idling is cheap and clocks change at once.
    """

    adjusts_clocks = True

    def clocks(self, cohort: Cohort) -> int:
        """The fastest, unless no frame waits or is in flight."""
        for member in cohort.members:
            if member.active:
                return self.clock_table.fastest
        return self.clock_table.slowest
