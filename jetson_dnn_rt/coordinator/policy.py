"""Policies: what decides variants and clocks of the cohort, and its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from jetson_dnn_rt.config.nodes import MODES, CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable


@dataclass(frozen=True)
class PolicySettings:
    """Settings of all policies; each uses those that concern it."""

    confidence: float = CoordinatorConfig.confidence
    """Share of the frames whose deadline `horizon` plans to keep, in (0, 1)."""
    accuracy_floor: float = CoordinatorConfig.accuracy_floor
    """Least accuracy of a frame, in [0, 1], as long as its deadline allows it."""
    power_cap_w: float = CoordinatorConfig.power_cap_w
    """Most power of the board in watts; 0 = no cap."""
    threshold: float = CoordinatorConfig.threshold
    """t of `neuos_balanced`; 0 = the standard deviation of the influence set."""
    mode: str = CoordinatorConfig.mode
    """Objective of `horizon`, one of `MODES`."""
    energy_per_accuracy: float = 10.0
    """How `horizon` balances: how many frames' energies all the accuracy of a frame is worth. At
    10, a hundredth of the accuracy is given up for more than a tenth of the energy."""

    @classmethod
    def of(cls, config: CoordinatorConfig) -> PolicySettings:
        """Take over what the user has set."""
        return cls(
            config.confidence,
            config.accuracy_floor,
            config.power_cap_w,
            config.threshold,
            config.mode,
        )

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"confidence must be in (0, 1): {self.confidence}")
        if not 0.0 <= self.accuracy_floor <= 1.0:
            raise ValueError(f"accuracy_floor must be in [0, 1]: {self.accuracy_floor}")
        for key in ("power_cap_w", "threshold", "energy_per_accuracy"):
            if not getattr(self, key) >= 0.0:
                raise ValueError(f"{key} must be >= 0: {getattr(self, key)}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}: {self.mode!r}")


class Policy(ABC):
    """Decides variants and clocks of a cohort.

    A policy is a file in `jetson_dnn_rt.coordinator.policies` with a subclass that has `decide`,
    and a line in `jetson_dnn_rt.coordinator.registry`. A new one is made, off the hot path, when
    tasks, tables or settings change: slow work belongs in `prepare`, decisions are look-ups.
    """

    adjusts_clocks = False  # whether ``Decision.clocks`` counts; else the clocks stay as they are
    clocks_at_boundaries = False
    """Whether the clocks follow at every stage boundary, as PredJoule has it; else at the start
    and the end of frames only (DESIGN 4.3: a change takes milliseconds)."""
    adjusts_variants = False
    """Whether ``Decision.variants`` counts; else each task runs the variant it is set to."""

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        settings: PolicySettings,
        *,
        workers: int,
        interference: Sequence[float],
    ) -> None:
        self.clock_table, self.tables, self.settings = clock_table, tables, settings
        self.workers, self.interference = workers, interference
        self.fastest_clocks = clock_table.fastest
        """Position of the fastest clocks that it may ask for: a frame that could make it at these
        is not hopeless. Ignored where `adjusts_clocks` is false."""
        self.prepare()

    def prepare(self) -> None:  # noqa: B027  not every policy has something to prepare
        """Compute what `decide` looks up."""

    @abstractmethod
    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Decide, pure: the same cohort and time give the same decision, and nothing changes."""

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """Return the variants that a frame of this member may yet run in.

        The engine gives a frame up when none of them would finish in time.
        """
        state = cohort.members[member]
        return usable(state) if self.adjusts_variants else (state.configured,)


def configured(cohort: Cohort) -> tuple[int, ...]:
    """The variant that each task is set to."""
    return tuple(member.configured for member in cohort.members)


def usable(member: Member) -> list[int]:
    """The variants of a member that may run."""
    return [variant for variant, there in enumerate(member.usable) if there]
