# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Campaign 5: disks that are full, read-only or broken, a missing home, a full stdout.

    python test/campaigns/disk.py --minutes 60 --seed 1

Every command of ``jetson-dnn-rt`` with every fault, and running graphs whose disk fails for a
while. It needs to mount (root); errors of the disk need a C compiler.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from program import Result, main, prepare_ros


def run(args: argparse.Namespace) -> Result:
    """Run every command with every fault, then the graphs."""
    prepare_ros()
    from disk_commands import COMMANDS, FAULTS, Commands, list_words, words_of
    from disk_live import EIO, FULL, PROGRAMS, endure
    from failing_disk import compile_failing_disk

    cases = args.cases.split(";") if args.cases else list(COMMANDS)
    result, ends = Result(), Counter[str]()
    codes: dict[str, Counter[int]] = {}
    recovered_s, jobs = [0.0], Counter[str]()
    with tempfile.TemporaryDirectory(prefix="disk-") as name:
        folder = Path(name)
        shim = compile_failing_disk(folder)
        faults = [one for one in FAULTS if shim or not one.failing]
        faults = [one for one in faults if not (args.quick and one.is_fresh)]
        if args.faults:
            faults = [one for one in faults if one.name in args.faults.split(";")]
        commands = Commands(folder, shim)
        for case in cases:
            for fault in faults:
                if args.clock.is_over:
                    continue
                outcome = commands.run(case, fault, args.rng)
                ends[fault.name] += 1
                codes.setdefault(case, Counter())[outcome.ended.code] += 1
                if outcome.faults:
                    result.faults.append(str(outcome).replace(os.fspath(folder), "DISK"))
            print(f"{case}: {dict(codes.get(case, {}))}, {args.clock.seconds:.0f} s", flush=True)
        commands.close()
        programs = PROGRAMS[:1] if args.quick else PROGRAMS
        for number in range(args.graphs):
            for program in programs:
                for kind in (FULL, EIO) if shim and not args.quick else (FULL,):
                    place = folder / f"{program} {kind} {number}"
                    place.mkdir()
                    try:
                        found = endure(place, program, kind, shim, args.rng)
                    except AssertionError as error:  # what came before it is not lost
                        result.faults.append(f"{program} {kind}: {error}")
                        continue
                    recovered_s.append(found.recovered_s)
                    jobs += Counter(jobs=found.jobs, written=found.written, lost=found.lost)
                    if found.faults:
                        result.faults.append(str(found).replace(os.fspath(folder), "DISK"))
    missing = list_words() - {" ".join(words_of(case)) for case in cases}
    result.counts = {
        "runs by fault": dict(ends),
        "exit codes by command": {case: dict(found) for case, found in codes.items()},
        "traces of running graphs": dict(jobs),
    }
    judge, runs = result.judge, ends.total()
    text = f"{len(cases)} cases, {len(faults)} faults, {runs} runs"
    text += f"; without {', '.join(sorted(missing))}" if missing else ""
    whole = runs == len(cases) * len(faults) and not (missing and not args.cases)
    judge("every command with every fault", text, whole)
    judge(
        "0 tracebacks, one clear line of error, exit code 0 only where all was written",
        f"{len(result.faults)} faults",
        not result.faults,
    )
    if args.graphs:
        text = f"{jobs['written']} + {jobs['lost']} = {jobs['jobs']}"
        judge("written + lost = jobs", text, jobs["written"] + jobs["lost"] == jobs["jobs"])
        worst_s = max(recovered_s)
        text = f"after at most {worst_s:.2f} s"
        judge(f"traces go on within {args.recovery_s:g} s", text, worst_s <= args.recovery_s)
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the campaign."""
    add = parser.add_argument
    add("--cases", metavar="A;B", help="some of the commands, as disk_commands.py names them")
    add("--faults", metavar="A;B", help="some of the faults")
    add("--graphs", type=int, default=3, metavar="N", help="disks that fail for a while, each")
    add("--recovery-s", type=float, default=5.0, help="bar of the recovery (default 5)")
    add("--quick", action="store_true", help="for a test: no fresh imports, one graph")


if __name__ == "__main__":
    sys.exit(main(run, add_arguments, minutes=60.0))
