# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compare the results of two runs, frame by frame: whether B finds what A finds.

A and B are files of `run --results`, or folders of `evaluate --output`. Boxes are compared by
mAP@0.5 of B against A, masks (written with --masks) by mIoU, classes by the best one. Frames are
the same if they have the same photo, stamp, or number in the stream, and show the same picture:
others are left out and counted. Where A has no objects the agreement is unknown.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.options import parse_share
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.errors import ConfigurationError, naming

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.agree.comparison import TaskAgreement
    from jetson_dnn_rt.lab.agree.result_files import TaskResults

HELP = "compare the results of two runs, frame by frame"
FEW_FRAMES = 30
"""Below it the table says that there are few."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("a", type=Path, metavar="A", help="results that stand in for the truth")
    add("b", type=Path, metavar="B", help="results to compare with them")
    text = "of `evaluate`: the variant in A and the one in B, '' for a run; they may be one file"
    add("--variants", nargs=2, default=("", ""), metavar=("NAME", "NAME"), help=text)
    add("--task", metavar="TASK", help="only this one")
    add("--at-least", type=parse_share, metavar="X", help="exit code 1 below it, or if unknown")
    add("--output", type=Path, metavar="DIR", help="write a picture of each task's worst frame")
    text = "where the frames are: video:PATH, images:DIR, synthetic[:WxH] or a bag"
    add("--source", metavar="S", help=text)
    add("--topic", default="", metavar="T", help="image topic of a bag with several")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Compare and report; 1 when a task is below `--at-least`, or its agreement unknown.

    ConfigurationError: a file cannot be read, the two have no task in common, or the source of the
    pictures cannot be read.
    """
    from jetson_dnn_rt.lab.agree.comparison import compare_tasks
    from jetson_dnn_rt.lab.agree.result_files import read_results

    if args.source and not args.output:
        raise ConfigurationError("--source is for the picture of --output DIR")
    a, b = (
        read_results(path, variant)
        for path, variant in zip((args.a, args.b), args.variants, strict=True)
    )
    names = [name for name in a if name in b and args.task in (None, name)]
    if not names:
        raise ConfigurationError(
            f"no task to compare: A has {', '.join(a)}, B has {', '.join(b)}"
            + (f", --task is {args.task}" if args.task else "")
        )
    found = {name: compare_tasks(name, a[name], b[name]) for name in names}
    pictures = _write_pictures(args, found, a, b) if args.output else {}
    low = [name for name, one in found.items() if _is_low(one, args.at_least)]
    table = _format(found, args.at_least, low)
    if args.output and not pictures:
        print(f"no picture in {args.output}: no frame differs", file=sys.stderr)
    print(table, file=sys.stderr if args.json else sys.stdout)
    if args.json:
        tasks = {name: one.to_dict() for name, one in found.items()}
        print(json.dumps({"tasks": tasks, "below": low, "pictures": pictures}))
    return 1 if low else 0


def _is_low(one: TaskAgreement, least: float | None) -> bool:
    return least is not None and (one.value is None or one.value < least)


def _format(found: dict[str, TaskAgreement], least: float | None, low: list[str]) -> str:
    from jetson_dnn_rt.variants.measuring.agreement import METRICS

    header = ["task", "agreement", "frames", "in A", "in B", "matched", "missing", "extra"]
    rows: list[list[Cell]] = []
    lines = []
    for name, one in found.items():
        value = "unknown" if one.value is None else f"{one.value:.3f} {one.metric}"
        counts: list[Cell] = [*one.objects, one.matched, one.missing, one.extra]
        if one.metric != METRICS["detection"]:
            counts = ["-"] * len(counts)
        rows.append([name, value, one.frames, *counts])
        if one.unknown:
            lines.append(f"{name}: unknown: {one.unknown}")
        elif one.frames < FEW_FRAMES:
            lines.append(
                f"{name}: few frames were compared, {one.frames} of them: what differs in one of "
                f"{FEW_FRAMES} may not have shown"
            )
        same = one.matching
        if same.left_out:
            lines.append(
                f"{name}: {same.left_out} frames of one {same.by} are other pictures in A than in "
                f"B and left out, the first: {same.first}; have both read the same source from "
                "its start, in one size"
            )
        if same.unchecked:
            lines.append(
                f"{name}: whether {same.unchecked} frames of one {same.by} are the same picture "
                "was not checked: they have no thumbnail in A or B"
            )
        for side, fates in zip("AB", one.only, strict=True):
            if fates:
                why = ", ".join(f"{fate} {count}" for fate, count in fates.items())
                other = "B" if side == "A" else "A"
                lines.append(
                    f"{name}: {sum(fates.values())} frames have a result in {side} alone; "
                    f"in {other}: {why}"
                )
        if one.worst is not None:
            lines.append(f"{name}: they differ most in frame {one.worst.a.name}")
    lines += [f"{name}: below --at-least {least:g}" for name in low]
    return "\n".join([format_rows(header, rows), *lines])


def _write_pictures(
    args: argparse.Namespace,
    found: dict[str, TaskAgreement],
    a: dict[str, TaskResults],
    b: dict[str, TaskResults],
) -> dict[str, str]:
    """Write a picture of each task's worst frame; returns the files."""
    from jetson_dnn_rt.cameras.files import write_image
    from jetson_dnn_rt.lab.agree.worst_frame import draw_worst, read_frame

    written: dict[str, str] = {}
    with naming(args.output):
        args.output.mkdir(parents=True, exist_ok=True)
    for name, one in found.items():
        if one.worst is None:
            continue
        image = read_frame(args.source, one.worst.a, args.topic) if args.source else None
        file = args.output / f"worst_{name.strip('/').replace('/', '_')}.png"
        picture = draw_worst(one.worst, _merge_labels(a[name], b[name]), image)
        with naming(file):
            write_image(file, picture)
        written[name] = str(file)
        on = "" if args.source else ", on an empty canvas: give --source for the frame itself"
        print(f"written: {file}{on}", file=sys.stderr)
    return written


def _merge_labels(a: TaskResults, b: TaskResults) -> dict[str, dict[int, str]]:
    return {
        mask: {**b.labels.get(mask, {}), **a.labels.get(mask, {})}
        for mask in (*a.labels, *b.labels)
    }
