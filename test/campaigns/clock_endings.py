# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Campaign: clocks come back whatever ends the process that changed them (EDGES 6).

Ends processes at random moments by SIGTERM, SIGINT and SIGKILL, in equal parts, and looks whether
all clocks of a made-up board are back, and the guardians gone, within 2 s::

    python test/campaigns/clock_endings.py --ends 200 --seed 1
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [os.fspath(REPOSITORY), os.fspath(REPOSITORY / "test" / "support")]


def main() -> int:
    """Run it; 1 when some end was not as it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ends", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=float, default=0.2, help="share of real nodes, 0 to 1")
    arguments = parser.parse_args()
    profile = REPOSITORY / "config" / "fastdds_profile.xml"
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", os.fspath(profile))
    from clock_ends import LIMIT_S, end_many

    begin_s = time.monotonic()
    endings = []
    for ending in end_many(arguments.ends, arguments.seed, node_share=arguments.nodes):
        endings.append(ending)
        print(ending, flush=True)
        if not ending.is_good:
            print(ending.errors)
    bad = [ending for ending in endings if not ending.is_good]
    for (kind, name), count in sorted(Counter((e.kind, e.signal.name) for e in endings).items()):
        print(f"{count:5d} x {kind}, {name}")
    back = [ending.back_s for ending in endings]
    print(
        f"{len(endings) - len(bad)} of {len(endings)} within {LIMIT_S:g} s (seed "
        f"{arguments.seed}, {time.monotonic() - begin_s:.0f} s); clocks back after at most "
        f"{max(back):.3f} s, median {statistics.median(back):.3f} s; guardian gone after at most "
        f"{max(ending.gone_s for ending in endings):.3f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
