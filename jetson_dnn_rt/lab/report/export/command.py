# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A trace as CSV, XLSX, Chrome/Perfetto or speedscope JSON.

A trace is the output folder of a command, its folder `trace`, or one of the files in it. The CSV
has a row for each job, with a file NAME-stages.csv beside it for the stages; the workbook has both
as sheets, and a summary. The JSON opens in https://ui.perfetto.dev (nothing is uploaded)
and in chrome://tracing; with a name that ends in .json.gz it is compressed. speedscope's opens in
https://www.speedscope.app: where the time of each worker went, by task and stage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError

if TYPE_CHECKING:
    from jetson_dnn_rt.traces.reader import Trace

HELP = "a trace as CSV, XLSX, Chrome/Perfetto or speedscope JSON"
CSV, XLSX, PERFETTO, SPEEDSCOPE = "csv", "xlsx", "perfetto", "speedscope"
_SUFFIXES = {".csv": CSV, ".xlsx": XLSX, ".json": PERFETTO, ".gz": PERFETTO}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="output folder, or a trace in it")
    text = "by default what the name of the file says: .csv, .xlsx, .json, .json.gz (perfetto)"
    add("--format", choices=(CSV, XLSX, PERFETTO, SPEEDSCOPE), help=text)
    add("--output", type=Path, required=True, metavar="FILE", help="of the export")
    add("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Export and report what was written.

    Raises
    ------
    ConfigurationError
        When a trace cannot be opened, or the file cannot be written.
    JetsonDnnRtError
        When a trace is damaged in the middle.
    """
    from jetson_dnn_rt.lab.report.export import perfetto, speedscope, tables

    writers = {
        CSV: tables.write_csv,
        XLSX: tables.write_xlsx,
        PERFETTO: perfetto.write_perfetto,
        SPEEDSCOPE: speedscope.write_speedscope,
    }
    kind = args.format or _SUFFIXES.get(args.output.suffix)
    if kind is None:
        raise ConfigurationError(
            f"--format is missing, and {args.output.name} does not end in {', '.join(_SUFFIXES)}"
        )
    traces = open_labelled(args.traces)
    try:
        jobs = sum(
            batch.num_rows for trace in traces.values() for batch in trace.batches(["release_ns"])
        )
        args.output.parent.mkdir(parents=True, exist_ok=True)
        files = writers[kind](traces, args.output)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"cannot write {args.output}: {reason}") from error
    except ValueError as error:
        raise JetsonDnnRtError(str(error)) from error
    if args.json:
        print(json.dumps({"format": kind, "files": [str(file) for file in files], "jobs": jobs}))
    else:
        print(f"written: {', '.join(map(str, files))} ({jobs} jobs)", file=sys.stderr)
    return 0


def open_labelled(paths: list[Path]) -> dict[str, Trace]:
    """Open traces; their labels are as short as possible while still different.

    Raises
    ------
    ConfigurationError
        When one cannot be opened, or is given twice.
    """
    from jetson_dnn_rt.traces.reader import open_trace

    traces = {}
    for path in paths:
        label = path.name if [other.name for other in paths].count(path.name) == 1 else str(path)
        if label in traces:
            raise ConfigurationError(f"{path} is given twice")
        try:
            traces[label] = open_trace(path)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
    return traces
