"""The board's most frugal preset."""

from __future__ import annotations

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.static import Static


class MaxQ(Static):
    """nvpmodel's Max-Q, or the 15 W preset on boards that have no Max-Q.

    Clocks at the caps of the preset (a reading, see `max_n`), variants as the tasks are set.
    """

    adjusts_clocks = True

    @property
    def fastest_clocks(self) -> int:
        """The preset's."""
        return self.clock_table.max_q

    def clocks(self, cohort: Cohort) -> int:
        """The preset's."""
        return self.clock_table.max_q
