# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cost of a decision, over all clock configurations of two boards.

A cohort of 8 (two of each of NeuOS's four networks, 8 stages, all variants) with the profile
tables of the scenarios tx2_cohort8 and xavier_cohort8, not reduced: policies choose from all
11,760 and 51,968 configurations. The cohort's state advances from boundary to boundary as the
policy decides; see `CohortWalk`. Policies and boards take turns decision by decision, so that none
finds its tables in the caches just because it ran last, and other load affects all of them alike.

Two bars for each policy: p99 at most 50 us on both boards, and Xavier's 4.4 times as many
configurations take at most 1.2 times TX2's time, at the median and at p99. The ratio is the
median over ten rounds, so that a burst of other load on one side is not mistaken for the cost of
configurations.

With --hull tables are reduced as in production, for comparison.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, flatten, say, say_verdict, tabulate
from benchmarks.harness.timing import find_quantiles, frozen_garbage
from jetson_dnn_rt.config.nodes import MODES, POLICIES, CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, FrameSample, Member, StageSample
from jetson_dnn_rt.coordinator.policy import Policy, find_policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario

P99_BAR_US = 50.0
RATIO_BAR = 1.2
BOARDS = ("tx2", "xavier")
_WARM_UP = 400
_ROUNDS = 10


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--policies", ",".join(POLICIES), "which (default all)", metavar="A,B")
    add("--mode", "balanced", "of horizon and alert", choices=MODES)
    add("--decisions", 6000, "by each policy on each board")
    add("--seed", 0, "of the cohort's random walk")
    add("--hull", False, "tables reduced to the hull, as in production")
    add("--quick", False, "a tenth of the decisions")


@dataclass
class _Contestant:
    """Policy on a board."""

    policy: Policy
    walk: CohortWalk
    made_s: float
    times_ns: list[int] = field(default_factory=list)

    def decide(self) -> int:
        """Step to the next boundary and decide there; return the nanoseconds of the decision."""
        self.walk.step()
        cohort, now_ns = self.walk.cohort, self.walk.now_ns
        begin_ns = time.perf_counter_ns()
        decision = self.policy.decide(cohort, now_ns)
        end_ns = time.perf_counter_ns()
        self.walk.apply(self.policy, decision)
        return end_ns - begin_ns


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure; `ConfigurationError` for an unknown policy or a missing scenario."""
    names = args.policies.split(",")
    for name in names:
        find_policy(name)
    settings = CoordinatorConfig(mode=args.mode)
    count = args.decisions // 10 if args.quick else args.decisions
    configurations = {}
    contestants: dict[tuple[str, str], _Contestant] = {}
    for board in BOARDS:
        scenario = open_scenario(f"{board}_cohort8")
        laboratory = Laboratory(replace(scenario, clocks="hull" if args.hull else "all"))
        clocks, tables = laboratory.clock_table, laboratory.tables
        interference = laboratory.interference
        configurations[board] = len(clocks)
        for name in names:
            begin = time.perf_counter()
            policy = find_policy(name)(
                clocks, tables, settings, workers=len(tables), interference=interference
            )
            made_s = time.perf_counter() - begin
            say(f"decide: {name} on {board} made in {made_s:.1f} s")
            walk = CohortWalk(clocks, tables, interference, args.seed)
            contestants[name, board] = _Contestant(policy, walk, made_s)
    for one in [*contestants.values()] * _WARM_UP:
        one.decide()
    # As the executor does; a collection would not be the policies' cost.
    with frozen_garbage():
        for done in range(1, count + 1):
            for one in contestants.values():
                one.times_ns.append(one.decide())
            if done % 1000 == 0:
                say(f"decide: {done} of {count} decisions")
    rows = {name: _describe([contestants[name, board] for board in BOARDS]) for name in names}
    result = {
        "cohort": len(tables),
        "mode": args.mode,
        "decisions": count,
        "configurations": configurations,
        "policies": rows,
        "p99_bar_us": P99_BAR_US,
        "ratio_bar": RATIO_BAR,
    }
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> bool:
    """Judge a result, also one that was written before."""
    return all(map(_is_quick, result["policies"].values()))


def _is_quick(row: Mapping[str, Any]) -> bool:
    """Whether a policy's decisions are quick on every board, and no slower on the larger one."""
    slowest = max(board["p99"] for board in row["decision_us"].values())
    return bool(max(row["ratio"].values()) <= RATIO_BAR and slowest <= P99_BAR_US)


def _describe(boards: Sequence[_Contestant]) -> dict[str, Any]:
    figures = [
        {**find_quantiles(one.times_ns, "p50 p99 max", 1e3, 2), "made_s": round(one.made_s, 2)}
        for one in boards
    ]
    # Percentiles of each round, in order of time.
    few, many = (
        np.array([np.percentile(part, (50, 99)) for part in np.array_split(one.times_ns, _ROUNDS)])
        for one in boards
    )
    ratios = np.median(many / few, axis=0).round(2).tolist()
    row: dict[str, Any] = {
        "decision_us": dict(zip(BOARDS, figures, strict=True)),
        "ratio": dict(zip(("p50", "p99"), ratios, strict=True)),
    }
    return {**row, "passed": _is_quick(row)}


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each policy, with both boards side by side."""
    few, many = BOARDS
    configurations = result["configurations"]
    times = [
        f"{board} p50 us=decision_us.{board}.p50:.1f, {board} p99=decision_us.{board}.p99:.1f, "
        f"{board} made s=decision_us.{board}.made_s:.1f"
        for board in BOARDS
    ]
    ratios = "ratio p50=ratio.p50:.2f, ratio p99=ratio.p99:.2f, passed"
    return [
        f"cohort of {result['cohort']}, {result['decisions']} decisions by each policy on each "
        f"board, mode {result['mode']}; {few} has {configurations[few]:,} configurations, {many} "
        f"{configurations[many]:,}",
        tabulate(flatten(result["policies"], "policy"), "policy", *times, ratios),
        f"bars: p99 <= {result['p99_bar_us']:.0f} us on both, ratio <= {result['ratio_bar']}: "
        f"{say_verdict(result['passed'])}",
    ]


class CohortWalk:
    """Cohort whose state advances as on a board, without a scheduler or a simulator.

    Each step is a boundary of one member: its frame begins, moves to the next stage, or ends. A
    stage takes its profiled time at the present clocks, of a profiled frame drawn at random, times
    the interference of others on the board (`interference` with 1, 2, ... stages side by side),
    which drifts; so LAG rises and falls with the policy's decisions. The same seed draws the same
    numbers for all policies. `cohort` is the input of the policy at `now_ns`.
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
        fastest = clock_table.fastest
        self.cohort = Cohort(
            clock_table, members, len(members), tuple(interference), fastest, fastest
        )
        self.now_ns = 0
        self._random = random.Random(seed)
        self._crowding = 1.0
        # Actual and expected times of the stages of each member's current frame.
        self._taken_ns = [0] * len(members)
        self._expected_ns = [0.0] * len(members)
        self._medians = [table.median_ns.tolist() for table in tables]

    def step(self) -> None:
        """Go to the next boundary."""
        cohort = self.cohort
        cohort.clocks = cohort.clocks_target
        number = self._random.randrange(len(cohort.members))
        member = cohort.members[number]
        cohort.deciding = number
        # Always drawn: the cohort's state must not change later draws.
        drift, share = self._random.uniform(0.97, 1.03), self._random.random()
        most = cohort.interference[-1]
        self._crowding = min(max(self._crowding * drift, 1.0), most)
        if member.active and member.started:
            self._pass_stage(number, member, share)
        elif not member.active:
            self._release(number, member)

    def apply(self, policy: Policy, decision: Decision) -> None:
        """Apply the policy's decision."""
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
        self._taken_ns[number], self._expected_ns[number] = 0, 0.0

    def _pass_stage(self, number: int, member: Member, share: float) -> None:
        cohort, table = self.cohort, member.table
        stage, variant = member.stage, member.variant
        profiled = table.times_ns[variant, stage]
        slowdown = float(table.slowdown[variant, stage, cohort.clocks])
        time_ns = int(profiled[int(share * len(profiled))] * slowdown * self._crowding)
        self.now_ns += time_ns // len(cohort.members)
        taken_ns = self._taken_ns[number] = self._taken_ns[number] + time_ns
        self._expected_ns[number] += self._medians[number][variant][stage] * slowdown
        member.last_stage = StageSample(variant, stage, cohort.clocks, time_ns)
        member.stages_done += 1
        member.stage += 1
        member.lag_ns = sum(table.sub_deadlines_ns[: member.stage]) - taken_ns
        member.running_since_ns = None
        if member.stage == len(table.stages):
            met = taken_ns <= member.deadline_ns
            member.frames_done += 1
            member.last_frame = FrameSample(met, taken_ns, taken_ns)
            member.misses_in_a_row = 0 if met else member.misses_in_a_row + 1
            member.slowdown.observe(taken_ns / self._expected_ns[number])
            member.active = member.started = False
            cohort.deciding = -1
