# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Spoilt inputs of every format that the package reads: each is read, or refused in its own words.

    python test/campaigns/fuzz.py --minutes 120 --seed 1 --keep fuzz_kept
    python test/campaigns/fuzz.py --formats mcap onnx --count 500
    python test/campaigns/fuzz.py --only mcap:1234 --seed 1 --keep fuzz_kept

The formats share the time. Each is read in child processes, in which audit events and inotify show
what a reader does beside reading its file. Messages over DDS are `image_fuzz.py`'s.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import program
from fuzzing import batches, child
from fuzzing.formats import FORMATS
from program import Result

_LEAST_S = 10.0
"""Of a format's turn: a child imports for some seconds first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--count", type=int, help="inputs of each format, instead of --minutes")
    parser.add_argument("--only", metavar="FORMAT:NUMBER", help="one input, of this --seed")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="for inputs that kill their reader, and of --only"
    )


def run(args: argparse.Namespace) -> Result:
    """Run the campaign."""
    result = Result()
    names = [args.only.split(":")[0]] if args.only else list(args.formats)
    missing = {name: found for name in names if (found := batches.list_missing(name))}
    result.counts["left out"] = {name: ", ".join(found) for name, found in missing.items()}
    names = [name for name in names if name not in missing]
    with batches.Campaign(args.seed, args.keep) as campaign:
        if args.only:
            number = int(args.only.split(":")[1])
            campaign.run(names[0], first=number, count=1)
        elif args.count is not None:
            for name in names:
                campaign.run(name, count=args.count)
        else:
            _share_time(args, campaign, names)
        tallies = campaign.tallies
    result.counts["formats"] = {
        name: {
            "inputs": tally.inputs, **tally.ends, "slowest_s": tally.cpu_s,
            "memory_mib": tally.memory_mib, "child_mib": tally.child_mib,
        }
        for name, tally in tallies.items()
    }  # fmt: skip
    result.counts["faults alike"] = {
        name: dict(tally.alike) for name, tally in tallies.items() if tally.alike
    }
    result.faults = [fault for tally in tallies.values() for fault in tally.faults]
    _judge(result, tallies, names)
    return result


def _share_time(args: argparse.Namespace, campaign: batches.Campaign, names: list[str]) -> None:
    """Run the format that had least time, until there is none left."""
    turn_s = max(_LEAST_S, 60.0 * args.minutes / (4 * len(names)))
    while not args.clock.is_over:
        left_s = 60.0 * args.minutes - args.clock.seconds
        name = min(names, key=lambda one: _seconds(campaign, one))
        campaign.run(name, seconds=min(turn_s, left_s))


def _seconds(campaign: batches.Campaign, name: str) -> float:
    tally = campaign.tallies.get(name)
    return tally.seconds if tally else 0.0


def _judge(result: Result, tallies: dict[str, batches.Tally], names: list[str]) -> None:
    result.judge(
        "every format is read",
        f"{len(tallies)} of {len(names)}",
        bool(tallies) and not set(names) - set(tallies),
    )
    if not tallies:
        return
    kinds = sum((tally.kinds for tally in tallies.values()), Counter())
    inputs = sum(tally.inputs for tally in tallies.values())
    others = kinds[child.ERROR] + kinds[batches.END]
    result.judge(
        "every input is read or refused with an error of the package",
        f"{inputs - others} of {inputs} in {len(tallies)} formats", not others,
    )  # fmt: skip
    result.judge(
        "every error can be shown, and is no longer than 20,000 characters",
        f"{kinds[child.TEXT]} are not", not kinds[child.TEXT],
    )  # fmt: skip
    largest = max((max(t.memory_mib, t.child_mib), name) for name, t in tallies.items())
    result.judge(
        f"an input takes less than {batches.MEMORY_MIB} MiB, also in a child",
        f"{largest[0]} MiB ({largest[1]})", not kinds[batches.MEMORY],
    )  # fmt: skip
    slowest = max((tally.cpu_s, name) for name, tally in tallies.items())
    result.judge(
        f"an input takes less than {batches.CPU_S:g} s of computing",
        f"{slowest[0]:.2f} s ({slowest[1]})", not kinds[batches.TIME],
    )  # fmt: skip
    result.judge(
        "no file makes its reader import, compile, load, connect, start or open anything else",
        f"{kinds[child.REACH]} did", not kinds[child.REACH],
    )  # fmt: skip
    lost = [
        f"{name}: {line['name']}"
        for name, tally in tallies.items()
        for line in tally.lines
        if line["sound"] and line["how"] != child.READ
    ]
    result.judge("every sound input is read", f"refused: {', '.join(lost) or 'none'}", not lost)


if __name__ == "__main__":
    raise SystemExit(program.main(run, add_arguments))
