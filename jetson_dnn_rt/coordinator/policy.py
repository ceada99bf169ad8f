"""What a policy is, and what may be set of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jetson_dnn_rt.config.nodes import MODES, CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable


@dataclass(frozen=True)
class PolicySettings:
    """Settings of all policies; each uses those that concern it.

    Attributes
    ----------
    confidence : float
        Share of the frames whose deadline `horizon` plans to keep, in (0, 1).
    accuracy_floor : float
        Least accuracy of a frame, in [0, 1], as long as its deadline allows it.
    power_cap_w : float
        Most power of the board in watts; 0 = no cap.
    threshold : float
        t of `neuos_balanced`; 0 = the standard deviation of the influence set.
    mode : str
        What `horizon` strives for, one of `MODES`.
    energy_per_accuracy : float
        How `horizon` balances: how many frames' energies all the accuracy of a frame is worth.
        At 10, a hundredth of the accuracy is given up for more than a tenth of the energy.
    """

    confidence: float = 0.999
    accuracy_floor: float = 0.0
    power_cap_w: float = 0.0
    threshold: float = 0.0
    mode: str = "balanced"
    energy_per_accuracy: float = 10.0

    @classmethod
    def of(cls, config: CoordinatorConfig) -> PolicySettings:
        """What the user has set."""
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


class Policy(Protocol):
    """Decides variants and clocks of a cohort.

    Made anew, off the hot path, whenever tasks, tables or settings change: what takes time is
    computed then, what is decided afterwards is a look-up.

    Attributes
    ----------
    adjusts_clocks : bool
        Whether ``Decision.clocks`` is to be heeded; else the clocks stay as they are.
    clocks_at_boundaries : bool
        Whether the clocks are to follow at every stage boundary, as PredJoule has it;
        else at the start and the end of frames only (DESIGN 4.3: a change takes milliseconds).
    adjusts_variants : bool
        Whether ``Decision.variants`` is; else each task runs the variant it is set to.
    """

    adjusts_clocks: bool
    clocks_at_boundaries: bool
    adjusts_variants: bool

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        settings: PolicySettings,
        *,
        workers: int,
        interference: Sequence[float],
    ) -> None: ...

    @property
    def fastest_clocks(self) -> int:
        """Position of the fastest clocks that it may ask for.

        A frame that could make it at these is not hopeless. Not heeded where `adjusts_clocks` is
        false.
        """

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Decide, pure: the same cohort and time give the same decision, and nothing changes."""

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """Variants that a frame of this member may yet run in.

        The engine gives a frame up when none of them would bring it home in time.
        """


def configured(cohort: Cohort) -> tuple[int, ...]:
    """The variant that each task is set to."""
    return tuple(member.configured for member in cohort.members)


def usable(member: Member) -> list[int]:
    """The variants of a member that may run."""
    return [variant for variant, there in enumerate(member.usable) if there]
