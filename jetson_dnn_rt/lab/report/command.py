"""One HTML page, readable without any other file, and its figures: what a recording says.

TRACE is what `run --output`, `evaluate`, `simulate`, `profile` or the nodes left: a folder, or a
file of it. The first one is reported; every further one is a condition that is compared with it:
beside other load, after an update. What `profile --interference` measured beside other load is
taken as such without being named; its layers and cold starts are shown, too. With --pool all
traces are one recording.

The worst case is judged for each task and variant; a bound never comes without its verdict. The
schedulability analysis takes the measured times as budgets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.options import parse_count
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.lab.report.recording import Recording
    from jetson_dnn_rt.lab.report.report import Judge
    from jetson_dnn_rt.lab.wcet.samples import Sample
    from jetson_dnn_rt.lab.wcet.statement import Campaign
    from jetson_dnn_rt.traces.reader import Trace

HELP = "one HTML page and pictures of a trace"
BESIDE = "beside-"
"""Prefix of the folders of `profile --interference`, beside that of the task alone."""
LAYERS, COLD = "layers", "cold"
"""Folders of `profile --per layer` and `--cold`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="a trace, or a folder with one")
    add("--output", type=Path, required=True, metavar="DIR", help="where report.html goes")
    add("--label", action="append", default=[], metavar="TEXT", help="of each TRACE, in order")
    add("--title", metavar="TEXT", help="of the page (default: the name of the first)")
    add("--pool", action="store_true", help="all traces are parts of one recording")
    add(
        "--workers",
        type=parse_count,
        metavar="N",
        help="stages that run side by side (default: as recorded)",
    )
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

    require_matplotlib()
    require_jinja2()
    recordings = _read(args)
    first = recordings[0]
    folders = (args.traces[0] / name for name in (LAYERS, COLD))
    layers, cold = (
        _read_one(folder.name, folder) if folder.is_dir() else None for folder in folders
    )
    report = make_report(
        recordings,
        _make_judge(first),
        title=args.title or f"Timing report: {name_trace(args.traces[0])}",
        workers=args.workers or max(find_workers(first.metadata.parameters), first.side_by_side),
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
        paths += find_beside(paths[0])
    labels += [label_trace(path, _open(path)) for path in paths[len(labels) :]]
    return [
        _read_one(label, path)
        for label, path in zip(_number_duplicates(labels), paths, strict=True)
    ]


def _open(path: Path) -> Trace:
    from jetson_dnn_rt.traces.reader import open_trace

    try:
        return open_trace(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def _read_one(label: str, *paths: Path) -> Recording:
    from jetson_dnn_rt.lab.report.recording import read_recording

    traces = [_open(path) for path in paths]
    try:
        return read_recording(label, traces)
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def find_beside(folder: Path) -> list[Path]:
    """Find the folders of the same profile that were measured beside other load."""
    return sorted(path for path in folder.glob(f"{BESIDE}*") if path.is_dir())


def name_trace(path: Path) -> str:
    """Name a trace by the folder that a reader knows it by."""
    path = path.resolve()
    if path.is_file() and path.stem.startswith("jobs"):
        path = path.parent
    return path.parent.name if path.name == "trace" else path.stem


def label_trace(path: Path, trace: Trace) -> str:
    """Label a trace by the interference that its profile names, or by its folder."""
    company = find_interference(trace.metadata.parameters)
    if not company:
        return name_trace(path)
    return "alone" if company == "none" else f"beside {company}"


def find_interference(parameters: object) -> str:
    """Find what ran beside the tasks, as a profile records it; empty where nothing says so."""
    if not isinstance(parameters, dict):
        return ""
    own = parameters.get("interference")
    if isinstance(own, str):
        return own
    return next(filter(None, map(find_interference, parameters.values())), "")


def _number_duplicates(labels: Sequence[str]) -> list[str]:
    return [
        f"{label} ({labels[: place + 1].count(label)})" if labels.count(label) > 1 else label
        for place, label in enumerate(labels)
    ]


def find_workers(parameters: object) -> int:
    """Find the number of workers among recorded parameters, at any depth; 1 if there is none."""
    if isinstance(parameters, dict):
        own = parameters.get("workers")
        if isinstance(own, int) and own > 0:
            return own
        return max((find_workers(value) for value in parameters.values()), default=1)
    return 1


def _make_judge(recording: Recording) -> Judge:
    from jetson_dnn_rt.lab.wcet.evt import judge

    platform: Any = recording.metadata.platform
    state = ", ".join(str(platform[key]) for key in ("title", "clocks") if platform.get(key))

    def judge_sample(sample: Sample) -> Campaign:
        cut_off = recording.count_cut_off(sample)
        return judge(sample.times_ns, title=sample.title, platform=state, cut_off=cut_off)

    return judge_sample
