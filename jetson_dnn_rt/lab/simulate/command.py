# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Simulate a policy in a scenario: the same engine and coordinator, under a virtual clock.

The scenario is a file, or the name of one of the package's, as tx2_cohort4; `--list` names them.
The JSON counts every frame that arrived: a frame that was not met was missed, whether it was late,
skipped, aborted or superseded. Accuracy is the mean of the frames that were met; energy is the
board's over the whole run, idle time included, as the mean of the seeds. The interval of the miss
ratio is over the seeds (Student's t); with one seed it is Wilson's.

With --plot the policies named by --policies run in the scenario, and the figures of the NeuOS
paper are drawn: energy, latency, accuracy by iteration, and the triangle of all three.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.options import add_trace_limit, parse_count
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.simulate.session import Source

HELP = "simulate a policy in a scenario"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("--scenario", metavar="FILE|NAME", help="what happens")
    add("--policy", metavar="NAME", help="who decides")
    add("--seeds", type=parse_count, default=1, metavar="N", help="runs, seeds 0 to N-1")
    add(
        "--frames", type=parse_count, metavar="N",
        help="frames of the task with the shortest period (default: the scenario's)",
    )  # fmt: skip
    add("--trace", type=Path, metavar="DIR", help="write the job trace of the first seed")
    add_trace_limit(parser, "beyond it the command fails")
    add("--plot", type=Path, metavar="DIR", help="draw the policies of --policies side by side")
    add("--policies", metavar="A,B,...", help="for --plot")
    add("--list", action="store_true", help="list the scenarios and the policies, and exit")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Simulate and report."""
    from jetson_dnn_rt.lab.simulate.scenario import open_scenario, scenario_names
    from jetson_dnn_rt.lab.simulate.session import make_source, policy_names

    if args.list:
        print("scenarios:")
        for name in scenario_names():
            print(f"  {name:20s} {open_scenario(name).description}")
        print(f"policies: {', '.join(policy_names())}")
        return 0
    for option, missing in (("scenario", True), ("policy", args.plot is None)):
        if missing and getattr(args, option) is None:
            raise ConfigurationError(f"--{option} is missing; --list names them")
    source = make_source(open_scenario(args.scenario))
    if args.plot is not None:
        result = _plot(args, source)
    else:
        result = _simulate(args, source)
        if not args.json:
            print(format_table(args.scenario, args.policy, args.seeds, result))
    if args.json:
        print(json.dumps(result))
    return 0


def _simulate(args: argparse.Namespace, source: Source) -> dict[str, Any]:
    from jetson_dnn_rt.lab.simulate.session import simulate, simulate_traced
    from jetson_dnn_rt.lab.simulate.tally import summarize

    policy, frames = args.policy, args.frames
    tallies = []
    if args.trace is not None:
        tallies.append(simulate_traced(source, policy, frames, args.trace, args.trace_limit_mb))
    for seed in range(len(tallies), args.seeds):
        tallies.append(simulate(source, policy, seed=seed, frames=frames))
    return summarize(tallies)


def _plot(args: argparse.Namespace, source: Source) -> dict[str, Any]:
    from jetson_dnn_rt.lab.simulate.plots import collect, draw

    policies = [name for name in (args.policies or args.policy or "").split(",") if name]
    if not policies:
        raise ConfigurationError("--plot needs --policies A,B,...")
    runs = collect(source, policies, seeds=args.seeds, frames=args.frames)
    print(f"written: {', '.join(map(str, draw(source, runs, args.plot)))}", file=sys.stderr)
    return {run.policy: run.summary for run in runs}


def format_table(scenario: str, policy: str, seeds: int, result: dict[str, Any]) -> str:
    """Format the result for people."""

    def show(value: float | None, unit: str = "", digits: int = 2) -> str:
        return "-" if value is None else f"{value:.{digits}f}{unit}"

    def percent(value: float | None) -> str:
        return show(None if value is None else 100 * value, " %")

    low, high = result["miss_ratio_ci95"] or (None, None)
    response, decision = result["response_ms"], result["decision_us"]
    energy = show(result["energy_j"], " J")
    per_frame = show(result["energy_per_met_frame_j"], " J", 4)
    lines = (
        f"{policy} in {scenario}, {seeds} seed{'s' if seeds > 1 else ''}",
        f"  missed     {percent(result['miss_ratio'])}  (95 %: {percent(low)} to "
        f"{percent(high)}), at most {result['max_burst']} in a row",
        f"  accuracy   {show(result['accuracy'], digits=4)}",
        f"  energy     {energy}, {per_frame} per met frame",
        f"  response   p50 {show(response['p50'])}, p99 {show(response['p99'])}, max "
        f"{show(response['max'], ' ms')}",
        f"  decision   p50 {show(decision['p50'], digits=1)}, p99 "
        f"{show(decision['p99'], ' us', 1)}",
        f"  simulated  {show(result['frames_per_s'], ' frames/s', 0)}",
    )
    return "\n".join(lines)
