"""Replay bags through the tasks of a parameter file, without losing a frame.

sequential: every variant of every task on every frame, one after the other: execution times, and
results that are the same, bit for bit, in every repetition. realtime: frames are released at their
recorded times and deadlines are enforced: what the robot would have done. simulated: times of an
earlier trace through the simulator: what if deadlines, rates, policies or the cohort differed.

Bags are folders or files of rosbag2 (sqlite3, mcap) or ROS 1. Without --params the package's
config/perception.param.yaml is taken. Exit code 1 when a frame is lost or repetitions differ.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from jetson_dnn_rt.cli.options import (
    add_trace_limit,
    parse_assignment,
    parse_count,
    parse_deadline,
    parse_positive,
    parse_setting,
)
from jetson_dnn_rt.errors import ConfigurationError

HELP = "replay bags through the tasks, without losing a frame"
SEQUENTIAL, REALTIME, SIMULATED = MODES = ("sequential", "realtime", "simulated")
DISCIPLINES = ("edf", "fifo", "priority")

_ONLY: dict[str, tuple[str, ...]] = {
    "scheduler": (SEQUENTIAL,),
    "chunk": (SEQUENTIAL,),
    "rate": (REALTIME, SIMULATED),
    "speed": (REALTIME, SIMULATED),
    "repeat": (SEQUENTIAL, REALTIME),
    "trace": (SIMULATED,),
    "policy": (REALTIME, SIMULATED),
    "cohort": (SIMULATED,),
    "discipline": (SIMULATED,),
    "seeds": (SIMULATED,),
    "block_ms": (SIMULATED,),
}
"""Options that apply to some modes only."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("bags", nargs="*", type=Path, metavar="BAG", help="folder or file of a bag")
    add("--params", type=Path, metavar="FILE", help="ROS parameter file")
    add("--mode", choices=MODES, default=SEQUENTIAL, help="default: sequential")
    add("--topic", default="", metavar="T", help="of the images; may be left out with one")
    add("--frames", type=parse_count, metavar="N", help="only the first N messages of each topic")
    add("--repeat", type=parse_count, metavar="N", help="do it N times and compare (default 1)")
    add("--output", type=Path, metavar="DIR", help="write trace, results and summary")
    add_trace_limit(parser, "beyond it the command fails")
    add("--json", action="store_true", help="one JSON object as the last line")
    tasks = parser.add_argument_group("tasks")
    tasks.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="TASK",
        help="only this task of the file; may be repeated",
    )
    tasks.add_argument(
        "--variant",
        action="append",
        default=[],
        type=parse_assignment,
        metavar="TASK=NAME",
        help="in place of the file's variants; may be repeated, the first one runs in real time",
    )
    tasks.add_argument(
        "--deadline",
        action="append",
        default=[],
        type=parse_deadline,
        metavar="TASK=MS",
        help="relative deadline; may be repeated",
    )
    tasks.add_argument(
        "--set",
        action="append",
        default=[],
        type=parse_setting,
        metavar="TASK.PARAMETER=VALUE",
        help="any parameter, as in detector.stages=4; may be repeated",
    )
    fleet = parser.add_argument_group("fleets (sequential)")
    fleet.add_argument(
        "--workers",
        type=parse_count,
        metavar="N",
        help="sequential: share the frames among N processes. realtime, simulated: workers of the "
        "executor (default: as the file or the trace says)",
    )
    fleet.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, tcp://HOST:PORT")
    fleet.add_argument(
        "--chunk", type=parse_count, metavar="N", help="frames that a worker gets (default 250)"
    )
    replay = parser.add_argument_group("realtime and simulated")
    replay.add_argument(
        "--rate", type=parse_positive, metavar="HZ", help="evenly at this rate, not as recorded"
    )
    replay.add_argument(
        "--speed", type=parse_positive, metavar="X", help="times the recorded speed (default 1)"
    )
    replay.add_argument(
        "--policy",
        metavar="NAME",
        help="who decides on variants (default: as the file or the trace says)",
    )
    simulated = parser.add_argument_group("simulated")
    simulated.add_argument(
        "--trace",
        action="append",
        type=Path,
        metavar="DIR",
        help="measured times: output of an earlier evaluate or run; may be repeated",
    )
    simulated.add_argument(
        "--cohort", metavar="A,B,...", help="tasks that run; a name twice for two of them"
    )
    simulated.add_argument("--discipline", choices=DISCIPLINES, help="default: as recorded")
    simulated.add_argument(
        "--seeds",
        type=parse_count,
        metavar="N",
        help="N runs with the measured times put anew in blocks (default: once, in their order)",
    )
    simulated.add_argument(
        "--block-ms", type=parse_positive, metavar="MS", help="of these blocks (default 2000)"
    )


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
    # Each mode is a module, and loads large libraries.
    mode = importlib.import_module(f"jetson_dnn_rt.lab.evaluate.{args.mode}")
    summary, table = mode.evaluate(args)
    if args.output:
        path = args.output / "summary.json"
        try:
            path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
    print(table, file=sys.stderr if args.json else sys.stdout)
    if args.output:
        print(f"written: {args.output}", file=sys.stderr)
    if args.json:
        print(json.dumps(summary))
    return 0 if summary["passed"] else 1


def _check(args: argparse.Namespace) -> None:
    for name, modes in _ONLY.items():
        if getattr(args, name) is not None and args.mode not in modes:
            option = "--" + name.replace("_", "-")
            raise ConfigurationError(f"{option} is for --mode {' or '.join(modes)} only")
    if args.mode == SIMULATED:
        if not (args.bags or args.trace):
            raise ConfigurationError("--trace is missing: where the measured times are")
    elif not args.bags:
        raise ConfigurationError("no bag is given")
    for bag in args.bags:
        if not bag.expanduser().exists():
            raise ConfigurationError(f"bag {bag} is not there")
    if args.rate and args.speed:
        raise ConfigurationError("--rate and --speed: only one of them")
    if args.output:
        try:
            args.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"cannot make {args.output}: {error.strerror}") from error
