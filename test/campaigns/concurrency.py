# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Concurrency: the engine in any order of calls, parameters under load, one key stored by many.

The engine is a hypothesis state machine (test/support/engine_machine.py), run until it has made
``--transitions``; then a detector on real DDS gets frames at 100 Hz and new parameters at 200 Hz;
then eight processes store one entry of the variant library at once. ``--parts`` runs some of them.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import program
from program import Result

LONGEST_MS = 100.0  # from a frame's release to its start that nothing explains
STEPS, EXAMPLES = 100, 200
RATE_HZ, PROCESSES = 200.0, 8


def run_engine(args: argparse.Namespace, result: Result) -> None:
    """The state machine, until it has made the transitions."""
    from engine_machine import EngineMachine, run_machine

    EngineMachine.transitions.clear()
    found, rounds = "", 0
    while EngineMachine.transitions.total() < args.transitions and not args.clock.is_over:
        left = args.transitions - EngineMachine.transitions.total()
        examples = max(1, min(EXAMPLES, 1 + left * 2 // STEPS))
        try:
            run_machine(args.seed * 1_000_003 + rounds, examples, STEPS)
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", ()))
            found = f"{type(error).__name__}: {error}\n{notes}"[:3000]
            result.faults.append(f"engine, seed {args.seed}, round {rounds}: {found}")
            break
        rounds += 1
    made = EngineMachine.transitions
    result.counts["engine"] = {"transitions": made.total(), **dict(made.most_common())}
    result.judge(
        f"{args.transitions:,} transitions of the engine: each job one outcome, at most one job "
        "on a thread, no job waits for ever, none overtakes a more urgent one",
        f"{made.total():,}",
        not found and made.total() >= args.transitions,
    )


def run_parameters(args: argparse.Namespace, result: Result) -> None:
    """Parameters at 200 Hz while frames come."""
    program.prepare_ros()
    try:
        import rclpy  # noqa: F401
    except ImportError:
        result.judge("parameters set at 200 Hz under load", "rclpy is not installed", None)
        return
    from parameter_storm import storm
    from ros_graph import Ros

    logging.disable(logging.WARNING)
    ros = Ros()
    try:
        figures = storm(ros, args.parameter_s, RATE_HZ, args.rng)
    finally:
        ros.close()
        logging.disable(logging.NOTSET)
    result.counts["parameters"] = figures
    met = (
        figures["answered"] == figures["requests"]
        and not figures["wrongly answered"]
        and figures["counts add up"]
        and not figures["ended more than once"]
        and not figures["not the last value"]
        and not figures["faults"]
        and figures["frames released"] > 0
    )
    result.judge(
        "parameters set at 200 Hz under load: each answered rightly, every frame one outcome",
        f"{figures['requests']} at {figures['rate_hz']} Hz, {figures['frames released']} frames",
        met,
    )
    if not met:
        result.faults.append(f"parameters: {figures}")
    longest_ms = figures["longest overhead_ms"]
    result.judge(
        f"no lost wake-up: no frame waits longer than {LONGEST_MS:g} ms for nothing",
        f"{longest_ms} ms",
        longest_ms <= LONGEST_MS if args.timed else None,
    )


def run_library(args: argparse.Namespace, result: Result) -> None:
    """Eight processes, one key."""
    from library_storm import storm

    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        figures, found = storm(Path(folder, "library"), PROCESSES, args.rounds)
    result.counts["library"] = figures
    result.faults += found
    result.judge(
        f"{PROCESSES} processes storing one key at once: none waits for another, no entry damaged",
        f"{figures['stores']} stores, the longest {figures['longest_s'] * 1e3:.0f} ms",
        not found,
    )


PARTS: dict[str, Callable[[argparse.Namespace, Result], None]] = {
    "engine": run_engine,
    "parameters": run_parameters,
    "library": run_library,
}


def run(args: argparse.Namespace) -> Result:
    """The campaign."""
    result = Result()
    for name in args.parts.split(","):
        PARTS[name](args, result)
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the campaign's own options."""
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas")
    parser.add_argument("--transitions", type=int, default=1_000_000, help="of the engine")
    parser.add_argument("--parameter-s", type=float, default=60.0, help="that parameters are set")
    parser.add_argument("--rounds", type=int, default=100, help="stores of each process")
    parser.add_argument("--untimed", dest="timed", action="store_false",
                        help="do not judge times: the machine is busy")  # fmt: skip


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=120.0))
