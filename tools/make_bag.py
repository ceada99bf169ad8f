#!/usr/bin/env python3
"""Make a bag of a video: as many frames as you like, from its beginning again where it is short.

    python tools/make_bag.py drive.mp4 drive_bag --frames 10000 --compressed

JPEG (``--compressed``) takes about 20 kB for a frame of 480x270, pixels take 390 kB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.replay.bag import COMPRESSIONS, STORAGES, TOPIC, read_frames, write_bag
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Image

SHOWN_EVERY = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bag; 0 when it is there, 2 when it cannot be."""
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
    parser.add_argument("--frames", type=_at_least_one, default=10_000, metavar="N")
    parser.add_argument("--rate", type=float, default=25.0, metavar="HZ", help="of the stamps")
    parser.add_argument(
        "--height", type=int, default=0, metavar="PX", help="of the frames (default: the video's)"
    )
    parser.add_argument("--storage", choices=STORAGES, default=STORAGES[0])
    parser.add_argument("--compressed", action="store_true", help="JPEG in CompressedImage")
    parser.add_argument(
        "--zstd", choices=COMPRESSIONS, default=COMPRESSIONS[0],
        help="compression of the bag itself: the file, each message, or each chunk (mcap)",
    )  # fmt: skip
    parser.add_argument("--topic", default="", help=f"default: {TOPIC}[/compressed]")
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1: {value}")
    return value


def _show(frames: Iterable[Image], total: int) -> Iterator[Image]:
    for place, frame in enumerate(frames, start=1):
        yield frame
        if place % SHOWN_EVERY == 0:
            print(f"make_bag: {place} of {total} frames", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
