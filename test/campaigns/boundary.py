# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The trust boundary: hostile files by every way into the package, as an unprivileged user.

Each attack lays a file (`test/support/attacks_on_*.py`) whose payload makes a marker, or leads to
a precious file that nobody has named, or to a port of this machine; the kernel tells which files
are opened. First each is read without care: an attack that comes to nothing even then is none.
Then it is given to the package by every way that takes its kind of file
(`test/support/boundary_ways.py`), round after round with other placements of the payload, until
the time is over; the first round is always finished.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import program
from attack_arena import Attack
from boundary_runs import Boundary, Run, list_runs, open_boundary
from boundary_ways import NO_FILES, WAYS, list_entries
from program import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    parser.add_argument("--only", default="", metavar="TEXT", help="runs whose name has this text")
    parser.add_argument("--once", action="store_true", help="every attack and every way only once")


def run(args: argparse.Namespace) -> Result:
    """Run rounds, and judge them."""
    result, tally = Result(), Counter[str]()
    pairs = list_runs(every=not args.once)
    attacks = list(dict.fromkeys(one for one, _ in pairs))
    with open_boundary() as boundary:
        seed = args.seed
        harmless = [one.name for one in attacks if not _check_control(boundary, one, seed, tally)]
        while seed == args.seed or not args.clock.is_over:
            for one, way in pairs:
                if args.only not in f"{one.kind}: {one.name}, by {way.entry}":
                    continue
                if seed > args.seed and args.clock.is_over:
                    break
                _count(boundary.run(one, way, seed), seed, tally, result)
            seed += 1
        user = boundary.confinement.user
    unknown = sorted(set(list_entries()) - {way.entry for way in WAYS} - set(NO_FILES))
    result.judge("executions: 0", tally["executed"], tally["executed"] == 0)
    result.judge("reads of files that nobody named: 0", tally["reads"], tally["reads"] == 0)
    reached = tally["reached"]
    result.judge("programs, libraries and machines reached: 0", reached, reached == 0)
    faults = tally["faults"]
    result.judge("other faults (tracebacks, signals, terminal commands): 0", faults, faults == 0)
    live = f"{tally['controls that came to harm']} of {tally['controls']}"
    result.judge("attacks that harm a careless reader: all", live, not harmless)
    covered = f"{len(list_entries()) - len(NO_FILES) - len(unknown)} ways, {len(unknown)} unknown"
    result.judge("every option that takes a file from outside is attacked", covered, not unknown)
    result.judge("an unprivileged user", f"uid {user}", user != 0)
    result.faults += [f"harmless even without care: {name}" for name in harmless]
    result.counts = {
        "attacks": len(attacks), "ways": len({way.entry for _, way in pairs}),
        "pairs": len(pairs), "rounds": seed - args.seed, **tally,
    }  # fmt: skip
    return result


def _check_control(boundary: Boundary, one: Attack, seed: int, tally: Counter[str]) -> bool:
    """Whether an attack harms a careless reader, or has none that could show it."""
    control = boundary.run(one, None, seed)
    if control.verdict is None:
        return True
    tally["controls"] += 1
    tally["controls that came to harm"] += control.verdict.harm
    return control.verdict.harm


def _count(done: Run, seed: int, tally: Counter[str], result: Result) -> None:
    if done.verdict is None:
        tally["not possible here"] += 1
        return
    verdict = done.verdict
    tally["runs"] += 1
    tally[f"exit code {verdict.ending.code}"] += 1
    tally["executed"] += verdict.executed
    tally["reads"] += bool(verdict.reads)
    tally["reached"] += bool(verdict.reached)
    tally["faults"] += bool(verdict.faults)
    words = ["executed"] * verdict.executed
    words += [f"read {name}" for name in verdict.reads]
    words += [f"reached {name}" for name in verdict.reached]
    words += verdict.faults
    if words:
        result.faults.append(f"{done.name} (seed {seed}): {'; '.join(words)[:500]}")


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=10.0))
