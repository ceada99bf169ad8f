#!/usr/bin/env python3
# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Make a bag from a video, which is repeated if it has too few frames.

    python tools/make_bag.py drive.mp4 drive_bag --frames 10000 --compressed

JPEG (``--compressed``) takes about 20 kB for a frame of 480x270, pixels take 390 kB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness.options import Options
from benchmarks.replay.bag import COMPRESSIONS, STORAGES, TOPIC, read_frames, write_bag
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Image

SHOWN_EVERY = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bag; return 0, or 2 if it cannot be written."""
    args = _parse(arguments)
    try:
        frames = read_frames(args.video, args.frames, args.height)
        write_bag(
            args.bag,
            _show(frames, args.frames),
            args.rate,
            storage=args.storage,
            compressed=args.compressed,
            compression=args.zstd,
            topic=args.topic,
        )
    except JetsonDnnRtError as error:
        print(f"make_bag: {error}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in args.bag.iterdir())
    print(f"{args.bag}: {args.frames} frames, {size / 1e6:.1f} MB")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("bag", type=Path, help="folder that is made")
    add = Options(parser)
    add("--frames", 10_000, least=1, metavar="N")
    add("--rate", 25.0, "of the stamps", metavar="HZ")
    add("--height", 0, "of the frames (default: the video's)", metavar="PX")
    add("--storage", STORAGES[0], choices=STORAGES)
    add("--compressed", False, "JPEG in CompressedImage")
    add(
        "--zstd", COMPRESSIONS[0],
        "compression of the bag itself: the file, each message, or each chunk (mcap)",
        choices=COMPRESSIONS,
    )  # fmt: skip
    add("--topic", "", f"default: {TOPIC}[/compressed]")
    return parser.parse_args(arguments)


def _show(frames: Iterable[Image], total: int) -> Iterator[Image]:
    for place, frame in enumerate(frames, start=1):
        yield frame
        if place % SHOWN_EVERY == 0:
            print(f"make_bag: {place} of {total} frames", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
