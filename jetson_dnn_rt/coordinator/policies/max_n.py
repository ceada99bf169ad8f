"""The board's fastest preset."""

from __future__ import annotations

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.static import Static


class MaxN(Static):
    """nvpmodel's Max-N: clocks as high as the preset allows, variants as the tasks are set.

    A reading: the stock governors below the preset are taken to stay at its caps as long as the
    cohort runs. They lower clocks only after windows that are longer than the gaps between the
    frames of a camera stream.
    """

    adjusts_clocks = True

    @property
    def fastest_clocks(self) -> int:
        """The preset's."""
        return self.clock_table.max_n

    def clocks(self, cohort: Cohort) -> int:
        """The preset's."""
        return self.clock_table.max_n
