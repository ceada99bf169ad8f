"""Traces of version 1: every field survives, damage is named."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from traced_jobs import format_job, write_lines

from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.trace import parse_job, read_trace


def make_record(sequence: int = 3) -> JobRecord:
    return JobRecord(
        task="detector",
        sequence=sequence,
        variant="full@onnxruntime-fp32",
        outcome=Outcome.ABORTED,
        reason="budget",
        capture_ns=2**53 + 1,
        release_ns=2**53 + 5,
        start_ns=2**53 + 6,
        completion_ns=2**53 + 100,
        absolute_deadline_ns=2**53 + 90,
        waiting_ns=1,
        lag_ns=-10,
        admission=Admission.PROBE,
        stages=(StageRecord("preprocess", "full@onnxruntime-fp32", 1, 2),),
    )


def test_line_holds_every_field_exactly() -> None:
    record = make_record()
    line = format_job(record)
    assert "\n" not in line
    assert set(json.loads(line)) == {field.name for field in fields(JobRecord)}
    assert parse_job(line) == record


def test_file_is_read_in_order(tmp_path: Path) -> None:
    records = [make_record(i) for i in range(3)]
    write_lines(tmp_path / "jobs.jsonl", records)
    assert list(read_trace(tmp_path / "jobs.jsonl")) == records


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "null", '{"task": "a"}'])
def test_damaged_line_is_named(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text(f"{format_job(make_record())}\n{damage}\n")
    with pytest.raises(ValueError, match="line 2: not a job record"):
        list(read_trace(file))
