"""A cohort whose state goes on as it would on a board, without a scheduler or a simulator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, FrameSample, Member, StageSample
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable


@dataclass(slots=True)
class _Frame:
    elapsed_ns: int = 0
    executed_ns: int = 0
    expected_ns: float = 0.0


class CohortWalk:
    """Boundaries of frames, drawn at random, one after the other.

    Each step is a boundary of one member: its frame begins, goes on to the next stage, or ends.
    A stage takes its profiled time at the present clocks, of a profiled frame drawn at random,
    times what others on the board add, which drifts; so LAG goes up and down with what the policy
    decides. The same seed draws the same numbers for all policies.

    Parameters
    ----------
    clock_table : ClockTable
        Of C configurations.
    tables : sequence of TaskTable
        The cohort.
    interference : sequence of float
        Slow-down with 1, 2, ... stages side by side.
    seed : int
        Of all that is drawn.

    Attributes
    ----------
    cohort : Cohort
        The state that the policy is to be asked about; `deciding` says at whose boundary.
    now_ns : int
        The time of it.
    """

    def __init__(
        self,
        clock_table: ClockTable,
        tables: Sequence[TaskTable],
        interference: Sequence[float],
        seed: int = 0,
    ) -> None:
        members = [
            Member(table, table.deadline_ns, 0, (True,) * len(table.variants)) for table in tables
        ]
        self.cohort = Cohort(
            clock_table,
            members,
            len(members),
            tuple(interference),
            clock_table.fastest,
            clock_table.fastest,
        )
        self.now_ns = 0
        self._random = random.Random(seed)
        self._crowding = 1.0
        self._frames = [_Frame() for _ in members]
        self._medians = [table.median_ns.tolist() for table in tables]

    def step(self) -> None:
        """Go to the next boundary."""
        cohort = self.cohort
        cohort.clocks = cohort.clocks_target
        number = self._random.randrange(len(cohort.members))
        member = cohort.members[number]
        cohort.deciding = number
        # Drawn in any case: what the cohort does must not change what is drawn later.
        drift, share = self._random.uniform(0.97, 1.03), self._random.random()
        most = cohort.interference[-1]
        self._crowding = min(max(self._crowding * drift, 1.0), most)
        if member.active and member.started:
            self._pass_stage(number, member, share)
        elif not member.active:
            self._release(number, member)

    def apply(self, policy: Policy, decision: Decision) -> None:
        """Go on as the policy decided."""
        cohort = self.cohort
        cohort.memory = decision.memory
        deciding = cohort.deciding
        ends = deciding < 0 or cohort.members[deciding].stage == 0
        if policy.adjusts_clocks and (ends or policy.clocks_at_boundaries):
            cohort.clocks_target = decision.clocks
        if deciding >= 0:
            member = cohort.members[deciding]
            member.started = True
            member.running_since_ns = self.now_ns
            member.variant = decision.variants[deciding]

    def _release(self, number: int, member: Member) -> None:
        member.active, member.started = True, False
        member.stage = 0
        member.release_ns = member.last_release_ns = self.now_ns
        member.absolute_deadline_ns = self.now_ns + member.deadline_ns
        member.running_since_ns = None
        self._frames[number] = _Frame()

    def _pass_stage(self, number: int, member: Member, share: float) -> None:
        cohort, table, frame = self.cohort, member.table, self._frames[number]
        stage, variant = member.stage, member.variant
        profiled = table.times_ns[variant, stage]
        slowdown = float(table.slowdown[variant, stage, cohort.clocks])
        time_ns = int(profiled[int(share * len(profiled))] * slowdown * self._crowding)
        self.now_ns += time_ns // len(cohort.members)
        frame.elapsed_ns += time_ns
        frame.executed_ns += time_ns
        frame.expected_ns += self._medians[number][variant][stage] * slowdown
        member.last_stage = StageSample(variant, stage, cohort.clocks, time_ns)
        member.stages_done += 1
        member.stage += 1
        member.lag_ns = sum(table.sub_deadlines_ns[: member.stage]) - frame.elapsed_ns
        member.running_since_ns = None
        if member.stage == len(table.stages):
            met = frame.elapsed_ns <= member.deadline_ns
            member.frames_done += 1
            member.last_frame = FrameSample(met, frame.elapsed_ns, frame.executed_ns)
            member.misses_in_a_row = 0 if met else member.misses_in_a_row + 1
            member.slowdown.observe(frame.executed_ns / frame.expected_ns)
            member.active = member.started = False
            cohort.deciding = -1
