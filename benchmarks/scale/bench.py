"""1, 2, 4, 8, 16 tasks in one process: what scheduling costs, and whether it collapses.

cost   null back end with scripted times, slept through as while a GPU works, and spun through as
       a network on the CPU would. What the executor adds to a stage beside its execution
       and its waiting: from the end of a stage to the begin of the next on the same worker, where
       that one was ready (lock, boundary, choice, hand-over), with less work than the workers
       can do and with twice as much. Bars: p50 at most 30 us, p99 at most 100 us, and the p50
       grows at most with the logarithm of the number of tasks.
rules  the same figures under other rules of the executor: disciplines, a bound of the stages in
       flight, batches (a batch takes the time of one frame here). No bar.
nets   real networks, each task with its own. Beyond saturation the sum of the met frames must not
       fall when tasks are added (bar: never more than the tolerance below the most that fewer
       tasks reached), and the gaps between stages keep the bars above. Beside it, in turn: the
       same stages in one queue, first in first out, without deadlines.

Figures are medians over rounds; numbers of tasks and sides take turns. Wall times hold what else
the machine does: the processor time of the worker's thread stands beside them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import Report, Table, say, say_verdict, tabulate
from benchmarks.harness.timing import alternate, frozen_garbage
from benchmarks.scale.cost import DEADLINE_FACTOR, KINDS, CostBench, Costs
from benchmarks.scale.nets import SIDES, NetBench, judge
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.tasks import Outcome

BARS_US = {"p50": 30.0, "p99": 100.0}
PARTS = ("cost", "rules", "nets")
RULES: dict[str, dict[str, Any]] = {
    "edf": {},
    "fifo": {"discipline": "fifo"},
    "priority": {"discipline": "priority"},
    "max_inflight 1": {"max_inflight": {"cpu": 1}},
    "batch": {"batches": True},
}
"""Rules of the executor, and the options of `CostBench` for them."""

COLLAPSED = 0.5
"""A side that keeps less than this share of its best has collapsed."""

_FLAT_US = 2.0
"""A growth over all numbers of tasks that cannot be distinguished from none."""

_CLEARLY = 0.7
"""What the root mean square of a better explanation is of that of a worse one, at most."""


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--tasks", [1, 2, 4, 8, 16], "numbers of tasks, rising", least=1, metavar="N")
    add("--parts", list(PARTS), "default: all", choices=PARTS)
    add("--rounds", 3, "of everything", least=1)
    add("--seconds", 1.5, "of a round of cost", above=0)
    add("--net-seconds", 4.0, "of a round of nets", above=0)
    add("--loads", [0.8, 2.0], "of cost: work per second and worker", above=0, metavar="LOAD")
    add("--scripts", list(KINDS), "of cost: how its time passes; default: both", choices=KINDS)
    add("--workers", 1, "stages side by side", least=1)
    add("--models", ["builtin:detector"], "of nets, the tasks take turns", metavar="MODEL")
    add("--variant", "full@torch-fp32", metavar="NAME")
    add(
        "--threads", len(os.sched_getaffinity(0)), "of one inference (default: all cores)", least=1
    )
    add("--share", 0.4, "of a worker that one task's frames take", above=0)
    add("--deadline-factor", 1.0, "relative deadline = F periods", above=0, metavar="F")
    add(
        "--tolerance", 0.05,
        "share of the met frames that may go: far beyond saturation every job begins when its "
        "budget only just fits, and the budget is a p99 of each stage", least=0, most=1,
    )  # fmt: skip
    add("--quick", False, "one round of a second: nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the parts.

    `ConfigurationError` when --tasks do not rise, or the variant cannot run; `BenchmarkError` when
    a job does not end, or a stage fails.
    """
    if sorted(set(args.tasks)) != args.tasks:
        raise ConfigurationError(f"--tasks must rise: {args.tasks}")
    if args.quick:
        args.rounds, args.seconds, args.net_seconds = 1, 1.0, 1.0
    result: dict[str, Any] = {"tasks": args.tasks, "rounds": args.rounds, "workers": args.workers}
    parts = {"cost": _measure_cost, "rules": _measure_rules, "nets": _measure_nets}
    result |= {name: measure(args) for name, measure in parts.items() if name in args.parts}
    passed = [result[name]["passed"] for name in ("cost", "nets") if name in result]
    return {**result, "passed": None if args.quick or not passed else all(passed)}


# -- cost ----------------------------------------------------------------------------------------


def _measure_cost(args: argparse.Namespace) -> dict[str, Any]:
    taken: dict[tuple[str, float, int], list[Costs]] = {}
    with ExitStack() as stack:
        benches = {
            (script, count): CostBench(stack, count, spin=script == "spin", workers=args.workers)
            for script, count in product(args.scripts, args.tasks)
        }
        stack.enter_context(frozen_garbage())
        for number in range(args.rounds):
            for script, load in product(args.scripts, args.loads):
                for count in alternate(args.tasks, number):
                    costs = benches[script, count].play(load, args.seconds)
                    taken.setdefault((script, load, count), []).append(costs)
            say(f"scale: cost: round {number + 1} of {args.rounds}")
    parts = []
    for script, load in product(args.scripts, args.loads):
        rows = [{"tasks": n, **summarize_costs(taken[script, load, n])} for n in args.tasks]
        p50 = {row["tasks"]: row["wall_us"]["p50"] for row in rows}
        parts.append({"script": script, "load": load, "rows": rows, "growth": find_growth(p50)})
    within = are_within([row["wall_us"] for part in parts for row in part["rows"]])
    return {
        "deadline_factor": DEADLINE_FACTOR,
        "seconds_per_round": args.seconds,
        "parts": parts,
        "bars_us": BARS_US,
        "passed": within and all(part["growth"]["at_most_logarithmic"] for part in parts),
    }


def _measure_rules(args: argparse.Namespace) -> dict[str, Any]:
    """All rules in turn, with the middle number of tasks and the most work: no bar."""
    count, load = args.tasks[len(args.tasks) // 2], args.loads[-1]
    taken: dict[str, list[Costs]] = {name: [] for name in RULES}
    with ExitStack() as stack:
        benches = {
            name: CostBench(stack, count, workers=args.workers, **options)
            for name, options in RULES.items()
        }
        stack.enter_context(frozen_garbage())
        for number in range(args.rounds):
            for name in alternate(RULES, number):
                taken[name].append(benches[name].play(load, args.seconds))
            say(f"scale: rules: round {number + 1} of {args.rounds}")
    rows = [
        {
            "rule": name,
            "met_per_s": benches[name].outcomes[Outcome.MET] / args.rounds / args.seconds,
            **summarize_costs(taken[name]),
        }
        for name in RULES
    ]
    return {"tasks": count, "load": load, "rows": rows}


def summarize_costs(rounds: Sequence[Costs]) -> dict[str, Any]:
    """Quantiles of each round, and of them the medians: a burst of a neighbour is one round's."""
    return {
        "stages": sum(len(costs.wall_ns) for costs in rounds),
        "wall_us": quantiles_us([costs.wall_ns for costs in rounds]),
        "cpu_us": quantiles_us([costs.cpu_ns for costs in rounds]),
        "wake_us": quantiles_us([costs.wake_ns for costs in rounds]),
        "process_cpu_us": float(np.median([costs.others_ns for costs in rounds])) / 1e3,
    }


def are_within(figures: Sequence[Mapping[str, float | None]]) -> bool:
    """Whether all quantiles keep their bars; one without any time does."""
    return all(
        (value := figure[name]) is None or value <= bar
        for figure in figures
        for name, bar in BARS_US.items()
    )


def quantiles_us(rounds: Sequence[list[int]]) -> dict[str, float | None]:
    """The barred quantiles in microseconds, medians over the rounds; None without any time."""
    filled = [times for times in rounds if times]
    return {
        name: float(np.median([np.percentile(times, int(name[1:])) for times in filled])) / 1e3
        if filled
        else None
        for name in BARS_US
    }


def find_growth(costs_us: Mapping[int, float | None]) -> dict[str, Any]:
    """How a cost grows with the number of tasks: as ``a + b log2 n``, or faster.

    Both ``a + b log2 n`` and ``a + b n`` are fitted by least squares. The growth is at most
    logarithmic when it is less than 2 us from the least to the most, or when the straight line
    does not explain the figures clearly better than the logarithm.
    """
    known = {count: cost for count, cost in costs_us.items() if cost is not None}
    counts = np.array(list(known), float)
    costs = np.array(list(known.values()), float)
    if len(counts) < 3:
        return {"per_doubling_us": None, "at_most_logarithmic": True}
    fits = {}
    for name, x in (("log", np.log2(counts)), ("linear", counts)):
        slope, offset = np.polyfit(x, costs, 1)
        rms = float(np.sqrt(np.mean((offset + slope * x - costs) ** 2)))
        fits[name] = (float(slope), rms)
    (per_doubling, log_rms), (_, linear_rms) = fits["log"], fits["linear"]
    flat = per_doubling * float(np.log2(counts[-1] / counts[0])) < _FLAT_US
    return {
        "per_doubling_us": per_doubling,
        "log_rms_us": log_rms,
        "linear_rms_us": linear_rms,
        "at_most_logarithmic": bool(flat or linear_rms >= _CLEARLY * log_rms),
    }


# -- nets ----------------------------------------------------------------------------------------


def _measure_nets(args: argparse.Namespace) -> dict[str, Any]:
    say(f"scale: nets: {args.tasks[-1]} tasks are loaded")
    with ExitStack() as stack:
        bench = NetBench(stack, args)
        stack.enter_context(frozen_garbage())
        for number in range(args.rounds):
            for count in alternate(args.tasks, number):
                for side in alternate(SIDES, number):
                    bench.play(count, side, args.net_seconds)
            say(f"scale: nets: round {number + 1} of {args.rounds}")
    costs_ns = bench.costs_ns
    loads = {count: bench.load_of(count) for count in args.tasks}
    rows: list[dict[str, Any]] = [
        {
            "tasks": count,
            "load": loads[count],
            "gap_us": quantiles_us(bench.tallies[count, SIDES[0]].gaps_ns),
            **{side: bench.tallies[count, side].to_dict(costs_ns, args.workers) for side in SIDES},
        }
        for count in args.tasks
    ]
    steps, collapsed = {}, {}
    for side in SIDES:
        met = {row["tasks"]: row[side]["met_per_s"] for row in rows}
        steps[side] = judge(met, loads)
        collapsed[side] = any(step["below_best"] > 1.0 - COLLAPSED for step in steps[side])
    return {
        "models": args.models,
        "variants": sorted({task.default for task in bench.tasks}),
        "threads": args.threads,
        "seconds_per_round": args.net_seconds,
        **echo(args, "share deadline_factor"),
        "alone_ms": {name: cost / 1e6 for name, cost in costs_ns.items()},
        "rows": rows,
        "steps": steps,
        "collapsed": collapsed,
        "tolerance": args.tolerance,
        "bars_us": BARS_US,
        "passed": are_within([row["gap_us"] for row in rows])
        and all(step["below_best"] <= args.tolerance for step in steps[SIDES[0]]),
    }


# -- report --------------------------------------------------------------------------------------


def report(result: Mapping[str, Any]) -> Report:
    """A table for each part."""
    parts: list[str | Table] = []
    for name, describe in (
        ("cost", _report_cost),
        ("rules", _report_rules),
        ("nets", _report_nets),
    ):
        if name in result:
            parts += describe(result[name])
    return parts if result["passed"] is not None else [*parts, say_verdict(None)]


_COSTS = (
    "p50 us=wall_us.p50:.1f, p99 us=wall_us.p99:.1f, "
    "cpu p50=cpu_us.p50:.1f, cpu p99=cpu_us.p99:.1f"
)


def _report_cost(cost: Mapping[str, Any]) -> Report:
    growths = []
    for part in cost["parts"]:
        growth = part["growth"]
        if growth["per_doubling_us"] is None:
            continue
        word = "at most" if growth["at_most_logarithmic"] else "MORE than"
        growths.append(
            f"{part['script']}, load {part['load']:g}: {growth['per_doubling_us']:+.2f} us for "
            f"twice the tasks; rms {growth['log_rms_us']:.2f} us from a logarithm, "
            f"{growth['linear_rms_us']:.2f} from a line: {word} logarithmic"
        )
    bars = cost["bars_us"]
    return [
        "scheduling cost of a stage, edf, null back end",
        tabulate(
            ({**part, **row} for part in cost["parts"] for row in part["rows"]),
            "time=script",
            ("load", lambda row: f"{row['load']:g}x"),
            "tasks, stages",
            _COSTS,
            "wake p50=wake_us.p50:.1f, process us=process_cpu_us:.1f",
        ),
        "\n".join(growths),
        f"bars: p50 <= {bars['p50']:g} us, p99 <= {bars['p99']:g} us: "
        f"{say_verdict(cost['passed'])}",
    ]


def _report_rules(rules: Mapping[str, Any]) -> Report:
    return [
        f"rules, {rules['tasks']} tasks, load {rules['load']:g}, slept through",
        tabulate(rules["rows"], "rule, met/s=met_per_s:.1f", _COSTS),
    ]


def _report_nets(nets: Mapping[str, Any]) -> Report:
    rows = []
    for row in nets["rows"]:
        for side in SIDES:
            steps = {step["tasks"]: step for step in nets["steps"][side]}
            gaps = row["gap_us"] if side == SIDES[0] else {}
            rows.append({**row, **row[side], "side": side, "gap_us": gaps,
                         "step": steps.get(row["tasks"])})  # fmt: skip
    collapsed = [side for side, word in nets["collapsed"].items() if word]
    return [
        f"{', '.join(nets['models'])} as {', '.join(nets['variants'])}, each task "
        f"{nets['share']:.0%} of a worker, deadline {nets['deadline_factor']:g} periods",
        tabulate(
            rows,
            "tasks, load:.2f, side, met/s=met_per_s:.1f, met=met_ratio:.1%, work=met_work:.1%",
            ("to best", lambda row: f"{-row['step']['below_best']:+.1%}" if row["step"] else ""),
            "gap p50 us=gap_us.p50:.1f, p99=gap_us.p99:.1f",
            ("frames", lambda row: ", ".join(f"{w} {n}" for w, n in row["outcomes"].items())),
        ),
        f"collapsed (below {COLLAPSED:.0%} of its best): {', '.join(collapsed) or 'none'}\n"
        f"bar: beyond saturation never more than {nets['tolerance']:.0%} below the most met "
        f"frames of fewer tasks, gaps as above: {say_verdict(nets['passed'])}",
    ]
