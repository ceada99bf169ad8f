# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cycles under load: the life cycle, the policy, a variant that is added, each again and again.

In the process of ``soak.py`` frames come all the time. After each cycle, when they flow again, its
memory, threads and descriptors are read: none may grow with the cycles. The first ten of each kind
are a warm-up::

    python test/campaigns/cycles.py --cycles 50 --output test/campaigns/results/cycles.json
"""

# ruff: noqa: E402  (ROS reads its environment when it is imported)
from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import program

program.prepare_ros()

from composed_process import TASKS, ComposedProcess, GuestFrames
from process_samples import compare_ends, read_sample
from ros_graph import Ros
from trace_counts import read_traces

from jetson_dnn_rt.config.nodes import POLICIES

WARM_UP = 10
ENDS = 10
"""Cycles after the warm-up, and at the end, whose medians are compared."""

MOST_MB = 8.0
"""That the memory may grow by between the two: 0.25 MB a cycle, of 50."""

FRAMES = 20
"""Of each task, after which a cycle is over."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    add = parser.add_argument
    add("--cycles", type=int, default=50, help="of each kind")
    add("--additions", type=int, help="of variants; by default as many, 0 = no real network")
    add("--rate", type=float, default=100.0, help="of the camera in Hz")


def run(args: argparse.Namespace) -> program.Result:
    """Run the campaign."""
    result, ros = program.Result(), Ros()
    additions = args.cycles if args.additions is None else args.additions
    try:
        with tempfile.TemporaryDirectory() as folder:
            run_cycles(ros, Path(folder, "cycles"), args, additions, result)
    finally:
        ros.close()
    return result


def run_cycles(
    ros: Ros, folder: Path, args: argparse.Namespace, additions: int, result: program.Result
) -> None:
    """Run the cycles of all kinds, and judge them."""
    policies = [args.rng.choice(list(POLICIES)) for _ in range(args.cycles)]
    refused = 0

    def change_policy() -> None:
        nonlocal refused
        refused += not process.set("/coordinator", policy=policies.pop())

    with ComposedProcess(ros, folder, args.rate, guest=bool(additions)) as process:
        guest = None
        if additions:
            guest = GuestFrames(ros)
            process.wait_for_variant()
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "life cycle": (args.cycles, process.reconfigure),
            "policy": (args.cycles, change_policy),
            "variant added": (additions, process.add_variant),
        }
        samples = {
            kind: repeat(process, count, cycle) for kind, (count, cycle) in kinds.items() if count
        }
        if guest is not None:
            guest.stop()
        last = process.settle()
        process.end(result)
    for kind, found in samples.items():
        judge(result, kind, found)
    frames = read_traces(folder / "trace", TASKS)
    breaks = {task: one.breaks for task, one in frames.items()}
    result.faults += [
        f"{task}: gaps in the trace: {some}" for task, some in breaks.items() if some
    ]
    same = all(
        frames[task].count(sum(counts.values())) == {k: n for k, n in counts.items() if n}
        for task, counts in last.items()
    )
    result.judge(
        "every frame is in the traces once, as diagnostics count them",
        f"{sum(map(len, frames.values())):,} jobs, {sum(map(len, breaks.values()))} gaps, "
        f"{'the same' if same else 'other'} counts",
        same and not any(breaks.values()),
    )
    result.counts |= {
        "cycles": {kind: len(found) for kind, found in samples.items()},
        "policies_refused": refused,
    }
    names = next(iter(samples.values()))[0]
    result.series = {
        name: [s[name] for found in samples.values() for s in found] for name in names
    }


def repeat(
    process: ComposedProcess, count: int, cycle: Callable[[], None]
) -> list[dict[str, float]]:
    """Repeat a cycle; a sample after each."""
    samples = []
    for _ in range(count):
        cycle()
        process.wait_for_frames(FRAMES)
        samples.append(read_sample(process.process.pid))
    return samples


def judge(result: program.Result, kind: str, samples: list[dict[str, float]]) -> None:
    """Judge the cycles of a kind."""
    enough = len(samples) >= WARM_UP + 2 * ENDS
    values = {name: [s[name] for s in samples[WARM_UP:]] for name in samples[0]}
    ends = {name: compare_ends(found, ENDS) for name, found in values.items()} if enough else {}
    limits = {"anonymous_mb": MOST_MB, "threads": 0.0, "descriptors": 0.0}
    grown = [
        name for name, most in limits.items() if ends and ends[name][1] - ends[name][0] > most
    ]
    figures = [f"{name} {before:g} -> {after:g}" for name, (before, after) in ends.items()]
    result.faults += [f"{kind}: {name} {values[name]}" for name in grown]
    result.judge(
        f"{kind}: medians of {ENDS} cycles after the first {WARM_UP}, and of the last {ENDS}: "
        f"at most {MOST_MB:g} MB more, no thread and no descriptor",
        f"{len(samples)} cycles, {', '.join(figures) or 'too few to judge'}",
        not grown if enough else None,
    )


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=0.0))
