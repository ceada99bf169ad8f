# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Malicious and spoilt files of bags: what becomes of each, and the worst in time and memory.

``python test/campaigns/bag_fuzz.py --count 2000 --seed 1``; each named file is a line of JSON, the
sum is the last. Exit 1 when a
file raises anything but the package's own errors, or the limits of `MAX_MEMORY_MIB` and
`MAX_SECONDS` are passed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import hostile_bags

from jetson_dnn_rt.cameras.bags import compression
from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.errors import ConfigurationError, SourceError

MAX_MEMORY_MIB = 1024
MAX_SECONDS = 10.0
ENDS = ("read", "refused")


def read_peak_mib() -> int:
    """Largest resident memory of this process so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


def read_bag(path: Path) -> tuple[str, list[int]]:
    """Read all of a bag; ``read``, ``refused`` or what should not be, and the images' values."""
    try:
        with open_image_bag(path) as bag:
            images = [one.frame.image for one in bag.read() if isinstance(one, BagImage)]
            texts = sum(len(note) for note in bag.notes)
    except (SourceError, ConfigurationError) as error:
        return ("refused" if len(str(error)) < 20_000 else "a long error"), []
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200], []
    return ("read" if texts < 50_000 else "long notes"), [int(image.flat[0]) for image in images]


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="files spoilt at random")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ends: dict[str, int] = {}
    slowest = (0.0, "")

    def run(path: Path, name: str, named: bool = True) -> None:
        nonlocal slowest
        start = time.monotonic()
        found, values = read_bag(path)
        slowest = max(slowest, (time.monotonic() - start, name))
        ends[found] = ends.get(found, 0) + 1
        if named or found not in ENDS:
            print(json.dumps({"name": name, "end": found, "values": values}), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(hostile_bags.DB3):
            path = Path(folder, f"{number}.db3")
            hostile_bags.DB3[name](path)
            run(path, name)
        for seed in range(options.seed, options.seed + options.count):
            run(hostile_bags.mutate_bag(seed, Path(folder)), f"seed {seed}", False)
        # Made beforehand by another process they would not be in this one's peak.
        path = Path(folder, "x.mcap")
        for name in hostile_bags.MCAP:
            path.write_bytes(hostile_bags.make_in_child(name))
            run(path, name)
    compression.remove_unpacked()
    peak = read_peak_mib()
    bad = sum(n for end, n in ends.items() if end not in ENDS)
    failed = bad > 0 or peak > MAX_MEMORY_MIB or slowest[0] > MAX_SECONDS
    result = {
        "files": sum(ends.values()), "ends": ends, "peak_mib": peak, "bad": bad,
        "slowest_s": round(slowest[0], 3), "slowest": slowest[1], "seed": options.seed,
    }  # fmt: skip
    print(json.dumps(result))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
