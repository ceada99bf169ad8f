# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A detector is sent malicious JPEG, PNG and `Image` messages, with a good one behind each.

    python test/campaigns/image_fuzz.py --minutes 10 --seed 1

Over DDS, to a process of its own for every few hundred images; what the readers themselves make of
far more of them is `fuzz.py`'s.
"""

from __future__ import annotations

import argparse
from collections import Counter

import program
from program import Result

TRANSPORTS = ("compressed", "raw")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    parser.add_argument("--count", type=int, default=500, help="images of a process")


def run(args: argparse.Namespace) -> Result:
    """Run the campaign."""
    program.prepare_ros()
    from image_storm import MEMORY_LIMIT_MIB, storm_detector
    from ros_graph import Ros

    result, totals = Result(), Counter[str]()
    reasons: dict[str, Counter[str]] = {one: Counter() for one in TRANSPORTS}
    grown_mib, slowest_s, seed = 0, 0.0, args.seed
    ros = Ros()
    try:
        while not totals or not args.clock.is_over:
            for transport in TRANSPORTS:
                storm = storm_detector(ros, transport, args.count, seed)
                result.faults += [f"{transport}, from {seed} on: {text}" for text in storm.faults]
                totals.update(
                    sent=storm.sent, good=storm.good, answered=storm.answered,
                    counted=sum(storm.outcomes.values()), ended_badly=storm.code != 0,
                )  # fmt: skip
                reasons[transport].update(storm.reasons)
                grown_mib = max(grown_mib, storm.peak_mib - storm.base_mib)
                slowest_s = max(slowest_s, storm.slowest_s)
            seed += args.count
    finally:
        ros.close()
    result.counts = {**totals, "reasons": reasons, "slowest_s": round(slowest_s, 3)}
    sent, good = totals["sent"], totals["good"]
    result.judge("no process ends", f"{totals['ended_badly']} did", not totals["ended_badly"])
    result.judge(
        "every good image is answered", f"{totals['answered']} of {good}",
        totals["answered"] == good,
    )  # fmt: skip
    result.judge(
        "every image is counted", f"{totals['counted']} of {sent}", totals["counted"] == sent
    )
    result.judge(
        f"memory grows by less than {MEMORY_LIMIT_MIB} MiB, three of the largest pictures",
        f"{grown_mib} MiB", grown_mib < MEMORY_LIMIT_MIB,
    )  # fmt: skip
    result.judge("no other fault", f"{len(result.faults)}", not result.faults)
    return result


if __name__ == "__main__":
    raise SystemExit(program.main(run, add_arguments))
