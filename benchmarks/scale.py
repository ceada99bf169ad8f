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
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.scale_cost import DEADLINE_FACTOR, KINDS, CostBench, Costs
from benchmarks.scale_nets import SIDES, NetBench, judge
from jetson_dnn_rt.cli.text import format_rows
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
"""What the executor can be told, and how `CostBench` tells it."""

COLLAPSED = 0.5
"""A side that keeps less than this share of its best has collapsed."""

_FLAT_US = 2.0
"""A growth over all numbers of tasks that is not told from none."""

_CLEARLY = 0.7
"""What the root mean square of a better explanation is of that of a worse one, at most."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    add = parser.add_argument
    add(
        "--tasks", type=int, nargs="+", default=[1, 2, 4, 8, 16], metavar="N",
        help="numbers of tasks, rising (default 1 2 4 8 16)",
    )  # fmt: skip
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    add("--rounds", type=int, default=3, help="of everything (default 3)")
    add("--seconds", type=float, default=1.5, help="of a round of cost (default 1.5)")
    add("--net-seconds", type=float, default=4.0, help="of a round of nets (default 4)")
    add(
        "--loads", type=float, nargs="+", default=[0.8, 2.0], metavar="LOAD",
        help="of cost: work per second and worker (default 0.8 2)",
    )  # fmt: skip
    add(
        "--scripts", nargs="+", choices=KINDS, default=list(KINDS),
        help="of cost: how the time of a script passes (default: both)",
    )  # fmt: skip
    add("--workers", type=int, default=1, help="stages side by side (default 1)")
    add(
        "--models", nargs="+", default=["builtin:detector"], metavar="MODEL",
        help="of nets, the tasks take turns (default builtin:detector)",
    )  # fmt: skip
    add("--variant", default="full@torch-fp32", metavar="NAME", help="default full@torch-fp32")
    add(
        "--threads", type=int, default=len(os.sched_getaffinity(0)),
        help="of one inference (default: all cores)",
    )  # fmt: skip
    add(
        "--share", type=float, default=0.4,
        help="of a worker that one task's frames take (default 0.4)",
    )  # fmt: skip
    add(
        "--deadline-factor", type=float, default=1.0, metavar="F",
        help="relative deadline = F periods (default 1)",
    )  # fmt: skip
    add(
        "--tolerance", type=float, default=0.05,
        help="share of the met frames that may go (default 0.05): far beyond saturation every job "
        "begins when its budget only just fits, and the budget is a p99 of each stage",
    )  # fmt: skip
    add("--quick", action="store_true", help="one round of a second: the bars are not held")


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure both parts.

    Raises
    ------
    ConfigurationError
        When an option is out of range, or the variant cannot run.
    BenchmarkError
        When a job does not end, or a stage fails.
    """
    _check(args)
    if args.quick:
        args.rounds, args.seconds, args.net_seconds = 1, 1.0, 1.0
    result: dict[str, Any] = {
        "tasks": args.tasks,
        "rounds": args.rounds,
        "workers": args.workers,
    }
    passed = []
    if "cost" in args.parts:
        result["cost"] = _measure_cost(args)
        passed.append(result["cost"]["passed"])
    if "rules" in args.parts:
        result["rules"] = _measure_rules(args)
    if "nets" in args.parts:
        result["nets"] = _measure_nets(args)
        passed.append(result["nets"]["passed"])
    return {**result, "passed": None if args.quick or not passed else all(passed)}


def _check(args: argparse.Namespace) -> None:
    if min(args.tasks) < 1 or sorted(set(args.tasks)) != args.tasks:
        raise ConfigurationError(f"--tasks must rise and be >= 1: {args.tasks}")
    for name in ("rounds", "workers", "threads"):
        if getattr(args, name) < 1:
            raise ConfigurationError(f"--{name} must be >= 1: {getattr(args, name)}")
    for name in ("seconds", "net_seconds", "share", "deadline_factor"):
        if getattr(args, name) <= 0.0:
            raise ConfigurationError(f"--{name.replace('_', '-')} must be above 0")
    if min(args.loads) <= 0.0 or not 0.0 <= args.tolerance < 1.0:
        raise ConfigurationError("--loads must be above 0, --tolerance in [0, 1)")


# -- cost ----------------------------------------------------------------------------------------


def _measure_cost(args: argparse.Namespace) -> dict[str, Any]:
    benches: dict[tuple[str, int], CostBench] = {}
    taken: dict[tuple[str, float, int], list[Costs]] = {}
    try:
        for script in args.scripts:
            for count in args.tasks:
                benches[script, count] = CostBench(
                    count, spin=script == "spin", workers=args.workers
                )
        gc.collect()
        gc.freeze()
        for number in range(args.rounds):
            for script, load in product(args.scripts, args.loads):
                for count in _turn(args.tasks, number):
                    costs = benches[script, count].play(load, args.seconds)
                    taken.setdefault((script, load, count), []).append(costs)
            _say(f"cost: round {number + 1} of {args.rounds}")
    finally:
        gc.unfreeze()
        for bench in benches.values():
            bench.close()
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
    benches: dict[str, CostBench] = {}
    taken: dict[str, list[Costs]] = {name: [] for name in RULES}
    try:
        for name, options in RULES.items():
            benches[name] = CostBench(count, workers=args.workers, **options)
        gc.collect()
        gc.freeze()
        for number in range(args.rounds):
            for name in list(RULES)[:: 1 if number % 2 == 0 else -1]:
                taken[name].append(benches[name].play(load, args.seconds))
            _say(f"rules: round {number + 1} of {args.rounds}")
    finally:
        gc.unfreeze()
        for bench in benches.values():
            bench.close()
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
    _say(f"nets: {args.tasks[-1]} tasks are loaded")
    bench = NetBench(
        args.models,
        args.variant,
        most=args.tasks[-1],
        workers=args.workers,
        threads=args.threads,
        share=args.share,
        deadline_factor=args.deadline_factor,
    )
    try:
        gc.collect()
        gc.freeze()
        for number in range(args.rounds):
            for count in _turn(args.tasks, number):
                for side in SIDES if number % 2 == 0 else reversed(SIDES):
                    bench.play(count, side, args.net_seconds)
            _say(f"nets: round {number + 1} of {args.rounds}")
        costs_ns = {task.name: task.cost_ns for task in bench.tasks}
        loads = {count: bench.load_of(count) for count in args.tasks}
        rows: list[dict[str, Any]] = [
            {
                "tasks": count,
                "load": loads[count],
                "gap_us": quantiles_us(bench.tallies[count, SIDES[0]].gaps_ns),
                **{
                    side: bench.tallies[count, side].to_dict(costs_ns, args.workers)
                    for side in SIDES
                },
            }
            for count in args.tasks
        ]
        variants = sorted({task.variant for task in bench.tasks})
    finally:
        gc.unfreeze()
        bench.close()
    steps, collapsed = {}, {}
    for side in SIDES:
        met = {row["tasks"]: row[side]["met_per_s"] for row in rows}
        steps[side] = judge(met, loads)
        collapsed[side] = any(step["below_best"] > 1.0 - COLLAPSED for step in steps[side])
    return {
        "models": args.models,
        "variants": variants,
        "threads": args.threads,
        "seconds_per_round": args.net_seconds,
        "share": args.share,
        "deadline_factor": args.deadline_factor,
        "alone_ms": {name: cost / 1e6 for name, cost in costs_ns.items()},
        "rows": rows,
        "steps": steps,
        "collapsed": collapsed,
        "tolerance": args.tolerance,
        "bars_us": BARS_US,
        "passed": are_within([row["gap_us"] for row in rows])
        and all(step["below_best"] <= args.tolerance for step in steps[SIDES[0]]),
    }


def _turn(counts: Sequence[int], number: int) -> list[int]:
    """Every other round the other way round."""
    return list(counts) if number % 2 == 0 else list(reversed(counts))


# -- table ---------------------------------------------------------------------------------------


def format_table(result: dict[str, Any]) -> str:
    """The result for people."""
    parts = []
    if "cost" in result:
        parts.append(_format_cost(result["cost"]))
    if "rules" in result:
        parts.append(_format_rules(result["rules"]))
    if "nets" in result:
        parts.append(_format_nets(result["nets"]))
    if result["passed"] is None:
        parts.append("--quick: no bar is held")
    return "\n\n".join(parts)


def _format_cost(cost: dict[str, Any]) -> str:
    rows = [
        [
            part["script"],
            f"{part['load']:g}x",
            row["tasks"],
            row["stages"],
            *(row[key][share] for key in ("wall_us", "cpu_us") for share in BARS_US),
            row["wake_us"]["p50"],
            row["process_cpu_us"],
        ]
        for part in cost["parts"]
        for row in part["rows"]
    ]
    header = ["time", "load", "tasks", "stages", "p50 us", "p99 us", "cpu p50", "cpu p99"]
    lines = [
        "scheduling cost of a stage, edf, null back end",
        format_rows([*header, "wake p50", "process us"], rows),
    ]
    for part in cost["parts"]:
        growth = part["growth"]
        if growth["per_doubling_us"] is None:
            continue
        word = "at most" if growth["at_most_logarithmic"] else "MORE than"
        lines.append(
            f"{part['script']}, load {part['load']:g}: {growth['per_doubling_us']:+.2f} us for "
            f"twice the tasks; rms {growth['log_rms_us']:.2f} us from a logarithm, "
            f"{growth['linear_rms_us']:.2f} from a line: {word} logarithmic"
        )
    bars = cost["bars_us"]
    verdict = "passed" if cost["passed"] else "NOT passed"
    lines.append(f"bars: p50 <= {bars['p50']:g} us, p99 <= {bars['p99']:g} us: {verdict}")
    return "\n".join(lines)


def _format_rules(rules: dict[str, Any]) -> str:
    rows = [
        [
            row["rule"],
            row["met_per_s"],
            *(row[key][share] for key in ("wall_us", "cpu_us") for share in BARS_US),
        ]
        for row in rules["rows"]
    ]
    header = ["rule", "met/s", "p50 us", "p99 us", "cpu p50", "cpu p99"]
    title = f"rules, {rules['tasks']} tasks, load {rules['load']:g}, slept through"
    return f"{title}\n{format_rows(header, rows)}"


def _format_nets(nets: dict[str, Any]) -> str:
    changes = {
        side: {step["tasks"]: step for step in steps} for side, steps in nets["steps"].items()
    }
    rows = []
    for row in nets["rows"]:
        for side in SIDES:
            figures, step = row[side], changes[side].get(row["tasks"])
            rows.append(
                [
                    row["tasks"],
                    row["load"],
                    side,
                    figures["met_per_s"],
                    100.0 * figures["met_ratio"],
                    100.0 * figures["met_work"],
                    "" if step is None else f"{-100.0 * step['below_best']:+.1f}",
                    *(row["gap_us"][name] if side == SIDES[0] else None for name in BARS_US),
                    ", ".join(f"{word} {count}" for word, count in figures["outcomes"].items()),
                ]
            )
    header = [
        "tasks",
        "load",
        "side",
        "met/s",
        "met %",
        "work %",
        "to best %",
        "gap p50 us",
        "p99",
        "frames",
    ]
    collapsed = [side for side, word in nets["collapsed"].items() if word]
    return "\n".join(
        [
            f"{', '.join(nets['models'])} as {', '.join(nets['variants'])}, each task "
            f"{100 * nets['share']:.0f} % of a worker, deadline "
            f"{nets['deadline_factor']:g} periods",
            format_rows(header, rows),
            f"collapsed (below {100 * COLLAPSED:.0f} % of its best): "
            + (", ".join(collapsed) or "none"),
            f"bar: beyond saturation never more than {100 * nets['tolerance']:g} % below the most "
            "met frames of fewer tasks, gaps as above: "
            + ("passed" if nets["passed"] else "NOT passed"),
        ]
    )


def _say(text: str) -> None:
    print(f"scale: {text}", file=sys.stderr, flush=True)
