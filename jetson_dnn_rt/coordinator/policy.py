"""Policies: what decides variants and clocks of the cohort, by name."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError

POLICIES = {
    "static": "static:Static",
    "max_n": "static:MaxN",
    "max_q": "static:MaxQ",
    "race_to_idle": "static:RaceToIdle",
    "predjoule": "predjoule:PredJoule",
    "poet": "poet:Poet",
    "apnet": "apnet:ApNet",
    "alert": "alert:Alert",
    "neuos_min_energy": "neuos:NeuOSMinEnergy",
    "neuos_max_accuracy": "neuos:NeuOSMaxAccuracy",
    "neuos_balanced": "neuos:NeuOSBalanced",
    "horizon": "horizon.policy:Horizon",
}
"""Module in `jetson_dnn_rt.coordinator.policies`, imported on use, and class."""


class Policy(ABC):
    """Decides variants and clocks of a cohort.

    A policy is a file in `jetson_dnn_rt.coordinator.policies` with a subclass that has `decide`,
    and a line in `POLICIES`. A new one is made, off the hot path, when tasks, tables or settings
    change: slow work belongs in `prepare`, decisions are look-ups.
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
        settings: CoordinatorConfig,
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


def create_policy(
    name: str,
    clock_table: ClockTable,
    tables: Sequence[TaskTable],
    settings: CoordinatorConfig,
    *,
    workers: int,
    interference: Sequence[float],
) -> Policy:
    """Make a policy by its name; ConfigurationError when there is none of that name."""
    module, _, cls = find_policy(name).partition(":")
    made: Policy = getattr(
        importlib.import_module(f"jetson_dnn_rt.coordinator.policies.{module}"), cls
    )(clock_table, tables, settings, workers=workers, interference=interference)
    return made


def find_policy(name: str) -> str:
    """Return the entry of a policy; ConfigurationError with all names when there is none."""
    if name not in POLICIES:
        raise ConfigurationError(f"policy must be one of {', '.join(POLICIES)}: {name!r}")
    return POLICIES[name]
