"""Traces of chunks: every row in its order, whatever the size of the parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from traced_jobs import METADATA, make_record

from jetson_dnn_rt.lab.evaluate.sequential import _pack
from jetson_dnn_rt.lab.evaluate.trace_parts import TraceParts
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import TracedJob

EVALUATED = replace(METADATA, source="evaluate")


def make_rows(first: int, count: int = 10) -> bytes:
    return _pack(
        [TracedJob(make_record(n), "drive", n, n < 3) for n in range(first, first + count)]
    )


def test_parts_are_one_trace(tmp_path: Path) -> None:
    with TraceParts(tmp_path, EVALUATED, part_bytes=6000) as parts:
        for first in range(0, 50, 10):
            parts.write(make_rows(first))
        assert parts.written == 50
    files = sorted(file.name for file in tmp_path.iterdir())
    assert len(files) > 1
    assert all(name.endswith(".parquet") for name in files)
    trace = open_trace(tmp_path)
    assert trace.metadata == EVALUATED
    jobs = list(trace.jobs())
    assert [job.record for job in jobs] == [make_record(n) for n in range(50)]
    assert {job.camera for job in jobs} == {"drive"}
    assert sum(job.warm_up for job in jobs) == 3


def test_what_was_written_can_be_read_before_the_end(tmp_path: Path) -> None:
    parts = TraceParts(tmp_path, EVALUATED)
    parts.write(make_rows(0))
    assert len(list(open_trace(tmp_path).jobs())) == 10
    parts.close()
    parts.close()
    assert len(list(open_trace(tmp_path).jobs())) == 10


def test_an_earlier_evaluation_goes(tmp_path: Path) -> None:
    for first in (0, 100):
        with TraceParts(tmp_path, EVALUATED) as parts:
            parts.write(make_rows(first))
    assert next(job.record.sequence for job in open_trace(tmp_path).jobs()) == 100


def test_a_chunk_without_jobs(tmp_path: Path) -> None:
    with TraceParts(tmp_path, EVALUATED) as parts:
        parts.write(make_rows(0, 0))
    assert pa.Table.equals(open_trace(tmp_path).table(), open_trace(tmp_path).table())
    assert list(open_trace(tmp_path).jobs()) == []
