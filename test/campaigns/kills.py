# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Campaign 4: processes end at random moments by SIGTERM and SIGKILL, whatever they are doing.

    python test/campaigns/kills.py --kills 1000 --minutes 60 --seed 1

Storing, importing and exporting library entries, building variants, tracing, whole runs, clocks:
after each end everything that is served is loaded and compared with what was stored, traces are
read and compared with what was handed to them, processes and clocks are looked for.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from program import Result, main, prepare_ros

SHARES = {
    "store": 0.3, "import": 0.2, "build": 0.06, "trace": 0.28, "run": 0.04, "clocks": 0.12
}  # fmt: skip
"""Of the kills: each subject costs another time."""


def run(args: argparse.Namespace) -> Result:
    """Kill until every subject has had its share of each signal, or the time is over."""
    prepare_ros()
    from kill_subjects import HARD, POLITE, SUBJECTS, Kill

    names = args.subjects.split(",") if args.subjects else list(SHARES)
    whole = sum(SHARES[name] for name in names)
    result, kills = Result(), list[Kill]()
    for name in names:
        wanted = math.ceil(args.kills * SHARES[name] / whole)
        with tempfile.TemporaryDirectory(prefix=f"kills-{name}-") as folder:
            subject = SUBJECTS[name](Path(folder), random.Random(f"{args.seed}/{name}"))
            to_do = [one for _ in range(wanted) for one in subject.signals]
            while to_do and not args.clock.is_over:
                kills.append(subject.kill(to_do.pop()))
                if not kills[-1].counts:
                    to_do.insert(0, kills[-1].number)
            result.faults += [f"{name}, at the end: {fault}" for fault in subject.close()]
            worst = max((kill.lost_s for kill in kills if kill.subject == name), default=0.0)
        print(f"{name}: {wanted} of each signal, {args.clock.seconds:.0f} s in all", flush=True)
        result.counts[f"{name}: oldest lost job s"] = round(worst, 3)
    result.faults += [str(kill) for kill in kills if kill.faults]
    sent = Counter(kill.number for kill in kills if kill.counts)
    result.counts |= {
        f"{name}, {number.name}": count
        for (name, number), count in sorted(
            Counter((kill.subject, kill.number) for kill in kills if kill.counts).items()
        )
    }
    # Of what an end in order costs nothing is lost; the clocks' processes have no trace.
    lost_s = max((kill.lost_s for kill in kills), default=0.0)
    gone_s = max((kill.gone_s for kill in kills), default=0.0)
    back_s = max((kill.back_s for kill in kills), default=0.0)
    judge, limit_s = result.judge, args.limit_s
    counted = ", ".join(f"{sent[one]} {one.name}" for one in (POLITE, HARD))
    enough = min(sent[POLITE], sent[HARD]) >= args.kills
    judge(f"{args.kills} of each signal, {', '.join(names)}", counted, enough)
    text = f"{len(result.faults)} faults"
    judge("nothing damaged is served, nothing stored is lost", text, not result.faults)
    text = f"all but the last {lost_s:.3f} s"
    judge(f"traces are read to within {args.lost_s:g} s of the end", text, lost_s <= args.lost_s)
    text = f"gone after at most {gone_s:.3f} s"
    judge(f"no process is left {limit_s:g} s after the end", text, gone_s <= limit_s)
    text = f"after at most {back_s:.3f} s"
    judge(f"clocks are back within {limit_s:g} s", text, back_s <= limit_s)
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the campaign."""
    add = parser.add_argument
    add("--kills", type=int, default=1000, metavar="N", help="of each signal (default 1000)")
    add("--subjects", metavar="A,B", help=f"some of {', '.join(SHARES)} (default: all)")
    add("--lost-s", type=float, default=1.0, help="bar of the traces (default 1)")
    add("--limit-s", type=float, default=2.0, help="bar of processes and clocks (default 2)")


if __name__ == "__main__":
    sys.exit(main(run, add_arguments, minutes=60.0))
