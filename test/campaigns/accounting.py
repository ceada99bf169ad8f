# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Campaign: every frame ends in exactly one outcome, as the traces alone say.

Simulated runs (random boards, cameras, tasks, overload and policies, with stages that raise,
tasks that hang and selectors that fail), then sessions in real time (scripted and small networks
at 500 Hz, tasks that come, go, hang and switch their variants). ``count_frames.py`` counts the
frames in each trace; its sums are compared with what was sent and with what the package counted::

    python test/campaigns/accounting.py --simulated 1000000 --real 100000 --minutes 40 --seed 1
    python test/campaigns/accounting.py --simulated 1 --real 0 --repeat 123   # a run with a fault
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from program import Result, main

from jetson_dnn_rt.tasks import Outcome

if TYPE_CHECKING:
    from accounts import Accounts

JUDGED_FROM = 10_000
"""Frames of which each outcome must be seen."""

Step = Callable[[random.Random, Path, int], "tuple[Accounts, list[str]]"]
"""One run of so many frames: what is known of them, and what went wrong besides."""


def simulate(rng: random.Random, folder: Path, frames: int) -> tuple[Accounts, list[str]]:
    """One simulated run."""
    from simulated_accounts import simulate_once

    return simulate_once(rng, folder, frames), []


def run_session(rng: random.Random, folder: Path, frames: int) -> tuple[Accounts, list[str]]:
    """One session in real time."""
    from session_accounts import Run

    session = Run(rng, folder, frames)
    return session.run(), session.faults


def count(args: argparse.Namespace, result: Result, kind: str, wanted: int, step: Step) -> None:
    """Repeat a step until there are enough frames, and judge what came out."""
    from accounts import compare

    runs = bad = frames = 0
    outcomes: Counter[str] = Counter()
    while frames < wanted and not args.clock.is_over:
        seed = args.repeat if args.repeat is not None else args.rng.randrange(1 << 32)
        rng = random.Random(seed)
        size = args.largest // rng.choice((1, 2, 4))
        with tempfile.TemporaryDirectory() as folder:
            accounts, faults = step(rng, Path(folder), size)
            found, differences = compare(accounts)
        faults += differences
        runs, bad = runs + 1, bad + bool(faults)
        frames += accounts.frames
        outcomes += found
        result.faults += [f"{kind}, run {runs} (seed {seed}): {fault}" for fault in faults]
        print(f"{kind} {runs}: {frames} frames, {bad} runs with faults", flush=True)
    result.counts[kind] = {"runs": runs, "sent": frames, **outcomes}
    is_sound = bad == 0 and outcomes.total() == frames
    result.judge(
        f"{wanted:,} {kind} frames, each in exactly one outcome by its trace alone",
        f"{outcomes.total():,} of {frames:,} in {runs} runs, {bad} of which with faults"
        f"{'' if frames >= wanted else '; then the time was over'}",
        None if is_sound and frames < wanted else is_sound,
    )
    never = [outcome.value for outcome in Outcome if not outcomes[outcome.value]]
    result.judge(
        f"{kind}: every outcome occurs",
        f"not once: {', '.join(never)}" if never else "all six",
        not never if frames >= JUDGED_FROM else None,
    )


def run(args: argparse.Namespace) -> Result:
    """Run the campaign."""
    logging.disable(logging.CRITICAL)  # hundreds of tasks fail on purpose
    result = Result()
    for kind, wanted, step in (
        ("simulated", args.simulated, simulate),
        ("real", args.real, run_session),
    ):
        if wanted:
            count(args, result, kind, wanted, step)
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the campaign's own options."""
    parser.add_argument("--simulated", type=int, default=1_000_000, help="frames to simulate")
    parser.add_argument("--real", type=int, default=100_000, help="frames in real time")
    parser.add_argument("--largest", type=int, default=10_000, help="frames of a task in a run")
    parser.add_argument("--repeat", type=int, metavar="SEED", help="of a run that had a fault")


if __name__ == "__main__":
    sys.exit(main(run, add_arguments, minutes=40.0))
