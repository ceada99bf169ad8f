# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Report of a recording as one self-contained HTML page, and its figures as files.

TRACE is the output of `run --output`, `evaluate`, `simulate`, `profile` or the nodes: a folder, or
a file in it. The first one is reported; every further one is a condition that is compared with it:
beside other load, after an update. The conditions that `profile --interference` measured are
included without being named, as are its layers and cold starts. With --pool all traces are one
recording.

The worst case is judged for each task and variant; a bound never comes without its verdict. The
schedulability analysis takes the measured times as budgets.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from jetson_dnn_rt.cli.options import parse_count
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.report.recording import Recording
    from jetson_dnn_rt.lab.wcet.samples import Sample
    from jetson_dnn_rt.lab.wcet.statement import Campaign
    from jetson_dnn_rt.traces.schema import TraceMetadata

T = TypeVar("T")

HELP = "one HTML page and pictures of a trace"
BESIDE = "beside-"
"""Prefix of the folders of `profile --interference`, beside that of the task alone."""
LAYERS, COLD = "layers", "cold"
"""Folders written by `profile --per layer` and `--cold`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="a trace, or a folder with one")
    add("--output", type=Path, required=True, metavar="DIR", help="folder for report.html")
    add("--label", action="append", default=[], metavar="TEXT", help="name per TRACE, in order")
    add("--title", metavar="TEXT", help="title of the page (default: name of the first)")
    add("--pool", action="store_true", help="all traces are parts of one recording")
    text = "stages that run side by side (default: as recorded)"
    add("--workers", type=parse_count, metavar="N", help=text)
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Read, judge, draw and write.

    Raises
    ------
    ConfigurationError
        When a trace cannot be read, or the folder not be written.
    """
    from jetson_dnn_rt.lab.report.page import require_jinja2, write_report
    from jetson_dnn_rt.lab.report.report import make_report, to_dict
    from jetson_dnn_rt.lab.report.style import require_matplotlib
    from jetson_dnn_rt.lab.wcet.evt import judge

    require_matplotlib()
    require_jinja2()
    recordings = _read(args)
    first = recordings[0]
    folders = (args.traces[0] / name for name in (LAYERS, COLD))
    layers, cold = (
        _read_one(folder.name, folder) if folder.is_dir() else None for folder in folders
    )
    platform = first.metadata.platform
    state = ", ".join(str(platform[key]) for key in ("title", "clocks") if platform.get(key))

    def judge_sample(sample: Sample) -> Campaign:
        cut_off = first.count_cut_off(sample)
        return judge(sample.times_ns, title=sample.title, platform=state, cut_off=cut_off)

    recorded = find_parameter(first.metadata.parameters, "workers", 1)
    report = make_report(
        recordings,
        judge_sample,
        title=args.title or f"Timing report: {name_trace(args.traces[0])}",
        workers=args.workers or max(recorded, first.side_by_side),
        layers=layers,
        cold=cold,
        say=lambda text: print(f"{text} ...", file=sys.stderr),
    )
    page, figures = write_report(report, args.output)
    if args.json:
        files = {"page": str(page), "figures": [str(file) for file in figures]}
        print(json.dumps({**to_dict(report), "files": files}))
    else:
        print(f"written: {page} and {len(figures)} figures")
    return 0


def _read(args: argparse.Namespace) -> list[Recording]:
    labels, paths = list(args.label), list(args.traces)
    if len(labels) > (1 if args.pool else len(paths)):
        raise ConfigurationError(f"{len(labels)} --label, but fewer recordings to be named")
    if args.pool:
        return [_read_one(labels[0] if labels else name_trace(paths[0]), *paths)]
    if len(paths) == 1:
        # Of the same profile, beside other load.
        paths += sorted(path for path in paths[0].glob(f"{BESIDE}*") if path.is_dir())
    recordings = [_read_one(str(path), path) for path in paths]
    unnamed = list(zip(paths, recordings, strict=True))[len(labels) :]
    labels += [label_trace(path, recording.metadata) for path, recording in unnamed]
    numbered = [
        f"{label} ({labels[: place + 1].count(label)})" if labels.count(label) > 1 else label
        for place, label in enumerate(labels)
    ]
    return [replace(one, label=label) for one, label in zip(recordings, numbered, strict=True)]


def _read_one(label: str, *paths: Path) -> Recording:
    from jetson_dnn_rt.lab.report.recording import read_recording
    from jetson_dnn_rt.traces.reader import open_trace

    try:
        return read_recording(label, [open_trace(path) for path in paths])
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def name_trace(path: Path) -> str:
    """Name a trace after the folder that a reader knows."""
    path = path.resolve()
    if path.is_file() and path.stem.startswith("jobs"):
        path = path.parent
    return path.parent.name if path.name == "trace" else path.stem


def label_trace(path: Path, metadata: TraceMetadata) -> str:
    """Label a trace by the interference that its profile names, or by its folder."""
    company = find_parameter(metadata.parameters, "interference", "")
    if not company:
        return name_trace(path)
    return "alone" if company == "none" else f"beside {company}"


def find_parameter(parameters: object, name: str, default: T) -> T:
    """Find a recorded parameter at any depth, of the type of the default (which means none)."""
    if not isinstance(parameters, dict):
        return default
    own = parameters.get(name)
    if own and isinstance(own, type(default)):
        return own
    deeper = (find_parameter(value, name, default) for value in parameters.values())
    return next((found for found in deeper if found != default), default)
