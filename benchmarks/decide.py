"""What a decision costs, over all clock configurations of two boards.

A cohort of 8 (two of each of NeuOS's four networks, 8 stages, all variants) with the profile
tables of the scenarios tx2_cohort8 and xavier_cohort8, not reduced: policies choose from all
11,760 and 51,968 configurations. The cohort's state moves on from boundary to boundary as the
policy decides; see `CohortWalk`. Policies and boards take turns decision by decision, so that
none finds its tables in the caches just because it was the last one, and what else the machine
does meets all of them alike.

Two bars for each policy: p99 at most 50 us on both boards, and Xavier's 4.4 times as many
configurations take at most 1.2 times TX2's time, at the median and at p99. The ratio is the
median over ten rounds, so that a burst of something else on one side does not pass for the price
of configurations.

With --hull tables are reduced as they are in use, for comparison.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, flatten, say, say_verdict, tabulate
from benchmarks.harness.timing import find_quantiles, frozen_garbage
from jetson_dnn_rt.config.nodes import MODES, CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, FrameSample, Member, StageSample
from jetson_dnn_rt.coordinator.policy import POLICIES, Policy, create_policy, find_policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario

P99_BAR_US = 50.0
RATIO_BAR = 1.2
BOARDS = ("tx2", "xavier")
_WARM_UP = 400
_ROUNDS = 10


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--policies", ",".join(POLICIES), "which (default all)", metavar="A,B")
    add("--mode", "balanced", "of horizon and alert", choices=MODES)
    add("--decisions", 6000, "by each policy on each board")
    add("--seed", 0, "of the cohort's ways")
    add("--hull", False, "tables reduced to the hull, as they are in use")
    add("--quick", False, "a tenth of the decisions")


@dataclass
class _Contestant:
    """A policy on a board."""

    policy: Policy
    walk: CohortWalk
    made_s: float
    times_ns: list[int] = field(default_factory=list)

    def decide(self) -> int:
        """Step to the next boundary and decide there; nanoseconds of the decision."""
        walk, policy = self.walk, self.policy
        walk.step()
        cohort, now_ns = walk.cohort, walk.now_ns
        begin_ns = time.perf_counter_ns()
        decision = policy.decide(cohort, now_ns)
        end_ns = time.perf_counter_ns()
        walk.apply(policy, decision)
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
            policy = create_policy(
                name, clocks, tables, settings, workers=len(tables), interference=interference
            )
            made_s = time.perf_counter() - begin
            say(f"decide: {name} on {board} made in {made_s:.1f} s")
            walk = CohortWalk(clocks, tables, interference, args.seed)
            contestants[name, board] = _Contestant(policy, walk, made_s)
    _take_turns(list(contestants.values()), count)
    rows = {name: _describe([contestants[name, board] for board in BOARDS]) for name in names}
    return {
        "cohort": len(tables),
        "mode": args.mode,
        "decisions": count,
        "configurations": configurations,
        "policies": rows,
        "p99_bar_us": P99_BAR_US,
        "ratio_bar": RATIO_BAR,
        "passed": all(row["passed"] for row in rows.values()),
    }


def _take_turns(contestants: list[_Contestant], count: int) -> None:
    for _ in range(_WARM_UP):
        for contestant in contestants:
            contestant.decide()
    # As the executor does; a collection would be none of the policies' doing.
    with frozen_garbage():
        for done in range(count):
            for contestant in contestants:
                contestant.times_ns.append(contestant.decide())
            if (done + 1) % 1000 == 0:
                say(f"decide: {done + 1} of {count} decisions")


def _describe(boards: Sequence[_Contestant]) -> dict[str, Any]:
    figures = [
        {**find_quantiles(one.times_ns, "p50 p99 max", 1e3, 2), "made_s": round(one.made_s, 2)}
        for one in boards
    ]
    few, many = ([_split(one.times_ns, share) for share in (50, 99)] for one in boards)
    ratios = {
        key: round(float(np.median(above / below)), 2)
        for key, above, below in zip(("p50", "p99"), many, few, strict=True)
    }
    flat = max(ratios.values()) <= RATIO_BAR
    quick = max(one["p99"] for one in figures) <= P99_BAR_US
    return {
        "decision_us": dict(zip(BOARDS, figures, strict=True)),
        "ratio": ratios,
        "passed": flat and quick,
    }


def _split(times_ns: list[int], share: float) -> npt.NDArray[np.float64]:
    """A percentile of each round, one after the other in time."""
    return np.array([np.percentile(part, share) for part in np.array_split(times_ns, _ROUNDS)])


def report(result: Mapping[str, Any]) -> Report:
    """A line for each policy, both boards beside each other."""
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


@dataclass(slots=True)
class _Frame:
    elapsed_ns: int = 0
    executed_ns: int = 0
    expected_ns: float = 0.0


class CohortWalk:
    """A cohort whose state moves on as on a board, without a scheduler or a simulator.

    Each step is a boundary of one member: its frame begins, moves to the next stage, or ends. A
    stage takes its profiled time at the present clocks, of a profiled frame drawn at random, times
    what others on the board add (`interference` with 1, 2, ... stages side by side), which drifts;
    so LAG goes up and down with what the policy decides. The same seed draws the same numbers for
    all policies. `cohort` is what the policy is asked about, at `now_ns`.
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
        """Apply what the policy decided."""
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
