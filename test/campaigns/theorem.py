# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Rollout against the base policy on generated sets of frames, all known, times as the model says.

    python test/campaigns/theorem.py --minutes 10 --seed 1

It must never be worse, and each decision must end as it was played. A violation is a fault, with
the seed of its case.
"""

from __future__ import annotations

import argparse
import os
import random
import sys

import program
from program import ROOT, Result

sys.path.insert(0, os.fspath(ROOT / "test" / "scheduling"))

CASES = 100_000
"""That the campaign must have tried."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    parser.add_argument("--cases", type=int, default=CASES, help="it ends after so many")


def run(args: argparse.Namespace) -> Result:
    """Try cases until the time is over."""
    from model_cases import draw_case
    from test_rollout import check_case

    result = Result()
    tried = better = 0
    while tried < args.cases and not args.clock.is_over:
        seed = args.rng.randrange(1 << 62)
        try:
            better += check_case(*draw_case(random.Random(seed))) > 0
        except AssertionError as error:
            result.faults.append(f"draw_case(random.Random({seed})): {str(error)[:300]}")
        tried += 1
    result.counts = {"cases": tried, "better": better, "worse": len(result.faults)}
    result.judge("never worse than the base policy", len(result.faults), not result.faults)
    enough = tried >= args.cases
    result.judge(f"at least {args.cases} cases", tried, enough or None)
    return result


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=10.0))
