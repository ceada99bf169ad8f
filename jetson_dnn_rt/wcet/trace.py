"""Traces of version 1, a job record in JSON on every line: read, but not written any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord


def parse_job(line: str) -> JobRecord:
    """A job of a line that has every field of the record; times in nanoseconds.

    Raises
    ------
    ValueError
        When the line is not a job record.
    """
    try:
        fields = json.loads(line)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["admission"] = Admission(fields["admission"])
        fields["stages"] = tuple(StageRecord(**stage) for stage in fields["stages"])
        return JobRecord(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a job record ({error}): {line[:120]!r}") from error


def read_trace(path: Path) -> Iterator[JobRecord]:
    """Job records of a trace file, in their order.

    Raises
    ------
    ValueError
        With the number of the line that is not a job record.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield parse_job(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
