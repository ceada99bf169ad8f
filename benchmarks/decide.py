"""What a decision costs, over all clock configurations of two boards.

A cohort of 8 (two of each of NeuOS's four networks, 8 stages, all variants) with the profile
tables of the scenarios tx2_cohort8 and xavier_cohort8, not reduced: policies choose from all
11,760 and 51,968 configurations. The cohort's state goes on from boundary to boundary as the
policy decides; see `cohort_walk`. Policies and boards take turns decision by decision, so that
none finds its tables in the caches just because it was the last one, and what else the machine
does meets all of them alike.

Two bars for each policy: p99 at most 50 us on both boards, and Xavier's 4.4 times as many
configurations take at most 1.2 times TX2's time, at the median and at p99. The ratio is the
median over ten rounds, so that a burst of something else on one side does not pass for the price
of configurations.

--hull has the tables reduced as they are in use, for comparison.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from benchmarks.cohort_walk import CohortWalk
from jetson_dnn_rt.config.nodes import MODES
from jetson_dnn_rt.coordinator.policy import Policy, PolicySettings
from jetson_dnn_rt.coordinator.registry import POLICIES, create_policy, find_policy
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario

P99_BAR_US = 50.0
RATIO_BAR = 1.2
BOARDS = ("tx2", "xavier")
_WARM_UP = 400
_ROUNDS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    add = parser.add_argument
    add("--policies", default=",".join(POLICIES), metavar="A,B", help="which (default all)")
    add("--mode", choices=MODES, default="balanced", help="of horizon and alert")
    add("--decisions", type=int, default=6000, help="by each policy on each board (default 6000)")
    add("--seed", type=int, default=0, help="of the cohort's ways (default 0)")
    add("--hull", action="store_true", help="tables reduced to the hull, as they are in use")
    add("--quick", action="store_true", help="a tenth of the decisions")


@dataclass
class _Contestant:
    """A policy on a board."""

    policy: Policy
    walk: CohortWalk
    made_s: float
    times_ns: list[int] = field(default_factory=list)

    def decide(self) -> int:
        """Go to the next boundary, decide, go on; nanoseconds of the decision."""
        walk, policy = self.walk, self.policy
        walk.step()
        cohort, now_ns = walk.cohort, walk.now_ns
        begin_ns = time.perf_counter_ns()
        decision = policy.decide(cohort, now_ns)
        end_ns = time.perf_counter_ns()
        walk.apply(policy, decision)
        return end_ns - begin_ns


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure.

    Raises
    ------
    ConfigurationError
        When there is no policy of a name, or a scenario is missing.
    """
    names = args.policies.split(",")
    for name in names:
        find_policy(name)
    settings = PolicySettings(mode=args.mode)
    count = args.decisions // 10 if args.quick else args.decisions
    configurations = {}
    contestants: dict[tuple[str, str], _Contestant] = {}
    for board in BOARDS:
        scenario = open_scenario(f"{board}_cohort8")
        laboratory = Laboratory(replace(scenario, clocks="hull" if args.hull else "all"))
        clock_table, tables = laboratory.clock_table, laboratory.tables
        interference = laboratory.interference
        configurations[board] = len(clock_table)
        for name in names:
            begin = time.perf_counter()
            policy = create_policy(
                name,
                clock_table,
                tables,
                settings,
                workers=len(tables),
                interference=interference,
            )
            made_s = time.perf_counter() - begin
            print(f"decide: {name} on {board} made in {made_s:.1f} s", file=sys.stderr, flush=True)
            walk = CohortWalk(clock_table, tables, interference, args.seed)
            contestants[name, board] = _Contestant(policy, walk, made_s)
    _take_turns(list(contestants.values()), count)
    rows = {name: _row([contestants[name, board] for board in BOARDS]) for name in names}
    return {
        "benchmark": "decide",
        "cohort": len(tables),
        "mode": args.mode,
        "decisions": count,
        "configurations": configurations,
        "policies": rows,
        "p99_bar_us": P99_BAR_US,
        "ratio_bar": RATIO_BAR,
        "passed": all(cast(bool, row["passed"]) for row in rows.values()),
    }


def _take_turns(contestants: list[_Contestant], count: int) -> None:
    for _ in range(_WARM_UP):
        for contestant in contestants:
            contestant.decide()
    # As the executor does; a collection would be none of the policies' doing.
    gc.collect()
    gc.freeze()
    for done in range(count):
        for contestant in contestants:
            contestant.times_ns.append(contestant.decide())
        if (done + 1) % 1000 == 0:
            print(f"decide: {done + 1} of {count} decisions", file=sys.stderr, flush=True)
    gc.unfreeze()


def _row(boards: list[_Contestant]) -> dict[str, object]:
    figures = [
        {
            "p50": round(float(np.percentile(one.times_ns, 50)) / 1e3, 2),
            "p99": round(float(np.percentile(one.times_ns, 99)) / 1e3, 2),
            "max": round(max(one.times_ns) / 1e3, 2),
            "made_s": round(one.made_s, 2),
        }
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


def format_table(result: dict[str, object]) -> str:
    """Return the result as a table for people."""
    configurations = cast("dict[str, int]", result["configurations"])
    heads = [f"{board} ({configurations[board]:,})" for board in BOARDS]
    lines = [
        f"cohort of {result['cohort']}, {result['decisions']} decisions by each policy on each "
        f"board, mode {result['mode']}; microseconds",
        "",
        f"{'':20s}" + "".join(f"{head:>26s}" for head in heads) + f"{'ratio':>14s}",
        f"{'policy':20s}" + f"{'p50':>8s}{'p99':>8s}{'made':>10s}" * 2 + f"{'p50':>7s}{'p99':>7s}",
    ]
    for name, row in cast("dict[str, dict[str, object]]", result["policies"]).items():
        boards = cast("dict[str, dict[str, float]]", row["decision_us"])
        ratio = cast("dict[str, float]", row["ratio"])
        cells = "".join(
            f"{figures['p50']:8.1f}{figures['p99']:8.1f}{figures['made_s']:8.1f} s"
            for figures in boards.values()
        )
        verdict = "passed" if row["passed"] else "NOT passed"
        lines.append(f"{name:20s}{cells}{ratio['p50']:7.2f}{ratio['p99']:7.2f}  {verdict}")
    lines += [
        "",
        f"bars: p99 <= {result['p99_bar_us']:.0f} us on both, ratio <= {result['ratio_bar']}: "
        + ("passed" if result["passed"] else "NOT passed"),
    ]
    return "\n".join(lines)
