"""A trace as two CSV files: the jobs, and beside it their stages.

A spreadsheet takes a cell that begins with ``= + - @``, a tab or a line break for a formula,
whatever quotes are around it, and the names in a trace come from elsewhere. Such texts have an
apostrophe before them, and so have texts that begin with one: a reader who takes one away from
every text that begins with it has the texts of the trace. Numbers are as they are.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jetson_dnn_rt.lab.report.export.rows import JOB_COLUMNS, STAGE_COLUMNS, iterate_rows
from jetson_dnn_rt.traces.reader import Trace

_MARK = "'"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", _MARK)


def write_csv(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write traces, batch by batch; texts are those of `guard_cells`.

    Parameters
    ----------
    traces : mapping of str to Trace
        By their labels.
    path : Path
        Of the jobs; the stages are beside it, ``NAME-stages.csv``.

    Returns
    -------
    list of Path
        Both files.

    Raises
    ------
    OSError
        When one of them cannot be written.
    """
    stages = path.with_name(f"{path.stem}-stages{path.suffix}")
    with ExitStack() as stack:
        job_file, stage_file = (
            stack.enter_context(file.open("w", newline="", encoding="utf-8"))
            for file in (path, stages)
        )
        job_writer, stage_writer = csv.writer(job_file), csv.writer(stage_file)
        job_writer.writerow(JOB_COLUMNS)
        stage_writer.writerow(STAGE_COLUMNS)
        for label, trace in traces.items():
            for job_rows, stage_rows in iterate_rows(trace, label):
                job_writer.writerows(map(guard_cells, job_rows))
                stage_writer.writerows(map(guard_cells, stage_rows))
    return [path, stages]


def guard_cells(values: Iterable[Any]) -> list[Any]:
    """Values of a row, texts such that no spreadsheet takes them for a formula."""
    return [
        f"{_MARK}{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
        for value in values
    ]
