# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two controllers that ignore each other: the negative feedback loop that motivates NeuOS.

Paper 004, section 3.2: a system-level controller sets the clocks and an application-level one the
variants, both by the task's LAG and each as if the other did not exist. Behind schedule, both
speed up at once, and since variants are few, the frame ends up ahead; the system interprets that
as headroom and slows down until it is a little behind; the application sees a deficit, and gives
up accuracy again. The finer step uses up all headroom before the coarser one can, so accuracy only
falls, to the last variant, although the clocks alone could have met the deadline.

These policies exist in the simulator only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, Member
from jetson_dnn_rt.coordinator.policy import Policy, configured, usable

TARGET = 0.95
"""Share of the deadline that both controllers aim at, so that noise alone misses none."""


class Choice(NamedTuple):
    """State of the controllers: the clocks, and each member's variant."""

    clocks: int
    variants: tuple[int, ...]


class Uncoordinated(Policy):
    """Policy with both controllers at every boundary, each with its own table.

    The system chooses the slowest clocks that are faster than the present ones by the required
    speed-up ``sigma = (D - LAG) / D`` (algorithm 1 for a task alone); the application the most
    accurate variant whose time, relative to the present one, is at most ``1 / sigma`` (algorithm 2
    with the clocks as they are). Derived: the paper shows the loop, not the two controllers.
    """

    adjusts_clocks = True
    clocks_at_boundaries = True
    adjusts_variants = True

    def prepare(self) -> None:
        """Compute for each member the times of the variants and speeds of the clocks, relative."""
        self._times: list[list[float]] = []
        self._speeds: list[list[float]] = []
        for table in self.tables:
            totals = table.median_ns.sum(axis=1)
            self._times.append((totals / totals[0]).tolist())
            times_ns, _ = table.frame_costs(0)
            self._speeds.append((times_ns[0] / times_ns).tolist())

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        """Decide by the LAG of the deciding member."""
        choice = cohort.memory
        if not isinstance(choice, Choice):
            choice = Choice(cohort.clocks_target, configured(cohort))
        number = cohort.deciding
        if number >= 0 and cohort.members[number].stage > 0:
            member = cohort.members[number]
            sigma = self._required_speed_up(number, member)
            variants = list(choice.variants)
            if self.adjusts_variants:
                variants[number] = self._approximate(number, member, variants[number], sigma)
            clocks = choice.clocks
            # A change shows its effect only once it is complete.
            if self.adjusts_clocks and cohort.clocks == cohort.clocks_target:
                clocks = self._set_speed(number, cohort.clocks, sigma)
            choice = Choice(clocks, tuple(variants))
        return Decision(choice.variants, choice.clocks, choice)

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        """All usable variants: the application may choose any."""
        return usable(cohort.members[member])

    def _required_speed_up(self, number: int, member: Member) -> float:
        """``(D - LAG) / D``, both for the target share of the deadline."""
        full_ns = sum(self.tables[number].sub_deadlines_ns[: member.stage])
        lag_ns = member.lag_ns - (1.0 - TARGET) * full_ns
        return (TARGET * member.deadline_ns - lag_ns) / (TARGET * member.deadline_ns)

    def _set_speed(self, number: int, clocks: int, sigma: float) -> int:
        speeds = self._speeds[number]
        wanted = sigma * speeds[clocks]
        for position, speed in enumerate(speeds):
            if speed >= wanted:
                return position
        return self.fastest_clocks

    def _approximate(self, number: int, member: Member, variant: int, sigma: float) -> int:
        times = self._times[number]
        wanted = times[variant] / sigma
        fitting = [v for v, time in enumerate(times) if member.usable[v] and time <= wanted]
        return fitting[0] if fitting else len(times) - 1


class ClocksAlone(Uncoordinated):
    """The system-level controller without the other: it meets the deadline at full accuracy."""

    adjusts_variants = False


class VariantsAlone(Uncoordinated):
    """The application-level controller without the other, at unchanged clocks."""

    adjusts_clocks = False
    clocks_at_boundaries = False
