# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reading traces: of every version, whole or broken off; what is no trace is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from traced_jobs import METADATA, make_record, sequences, write_parquet_trace, write_part

from jetson_dnn_rt.traces import reader as trace_reader
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import (
    METADATA_KEY,
    TRACE_VERSION,
    TracedJob,
    TraceMetadata,
    make_batch,
    make_schema,
)
from jetson_dnn_rt.traces.writer import StreamPart

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RECORDS = [make_record(i) for i in range(20)]


def write_stream(path, batches=4):
    """A stream as it is while its process runs: batches of five jobs, no end."""
    schema = make_schema(METADATA)
    part = StreamPart(path, schema)
    for first in range(0, 5 * batches, 5):
        jobs = [TracedJob(record) for record in RECORDS[first : first + 5]]
        part.append(make_batch(jobs, schema).serialize())
    part.close()
    return path


def test_a_folder_the_folder_above_and_a_file_of_it(tmp_path):
    folder = write_parquet_trace(tmp_path / "out" / "trace", RECORDS)
    paths = [folder, tmp_path / "out", folder / "jobs-0000.parquet"]
    for trace in map(open_trace, paths):
        assert [job.record for job in trace.jobs()] == RECORDS
        assert trace.metadata == METADATA
        assert trace.table().num_rows == 20


def test_some_columns_only(tmp_path):
    trace = open_trace(write_parquet_trace(tmp_path, RECORDS))
    (batch,) = trace.batches(["stages", "task"])
    assert batch.schema.names == ["stages", "task"]
    stream = open_trace(write_stream(tmp_path / "jobs-0001.arrows"))
    assert {b.schema.names[0] for b in stream.batches(["sequence"])} == {"sequence"}


def test_large_parts_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_reader, "BATCH_ROWS", 6)
    trace = open_trace(write_parquet_trace(tmp_path, RECORDS))
    assert [batch.num_rows for batch in trace.batches()] == [6, 6, 6, 2]
    assert [job.record for job in trace.jobs()] == RECORDS


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_stream_that_breaks_off_is_read_to_its_last_whole_batch(tmp_path, cut, caplog):
    path = write_stream(tmp_path / "jobs-0000.arrows")
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert sequences(tmp_path) == list(range(15))
    assert "is truncated" in caplog.text


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_stream_without_an_end_or_with_zeros_of_a_power_cut_is_whole(tmp_path, zeros, caplog):
    path = write_stream(tmp_path / "jobs-0000.arrows")
    path.write_bytes(path.read_bytes() + bytes(zeros))
    assert sequences(tmp_path) == list(range(20))
    assert caplog.text == ""


def test_a_part_of_which_nothing_was_written_is_passed_over(tmp_path, caplog):
    (tmp_path / "jobs-0000.arrows").touch()
    write_stream(tmp_path / "jobs-0001.arrows")
    assert sequences(tmp_path) == list(range(20))
    assert "jobs-0000.arrows is no job trace" in caplog.text


def test_of_a_stream_and_its_parquet_the_latter_is_read(tmp_path):
    write_parquet_trace(tmp_path, RECORDS[:3])
    write_stream(tmp_path / "jobs-0000.arrows")
    (tmp_path / "jobs-0001.partial").write_bytes(b"half")
    assert sequences(tmp_path) == [0, 1, 2]


def test_runs_that_were_put_together_are_said_to_be(tmp_path, caplog):
    write_parquet_trace(tmp_path, RECORDS[:3])
    write_parquet_trace(tmp_path, RECORDS[3:5], TraceMetadata(source="evaluate"))
    assert sequences(tmp_path) == [0, 1, 2, 3, 4]
    assert "several runs" in caplog.text


def test_columns_of_other_releases_are_passed_over(tmp_path):
    """And types of other writers of Parquet are made those of this release."""
    schema = make_schema(METADATA)
    table = pa.Table.from_batches([make_batch(list(map(TracedJob, RECORDS)), schema)])
    table = table.append_column("weather", pa.array(["rain"] * 20))
    index = table.schema.get_field_index("sequence")
    table = table.set_column(index, "sequence", table["sequence"].cast(pa.int32()))
    parquet.write_table(table, tmp_path / "jobs-0000.parquet")
    assert [job.record for job in open_trace(tmp_path).jobs()] == RECORDS


@pytest.mark.parametrize("kind", ["parquet", "stream"])
def test_traces_of_earlier_releases_are_read(tmp_path, kind):
    schema = make_schema(METADATA)
    table = pa.Table.from_batches([make_batch(list(map(TracedJob, RECORDS)), schema)])
    table = table.drop_columns(["cancelled_ns"])
    stage = schema.field("stages").type.value_type
    earlier = pa.list_(pa.struct([inner for inner in stage if inner.name != "narrow"]))
    index = table.schema.get_field_index("stages")
    field = pa.field("stages", earlier, nullable=False)
    stages = [
        [{name: value for name, value in one.items() if name != "narrow"} for one in job]
        for job in table["stages"].to_pylist()
    ]
    table = table.set_column(index, field, pa.chunked_array([stages], earlier))
    if kind == "parquet":
        parquet.write_table(table, tmp_path / "jobs-0000.parquet")
    else:
        with pa.ipc.new_stream(tmp_path / "jobs-0000.arrows", table.schema) as stream:
            stream.write_table(table)
    trace = open_trace(tmp_path)
    assert [job.record for job in trace.jobs()] == RECORDS
    (batch,) = trace.batches(["task", "cancelled_ns"])
    assert batch.column("cancelled_ns").null_count == len(RECORDS)


def test_a_stage_that_ran_narrow_comes_back(tmp_path):
    first, second = RECORDS[0].stages
    record = replace(RECORDS[0], stages=(first, replace(second, narrow=True)))
    write_part(tmp_path / "jobs-0000.parquet", [RECORDS[1], record])
    wide, narrow = [job.record for job in open_trace(tmp_path).jobs()]
    assert (wide, narrow) == (RECORDS[1], record)
    assert (wide.narrow, narrow.narrow) == (False, True)


def test_the_time_of_a_cancelled_stage_comes_back(tmp_path):
    record = replace(RECORDS[0], cancelled_ns=12_345)
    write_part(tmp_path / "jobs-0000.parquet", [record])
    assert [job.record for job in open_trace(tmp_path).jobs()] == [record]


def write_with_metadata(path, text):
    schema = make_schema(METADATA).with_metadata({METADATA_KEY: text})
    parquet.write_table(schema.empty_table(), path)


def change_metadata(**change):
    return json.dumps(json.loads(METADATA.to_json()) | change).encode()


def test_a_later_version_is_refused(tmp_path):
    text = change_metadata(version=TRACE_VERSION + 1, tasks="other")
    write_with_metadata(tmp_path / "jobs-0000.parquet", text)
    with pytest.raises(ValueError, match=r"jobs-0000.parquet: trace version 3, .* update it"):
        open_trace(tmp_path)


def test_unknown_keys_of_this_version_are_passed_over(tmp_path):
    fields = json.loads(METADATA.to_json()) | {"mood": "fine"}
    fields["tasks"]["detector"]["colour"] = "red"
    write_with_metadata(tmp_path / "jobs-0000.parquet", json.dumps(fields).encode())
    assert open_trace(tmp_path).metadata == METADATA


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"{}", b'{"version": "new"}', b'{"version": 2, "tasks": {"a": 1}}'),
        pytest.param(b"[" * 200_000, id="nested without end"),
        change_metadata(version=float("inf")),
        change_metadata(machine=5),
        change_metadata(parameters=[]),
        change_metadata(source=None),
        change_metadata(lost="many"),
        change_metadata(tasks={"a": {"stages": 7}}),
        change_metadata(tasks={"a": {"variants": [1]}}),
        change_metadata(tasks={"a": {"deadline_ns": "soon"}}),
    ],
)
def test_damaged_metadata_is_named(tmp_path, text):
    write_with_metadata(tmp_path / "jobs-0000.parquet", text)
    with pytest.raises(ValueError, match="no metadata of a job trace"):
        open_trace(tmp_path)


def test_what_is_no_trace(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        open_trace(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is no job trace"):
        open_trace(tmp_path)
    (tmp_path / "jobs-0000.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(ValueError, match=r"jobs-0000\.parquet is no job trace"):
        open_trace(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    parquet.write_table(pa.table({"a": [1]}), other / "jobs-0000.parquet")
    with pytest.raises(ValueError, match="is no job trace"):
        open_trace(other)


def test_a_missing_column_is_named(tmp_path):
    schema = make_schema(METADATA)
    parquet.write_table(schema.empty_table().drop(["lag_ns"]), tmp_path / "jobs-0000.parquet")
    with pytest.raises(ValueError, match="it has no lag_ns"):
        open_trace(tmp_path)
