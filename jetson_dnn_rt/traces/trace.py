"""Traces of version 1, a job record in JSON on every line: read, but not written any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path

from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord

LINE_BYTES = 2**20
"""Of a line at most; a job has some hundreds."""

_INTEGERS = {
    kind: [f.name for f in fields(kind) if "int" in str(f.type)]
    for kind in (JobRecord, StageRecord)
}
_TEXTS = {
    kind: [f.name for f in fields(kind) if f.type == "str"] for kind in (JobRecord, StageRecord)
}


def parse_job(line: str | bytes) -> JobRecord:
    """A job of a line that has every field of the record; times in nanoseconds.

    Raises
    ------
    ValueError
        When the line is not a job record.
    """
    try:
        values = json.loads(line)
        values["outcome"] = Outcome(values["outcome"])
        values["admission"] = Admission(values["admission"])
        values["stages"] = tuple(StageRecord(**stage) for stage in values["stages"])
        record = JobRecord(**values)
        _check_values(record)
        for stage in record.stages:
            _check_values(stage)
        return record
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a job record ({error}): {line[:120]!r}") from error


def _check_values(record: JobRecord | StageRecord) -> None:
    """Refuse values that no column of a trace holds."""
    for name in _TEXTS[type(record)]:
        if not isinstance(getattr(record, name), str):
            raise ValueError(f"{name} is no text")
    for name in _INTEGERS[type(record)]:
        value = getattr(record, name)
        if value is None and name == "start_ns" and isinstance(record, JobRecord):
            continue
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} is no whole number of 64 bits")


def read_trace(path: Path) -> Iterator[JobRecord]:
    """Job records of a trace file, in their order.

    Raises
    ------
    ValueError
        With the number of the line that is not a job record.
    """
    with path.open("rb") as file:
        lines = iter(partial(file.readline, LINE_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > LINE_BYTES:
                raise ValueError(f"{path}, line {number} has more than {LINE_BYTES:,} bytes")
            try:
                yield parse_job(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
