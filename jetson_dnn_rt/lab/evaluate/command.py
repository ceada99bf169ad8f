# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Replay bags through the tasks of a parameter file, without losing a frame.

sequential: every variant of every task on every frame, one after the other: execution times, and
results that are the same, bit for bit, in every repetition. realtime: frames are released at their
recorded times and deadlines are enforced: what the robot would have done. simulated: times of an
earlier trace through the simulator: what if deadlines, rates, policies or the cohort differed.

Bags are folders or files of rosbag2 (sqlite3, mcap) or ROS 1, or folders of photos, of any sizes
(10 a second, unless --rate says otherwise). Without --params the package's
config/perception.param.yaml is used. Exit code 1 when a frame is lost or repetitions differ.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from jetson_dnn_rt.cli.options import (
    add_trace_limit,
    parse_assignment,
    parse_count,
    parse_deadline,
    parse_positive,
    parse_setting,
    parse_whole,
)
from jetson_dnn_rt.errors import ConfigurationError, naming

HELP = "replay bags through the tasks, without losing a frame"
SEQUENTIAL, REALTIME, SIMULATED = MODES = ("sequential", "realtime", "simulated")
DISCIPLINES = ("edf", "fifo", "priority")

_ONLY: dict[tuple[str, ...], tuple[str, ...]] = {
    (SEQUENTIAL,): ("scheduler", "chunk", "truth"),
    (SEQUENTIAL, REALTIME): ("repeat", "masks"),
    (REALTIME,): ("streaming",),
    (REALTIME, SIMULATED): ("rate", "speed", "policy"),
    (SIMULATED,): ("trace", "cohort", "discipline", "helpers", "seeds", "block_ms"),
}
"""Modes, and the options that apply to them only."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    text = "folder or file of a bag, or images:DIR, a folder of photos"
    add("bags", nargs="*", type=_parse_bag, metavar="BAG", help=text)
    add("--params", type=Path, metavar="FILE", help="ROS parameter file")
    add("--mode", choices=MODES, default=SEQUENTIAL, help="default: sequential")
    add("--topic", default="", metavar="T", help="image topic; optional if the bag has only one")
    add("--frames", type=parse_count, metavar="N", help="only the first N messages of each topic")
    add("--repeat", type=parse_count, metavar="N", help="run N times and compare (default 1)")
    add("--output", type=Path, metavar="DIR", help="write trace, results and summary")
    text = "with --output: whole masks in the results, as PNG, for agree"
    add("--masks", action="store_true", default=None, help=text)
    text = (
        "sequential: accuracy of every variant against labels: boxes in COCO's JSON (*.json), a "
        "folder of masks (*.png, the number of each pixel's class), or results in their place"
    )
    add("--truth", type=Path, metavar="TRUTH", help=text)
    add_trace_limit(parser, "beyond it the command fails")
    add("--json", action="store_true", help="one JSON object as the last line")
    add = parser.add_argument_group("tasks").add_argument
    many: dict[str, Any] = {"action": "append", "default": []}
    add("--task", metavar="TASK", help="only this task of the file; may be repeated", **many)
    add(
        "--variant",
        type=parse_assignment,
        metavar="TASK=NAME",
        help="replaces the file's variants; may be repeated, the first one runs in real time",
        **many,
    )
    text = "relative deadline; may be repeated"
    add("--deadline", type=parse_deadline, metavar="TASK=MS", help=text, **many)
    text = "any parameter, as in detector.stages=4; may be repeated"
    add("--set", type=parse_setting, metavar="TASK.PARAMETER=VALUE", help=text, **many)
    add = parser.add_argument_group("fleets (sequential)").add_argument
    add(
        "--workers",
        type=parse_count,
        metavar="N",
        help="sequential: share the frames among N processes. realtime, simulated: workers of the "
        "executor (default: as in the file or the trace)",
    )
    add("--scheduler", metavar="ADDRESS", help="Dask scheduler, tcp://HOST:PORT")
    text = "frames per request to a worker (default 250)"
    add("--chunk", type=parse_count, metavar="N", help=text)
    add = parser.add_argument_group("realtime and simulated").add_argument
    text = "release frames evenly at this rate, not as recorded"
    add("--rate", type=parse_positive, metavar="HZ", help=text)
    text = "playback speed, relative to the recording (default 1)"
    add("--speed", type=parse_positive, metavar="X", help=text)
    text = "policy that chooses variants (default: as in the file or the trace)"
    add("--policy", metavar="NAME", help=text)
    text = (
        "realtime: streaming accuracy against the truth: boxes in COCO's JSON (*.json), a folder "
        "of masks, or results of evaluate or run in their place"
    )
    add("--streaming", type=Path, metavar="TRUTH", help=text)
    add = parser.add_argument_group("simulated").add_argument
    text = "measured times: output of an earlier evaluate or run; may be repeated"
    add("--trace", action="append", type=Path, metavar="DIR", help=text)
    add("--cohort", metavar="A,B,...", help="tasks to run; give a name twice for two copies")
    add("--discipline", choices=DISCIPLINES, help="default: as recorded")
    text = "threads more for frames, and for networks side by side (default: as recorded)"
    add("--helpers", type=parse_whole, metavar="N", help=text)
    text = "N runs with the measured times resampled in blocks (default: one run, in order)"
    add("--seeds", type=parse_count, metavar="N", help=text)
    text = "length of these blocks (default 2000)"
    add("--block-ms", type=parse_positive, metavar="MS", help=text)


def _parse_bag(text: str) -> Path:
    """Path of a bag, or of a folder of photos, which may be written as the camera's source."""
    return Path(text.removeprefix("images:"))


def execute(args: argparse.Namespace) -> int:
    """Evaluate and report.

    Raises
    ------
    ConfigurationError
        When the options or the configuration cannot be used.
    SourceError
        When a bag cannot be read.
    """
    _check(args)
    # Each mode is a module that loads large libraries.
    mode = importlib.import_module(f"jetson_dnn_rt.lab.evaluate.{args.mode}")
    begin_s = time.monotonic()
    summary, table = mode.evaluate(args)
    summary["seconds"] = round(time.monotonic() - begin_s, 1)
    if args.output:
        with naming(args.output):
            text = json.dumps(summary, indent=1) + "\n"
            (args.output / "summary.json").write_text(text, encoding="utf-8")
    print(table, file=sys.stderr if args.json else sys.stdout)
    if args.output:
        print(f"written: {args.output}", file=sys.stderr)
    if args.json:
        print(json.dumps(summary))
    return 0 if summary["passed"] else 1


def _check(args: argparse.Namespace) -> None:
    for modes, names in _ONLY.items():
        for name in names:
            if getattr(args, name) is not None and args.mode not in modes:
                option = "--" + name.replace("_", "-")
                raise ConfigurationError(f"{option} is for --mode {' or '.join(modes)} only")
    if args.masks and not args.output:
        raise ConfigurationError("--masks needs --output DIR, whose results the masks go into")
    if args.mode == SIMULATED:
        if not (args.bags or args.trace):
            raise ConfigurationError("--trace is missing; fix: give the trace with the times")
    elif not args.bags:
        raise ConfigurationError("no bag is given")
    for bag in args.bags:
        if not bag.expanduser().exists():
            raise ConfigurationError(f"bag {bag} is not there")
    if args.rate and args.speed:
        raise ConfigurationError("--rate and --speed cannot be combined")
    if args.output:
        with naming(args.output):
            args.output.mkdir(parents=True, exist_ok=True)
