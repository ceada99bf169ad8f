# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A trace as tables, CSV or Excel: a row for each job, and one for each stage that ran.

Columns with a steady time as traced end in ``_ns``, those with a difference of such times in
``_ms``.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.wcet.samples import (
    EXECUTION,
    RESPONSE,
    Sample,
    read_numbers,
    read_samples,
    read_stages,
    sum_stages,
)
from jetson_dnn_rt.safety.utf8_paths import escape
from jetson_dnn_rt.traces.reader import Trace
from jetson_dnn_rt.traces.summary import has_quantile, order_statistic

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]

_AS_TRACED = (
    *("task", "camera", "sequence", "variant", "outcome", "reason", "admission", "warm_up"),
    *("stamp_ns", "capture_ns", "release_ns", "start_ns", "completion_ns"),
    "absolute_deadline_ns",
)
JOB_COLUMNS = (
    *("trace", *_AS_TRACED),
    *("response_ms", "execution_ms", "waiting_ms", "deadline_ms", "lateness_ms", "lag_ms"),
)
STAGE_COLUMNS = (
    *("trace", "task", "sequence", "position", "stage", "variant", "clocks", "warm_up"),
    *("start_ns", "end_ns", "execution_ms", "narrow"),
)

SHEET_ROWS = 1_048_576
"""Rows of an Excel sheet, the header included."""
_SUMMARY = (
    *("task", "variant", "time", "jobs", "warm-up jobs", "best ms", "mean ms", "p50 ms"),
    *("p99 ms", "p99.9 ms", "high-water mark ms", "deadline ms", "over the deadline"),
)

_MARK = "'"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", _MARK)


def iterate_rows(trace: Trace, label: str) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield rows of `JOB_COLUMNS` and of `STAGE_COLUMNS`, batch by batch."""
    for batch in trace.batches():
        yield _job_rows(batch, label), _stage_rows(batch, label)


def _job_rows(batch: pa.RecordBatch, label: str) -> list[Row]:
    names = ("release_ns", "completion_ns", "absolute_deadline_ns", "waiting_ns", "lag_ns")
    numbers = [read_numbers(batch, name) for name in names]
    release_ns, completion_ns, deadline_ns, waiting_ns, lag_ns = numbers
    derived_ns = (
        completion_ns - release_ns,
        sum_stages(*read_stages(batch)),
        waiting_ns,
        deadline_ns - release_ns,
        completion_ns - deadline_ns,
        lag_ns,
    )
    columns = [[label] * batch.num_rows]
    columns += [batch.column(name).to_pylist() for name in _AS_TRACED]
    columns += [(times_ns / 1e6).tolist() for times_ns in derived_ns]
    return list(zip(*columns, strict=True))


def _stage_rows(batch: pa.RecordBatch, label: str) -> list[Row]:
    stages, offsets = read_stages(batch)
    starts_ns, ends_ns = stages["start_ns"], stages["end_ns"]
    counts = np.diff(offsets)
    jobs = np.repeat(np.arange(batch.num_rows), counts)
    positions = np.arange(len(starts_ns)) - np.repeat(offsets[:-1], counts)
    columns = [
        [label] * len(starts_ns),
        *(batch.column(name).take(jobs).to_pylist() for name in ("task", "sequence")),
        positions.tolist(),
        *(stages[name].to_pylist() for name in ("name", "variant", "clocks")),
        batch.column("warm_up").take(jobs).to_pylist(),
        starts_ns.tolist(),
        ends_ns.tolist(),
        ((ends_ns - starts_ns) / 1e6).tolist(),
        stages["narrow"].fill_null(False).to_pylist(),
    ]
    return list(zip(*columns, strict=True))


# -- CSV -----------------------------------------------------------------------------------------


def write_csv(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write labelled traces as two files, batch by batch: jobs, and ``NAME-stages.csv``.

    Raises
    ------
    OSError
        When one of them cannot be written.
    """
    files = [path, path.with_name(f"{path.stem}-stages{path.suffix}")]
    with ExitStack() as stack:
        given: Any = {"newline": "", "encoding": "utf-8", "errors": "backslashreplace"}
        writers = [csv.writer(stack.enter_context(file.open("w", **given))) for file in files]
        for writer, header in zip(writers, (JOB_COLUMNS, STAGE_COLUMNS), strict=True):
            writer.writerow(header)
        for label, trace in traces.items():
            for tables in iterate_rows(trace, label):
                for writer, rows in zip(writers, tables, strict=True):
                    writer.writerows(map(guard_cells, rows))
    return files


def guard_cells(values: Iterable[Any]) -> list[Any]:
    """Escape texts so that no spreadsheet reads them as a formula.

    A spreadsheet reads a cell that begins with ``= + - @``, a tab or a line break as a formula,
    even between quotes, and names in a trace are not trusted. Such texts, and those that begin
    with an apostrophe, get an apostrophe in front: readers remove one from every text that begins
    with it. A NUL, which Python 3.10 neither writes nor reads, is replaced. Numbers stay as they
    are.
    """
    return [_guard(value) if isinstance(value, str) else value for value in values]


def _guard(text: str) -> str:
    text = text.replace("\0", "\ufffd")
    return f"{_MARK}{text}" if text.startswith(_FORMULA) else text


# -- Excel ---------------------------------------------------------------------------------------


def require_xlsxwriter() -> Any:
    """Import xlsxwriter; ConfigurationError with the install line when it is missing."""
    try:
        import xlsxwriter
    except ImportError as error:
        raise ConfigurationError(
            "Excel files need xlsxwriter, which is not installed: "
            "pip install 'jetson_dnn_rt[excel]'"
        ) from error
    return xlsxwriter


def write_xlsx(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write labelled traces as a workbook: a summary, the jobs, the stages.

    Written batch by batch; the workbook is built on disk. Excel has doubles of 15 digits, so
    steady times are seconds since the first release of the trace, and stamps are texts. Rows
    beyond `SHEET_ROWS` go on further sheets.

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
        # Names are not trusted: none is read as a formula or a link.
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "nan_inf_to_errors": True,
    }
    output = _Output(path)
    try:
        with xlsxwriter.Workbook(output, options) as book:
            summary = book.add_worksheet("summary")
            jobs = _Sheets(book, "jobs", JOB_COLUMNS)
            stages = _Sheets(book, "stages", STAGE_COLUMNS)
            for label, trace in traces.items():
                origin_ns = find_origin_ns(trace)
                for job_rows, stage_rows in iterate_rows(trace, label):
                    jobs.write(job_rows, origin_ns)
                    stages.write(stage_rows, origin_ns)
            _write_summary(book, summary, traces)
    except BaseException as error:
        output.has_failed = True
        if isinstance(error, xlsxwriter.exceptions.FileCreateError):
            cause = error.__context__
            raise cause if isinstance(cause, OSError) else OSError(str(error)) from error
        raise
    finally:
        output.close()
    return [path]


class _Output(io.FileIO):
    """A file that fails once: `zipfile` writes to it again when it is collected."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w")
        self.has_failed = False

    def write(self, data: Any) -> int:
        size = len(data)
        while data and not self.has_failed:
            try:
                data = data[super().write(data) or 0 :]
            except OSError:
                self.has_failed = True
                raise
        return size

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        return 0 if self.has_failed else super().seek(place, whence)

    def tell(self) -> int:
        return 0 if self.has_failed else super().tell()

    def flush(self) -> None:
        if not self.has_failed:
            super().flush()


def find_origin_ns(trace: Trace) -> int:
    """Find the first steady time in a trace; 0 if it has no jobs."""
    names = ["release_ns", "capture_ns"]
    times = [read_numbers(batch, n) for batch in trace.batches(names) for n in names]
    return min((int(part.min()) for part in times if len(part)), default=0)


class _Sheets:
    """Table that continues on a new sheet when one is full."""

    def __init__(self, book: Any, name: str, columns: Sequence[str]) -> None:
        self._book, self._name = book, name
        times = {place: name for place, name in enumerate(columns) if name.endswith("_ns")}
        self._stamps = [place for place, name in times.items() if name == "stamp_ns"]
        self._steady = [place for place in times if place not in self._stamps]
        self._header = list(columns)
        for place in self._steady:
            self._header[place] = columns[place].replace("_ns", "_s")
        self._count = 0
        self._bold = book.add_format({"bold": True, "bottom": 1})
        self._begin()

    def write(self, rows: Iterable[Row], origin_ns: int) -> None:
        """Write rows: steady times in seconds since the origin, stamps as texts."""
        for row in rows:
            if self._row >= SHEET_ROWS:
                self._begin()
            values = list(row)
            for place in self._stamps:
                values[place] = None if row[place] is None else str(row[place])
            for place in self._steady:
                values[place] = None if row[place] is None else (row[place] - origin_ns) / 1e9
            write_row(self._sheet, self._row, values)
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
    """Write values by their types: a text stays a text, whatever its content."""
    for column, value in enumerate(values):
        if isinstance(value, str):
            sheet.write_string(row, column, escape(value))
        elif isinstance(value, bool):
            sheet.write_boolean(row, column, value)
        elif value is not None:
            sheet.write_number(row, column, value)


def _write_summary(book: Any, sheet: Any, traces: Mapping[str, Trace]) -> None:
    bold = book.add_format({"bold": True, "bottom": 1})
    sheet.set_column(0, len(_SUMMARY) - 1, 16)
    sheet.write_row(0, 0, _SUMMARY, bold)
    rows = [
        _summarize(sample, times)
        for times in (EXECUTION, RESPONSE)
        for sample in read_samples(traces.values(), times=times)
    ]
    for number, row in enumerate(rows, start=1):
        write_row(sheet, number, row)
    sheet.write_row(len(rows) + 2, 0, ("trace", "what", "value"), bold)
    facts = [(label, *fact) for label, trace in traces.items() for fact in _list_facts(trace)]
    for number, fact in enumerate(facts, start=len(rows) + 3):
        write_row(sheet, number, fact)


def _summarize(sample: Sample, times: str) -> Row:
    named = dict(sample.key)
    counts = (named["task"], named["variant"], times, len(sample), len(sample.warm_up_ns))
    if not len(sample):
        return counts
    ordered = np.sort(sample.times_ns).tolist()
    over: float | None = None
    if times == RESPONSE and sample.deadline_ns:
        deadlines_ns = sample.deadlines_ns
        own = sample.deadline_ns if deadlines_ns is None else deadlines_ns
        over = float(np.mean(sample.times_ns > own))
    return (
        *counts,
        ordered[0] / 1e6,
        float(sample.times_ns.mean()) / 1e6,
        *(
            order_statistic(ordered, quantile) / 1e6
            if has_quantile(len(ordered), quantile) or quantile == 0.5
            else None
            for quantile in (0.5, 0.99, 0.999)
        ),
        ordered[-1] / 1e6,
        sample.deadline_ns / 1e6 if sample.deadline_ns else None,
        over,
    )


def _list_facts(trace: Trace) -> Iterator[tuple[str, str]]:
    metadata = trace.metadata
    yield "source", metadata.source
    for group in ("machine", "platform", "realtime", "parameters"):
        for name, value in getattr(metadata, group).items():
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            yield f"{group}: {name}", text[:32_000]
    for name, task in metadata.tasks.items():
        yield f"task {name}", f"{task.model} {task.model_hash}".strip()
