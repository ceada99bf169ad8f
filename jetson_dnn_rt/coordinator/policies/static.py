"""No coordination: the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.policy import PolicySettings, configured
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable


class Static:
    """Every task runs the variant that it is set to, and the clocks stay as they were found."""

    adjusts_clocks = False
    clocks_at_boundaries = False
    adjusts_variants = False

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        settings: PolicySettings,
        *,
        workers: int,
        interference: Sequence[float],
    ) -> None:
        self.clock_table = clock_table

    @property
    def fastest_clocks(self) -> int:
        """The table's fastest."""
        return self.clock_table.fastest

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Change nothing."""
        return Decision(configured(cohort), self.clocks(cohort))

    def clocks(self, cohort: Cohort) -> int:
        """Which clocks it wants: those that were last asked for."""
        return cohort.clocks_target

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """The variant that the task is set to."""
        return (cohort.members[member].configured,)
