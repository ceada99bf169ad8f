"""A trace as an Excel workbook: a summary, the jobs, the stages.

Excel counts in doubles of 15 digits: steady times are seconds since the first release of the
trace, stamps are texts. A sheet ends after 1,048,576 rows; the rest is on further ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.report.export.rows import JOB_COLUMNS, STAGE_COLUMNS, Row, iterate_rows
from jetson_dnn_rt.lab.wcet.samples import EXECUTION, RESPONSE, Sample, read_samples
from jetson_dnn_rt.traces.reader import Trace
from jetson_dnn_rt.traces.summary import order_statistic

SHEET_ROWS = 1_048_576
"""Of an Excel sheet, the header included."""

_SUMMARY = (
    *("task", "variant", "time", "jobs", "warm-up jobs", "best ms", "mean ms", "p50 ms"),
    *("p99 ms", "p99.9 ms", "high-water mark ms", "deadline ms", "over the deadline"),
)
_QUANTILES = (0.5, 0.99, 0.999)


def require_xlsxwriter() -> Any:
    """Import xlsxwriter.

    Raises
    ------
    ConfigurationError
        With the install line when it is missing.
    """
    try:
        import xlsxwriter
    except ImportError as error:
        raise ConfigurationError(
            "Excel files need xlsxwriter, which is not installed: "
            "pip install 'jetson_dnn_rt[excel]'"
        ) from error
    return xlsxwriter


def write_xlsx(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write traces, batch by batch: the workbook is made on disk.

    Parameters
    ----------
    traces : mapping of str to Trace
        By their labels.
    path : Path
        Of the workbook.

    Raises
    ------
    ConfigurationError
        When xlsxwriter is missing.
    OSError
        When the file cannot be written.
    """
    xlsxwriter = require_xlsxwriter()
    options = {
        "constant_memory": True,
        # Names come from elsewhere: nothing of them is a formula or a link.
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "nan_inf_to_errors": True,
    }
    try:
        with xlsxwriter.Workbook(str(path), options) as book:
            summary = book.add_worksheet("summary")
            jobs = _Sheets(book, "jobs", [_excel_name(name) for name in JOB_COLUMNS])
            stages = _Sheets(book, "stages", [_excel_name(name) for name in STAGE_COLUMNS])
            for label, trace in traces.items():
                origin_ns = find_origin_ns(trace)
                for job_rows, stage_rows in iterate_rows(trace, label):
                    jobs.write(_convert(job_rows, JOB_COLUMNS, origin_ns))
                    stages.write(_convert(stage_rows, STAGE_COLUMNS, origin_ns))
            _write_summary(book, summary, traces)
    except xlsxwriter.exceptions.FileCreateError as error:
        raise OSError(f"cannot write {path}: {error}") from error
    return [path]


def find_origin_ns(trace: Trace) -> int:
    """First steady time in a trace; 0 of one without jobs."""
    least = [
        int(min(batch.column(name).to_numpy().min() for name in ("release_ns", "capture_ns")))
        for batch in trace.batches(["release_ns", "capture_ns"])
        if batch.num_rows
    ]
    return min(least, default=0)


class _Sheets:
    """A table that goes on to a further sheet where one is full."""

    def __init__(self, book: Any, name: str, header: Sequence[str]) -> None:
        self._book, self._name, self._header = book, name, header
        self._count = 0
        self._bold = book.add_format({"bold": True, "bottom": 1})
        self._begin()

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self._row >= SHEET_ROWS:
                self._begin()
            write_row(self._sheet, self._row, row)
            self._row += 1

    def _begin(self) -> None:
        self._count += 1
        name = self._name if self._count == 1 else f"{self._name} {self._count}"
        self._sheet = self._book.add_worksheet(name)
        self._sheet.freeze_panes(1, 0)
        self._sheet.set_column(0, len(self._header) - 1, 14)
        self._sheet.write_row(0, 0, self._header, self._bold)
        self._row = 1


def write_row(sheet: Any, row: int, values: Iterable[Any]) -> None:
    """Write values by their types: text is text whatever it looks like."""
    for column, value in enumerate(values):
        if isinstance(value, str):
            sheet.write_string(row, column, value)
        elif isinstance(value, bool):
            sheet.write_boolean(row, column, value)
        elif value is not None:
            sheet.write_number(row, column, value)


def _excel_name(column: str) -> str:
    return column if column == "stamp_ns" else column.replace("_ns", "_s")


def _convert(rows: list[Row], columns: Sequence[str], origin_ns: int) -> Iterable[Row]:
    """Steady times in seconds since the origin, stamps as texts."""
    steady = [index for index, name in enumerate(columns) if name.endswith("_ns")]
    stamps = [index for index, name in enumerate(columns) if name == "stamp_ns"]
    for row in rows:
        values = list(row)
        for index in steady:
            if values[index] is not None:
                time_ns = values[index]
                values[index] = str(time_ns) if index in stamps else (time_ns - origin_ns) / 1e9
        yield tuple(values)


def _write_summary(book: Any, sheet: Any, traces: Mapping[str, Trace]) -> None:
    bold = book.add_format({"bold": True, "bottom": 1})
    sheet.set_column(0, len(_SUMMARY) - 1, 16)
    sheet.write_row(0, 0, _SUMMARY, bold)
    row = 1
    for times in (EXECUTION, RESPONSE):
        for sample in read_samples(traces.values(), times=times):
            write_row(sheet, row, _summarize(sample, times))
            row += 1
    row += 1
    sheet.write_row(row, 0, ("trace", "what", "value"), bold)
    for label, trace in traces.items():
        for name, value in _facts(trace):
            row += 1
            write_row(sheet, row, (label, name, value))


def _summarize(sample: Sample, times: str) -> Row:
    named = dict(sample.key)
    counts = (named["task"], named["variant"], times, len(sample), len(sample.warm_up_ns))
    if not len(sample):
        return counts
    ordered = np.sort(sample.times_ns).tolist()
    over: float | None = None
    if times == RESPONSE and sample.deadline_ns:
        over = float(np.mean(sample.times_ns > sample.deadline_ns))
    return (
        *counts,
        ordered[0] / 1e6,
        float(sample.times_ns.mean()) / 1e6,
        *(order_statistic(ordered, quantile) / 1e6 for quantile in _QUANTILES),
        ordered[-1] / 1e6,
        sample.deadline_ns / 1e6 if sample.deadline_ns else None,
        over,
    )


def _facts(trace: Trace) -> Iterable[tuple[str, str]]:
    metadata = trace.metadata
    yield "source", metadata.source
    groups = {"machine": metadata.machine, "platform": metadata.platform}
    groups |= {"realtime": metadata.realtime, "parameters": metadata.parameters}
    for group, values in groups.items():
        for name, value in values.items():
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            yield f"{group}: {name}", text[:32_000]
    for name, task in metadata.tasks.items():
        yield f"task {name}", f"{task.model} {task.model_hash}".strip()
