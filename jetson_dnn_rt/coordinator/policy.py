# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Interface of policies, which decide variants and clocks of the cohort."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from jetson_dnn_rt.config.nodes import POLICIES, CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.scheduling.selection import Gate


class Policy(ABC):
    """Decides variants and clocks of a cohort.

    A policy is a file in `coordinator.policies` with a subclass that has `decide`, and a line in
    `config.nodes.POLICIES`. A new one is made, off the hot path, when tasks, tables or settings
    change: slow work belongs in `prepare`, decisions are look-ups.
    """

    adjusts_clocks = False  # whether ``Decision.clocks`` counts; else the clocks stay as they are
    clocks_at_boundaries = False
    """Whether clocks change at every stage boundary, as in PredJoule; else only at the start and
    end of frames (DESIGN 4.3: a change takes milliseconds)."""
    adjusts_variants = False
    """Whether ``Decision.variants`` counts; else each task runs its configured variant."""
    gates_frames = False
    """Whether `gate` is asked; else the engine alone decides when a frame begins."""

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
        """Position of the fastest clocks that it may request: a frame that could make it at these
        is not hopeless. Ignored where `adjusts_clocks` is false."""
        self.prepare()

    def prepare(self) -> None:  # noqa: B027  not every policy has something to prepare
        """Compute what `decide` looks up."""

    @abstractmethod
    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Decide, without side effects: the same cohort and time give the same decision."""

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """Return the variants that a frame of this member may still run in.

        The engine aborts a frame when none of them would finish in time.
        """
        state = cohort.members[member]
        return usable(state) if self.adjusts_variants else (state.configured,)

    def gate(self, cohort: Cohort, member: int, now_ns: int) -> Gate:
        """Say whether this member's waiting frame may begin now.

        Asked right after `decide`, whenever the engine would let the frame begin. Within one
        process only: a coordinator of its own cannot hold back the frames of other processes.
        """
        return Gate.OPEN


def configured(cohort: Cohort) -> tuple[int, ...]:
    """The configured variant of each task."""
    return tuple(member.configured for member in cohort.members)


def usable(member: Member) -> list[int]:
    """The usable variants of a member."""
    return [variant for variant, there in enumerate(member.usable) if there]


def find_policy(name: str) -> type[Policy]:
    """Import the class of a policy; ConfigurationError with all names when there is none."""
    if name not in POLICIES:
        raise ConfigurationError(f"policy must be one of {', '.join(POLICIES)}: {name!r}")
    module, _, cls = POLICIES[name].partition(":")
    found: type[Policy] = getattr(
        importlib.import_module(f"jetson_dnn_rt.coordinator.policies.{module}"), cls
    )
    return found
