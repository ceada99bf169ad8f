# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Traces that are damaged, or made to do harm: an error of the reader, and bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from traced_jobs import METADATA, make_record, write_parquet_trace

from jetson_dnn_rt.traces import reader as trace_reader
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import TracedJob, make_batch, make_schema

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RECORDS = [make_record(i) for i in range(40)]


def write_stream(path, options=None):
    """A stream of two batches."""
    schema = make_schema(METADATA)
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_stream(path, schema, options=options) as stream:
        for first in (0, 20):
            jobs = [TracedJob(record) for record in RECORDS[first : first + 20]]
            stream.write_batch(make_batch(jobs, schema))
    return path


def spoil_offsets(batch):
    """A batch whose first text begins far behind its data."""
    column = batch.column("task")
    offsets = np.frombuffer(column.buffers()[1], np.int32).copy()
    offsets[1] = 2**30
    spoiled = pa.StringArray.from_buffers(
        len(column), pa.py_buffer(offsets.tobytes()), column.buffers()[2]
    )
    return replace_first(batch, spoiled)


def replace_first(batch, column):
    """`RecordBatch.set_column`, which came with pyarrow 15."""
    first = batch.schema.field(0).with_type(column.type)
    columns = [column, *batch.columns[1:]]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(0, first))


def test_offsets_that_lead_out_of_the_file(tmp_path, caplog):
    schema = make_schema(METADATA)
    good = make_batch([TracedJob(record) for record in RECORDS[:5]], schema)
    with pa.ipc.new_stream(tmp_path / "jobs-0000.arrows", schema) as stream:
        stream.write_batch(good)
        stream.write_batch(spoil_offsets(good))
    assert [job.record for job in open_trace(tmp_path).jobs()] == RECORDS[:5]
    assert "is truncated" in caplog.text


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_stream_is_refused(tmp_path, codec, caplog):
    """EDGES 20: a few bytes that are gigabytes when they are unpacked."""
    options = pa.ipc.IpcWriteOptions(compression=codec)
    write_stream(tmp_path / "jobs-0000.arrows", options)
    assert list(open_trace(tmp_path).jobs()) == []
    assert "its buffers are compressed" in caplog.text


def test_a_stream_of_dictionaries_is_refused(tmp_path):
    schema = make_schema(METADATA)
    batch = make_batch([TracedJob(record) for record in RECORDS], schema)
    task = batch.column("task").dictionary_encode()
    batch = replace_first(batch, task)
    with pa.ipc.new_stream(tmp_path / "jobs-0000.arrows", batch.schema) as stream:
        stream.write_batch(batch)
    with pytest.raises(ValueError, match=r"jobs-0000.arrows is damaged: task is dictionary"):
        list(open_trace(tmp_path).jobs())


def test_row_groups_have_a_size(tmp_path, monkeypatch):
    write_parquet_trace(tmp_path, RECORDS)
    monkeypatch.setattr(trace_reader, "ROW_GROUP_BYTES", 1000)
    with pytest.raises(ValueError, match="is damaged: row group 0 has more than 1,000 bytes"):
        list(open_trace(tmp_path).jobs())


def empty_a_cell(name):
    def change(table):
        index = table.schema.get_field_index(name)
        values = table[name].to_pylist()
        values[3] = None
        field = pa.field(name, table.schema.field(index).type)
        return table.set_column(index, field, pa.array(values, field.type))

    return change


@pytest.mark.parametrize("name", ["task", "outcome", "release_ns", "warm_up", "stages"])
def test_a_cell_that_is_empty_is_named(tmp_path, name):
    file = write_parquet_trace(tmp_path, RECORDS) / "jobs-0000.parquet"
    table = empty_a_cell(name)(parquet.ParquetFile(file).read())
    parquet.write_table(table, file)
    with pytest.raises(ValueError, match=f"{name} is empty in 1 rows"):
        list(open_trace(tmp_path).batches())


@pytest.mark.parametrize(
    "stages",
    [
        pa.array([[1, 2]] * len(RECORDS)),
        pa.array([["inference"]] * len(RECORDS)),
        pa.array([[None]] * len(RECORDS)),
        pa.array([[[1]]] * len(RECORDS)),
        pa.array([None] * len(RECORDS)),
        pa.array([["inference"]] * len(RECORDS), pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array(["inference"] * len(RECORDS)).dictionary_encode(),
    ],
    ids=lambda stages: str(stages.type).split(",")[0],
)
def test_stages_that_are_none_are_refused(tmp_path, stages):
    file = write_parquet_trace(tmp_path, RECORDS) / "jobs-0000.parquet"
    table = parquet.ParquetFile(file).read()
    table = table.set_column(table.schema.get_field_index("stages"), "stages", stages)
    parquet.write_table(table, file)
    with pytest.raises(ValueError, match="not a job trace"):
        list(open_trace(tmp_path).jobs())


def test_an_empty_batch_needs_no_offsets():
    """Arrow allows it; reading the offsets of such a batch ended the process."""
    schema = make_schema(METADATA)
    stage = schema.field("stages").type.value_type
    earlier = pa.struct([inner for inner in stage if inner.name != "narrow"])
    children = [pa.array([], earlier)]
    stages = pa.Array.from_buffers(pa.list_(earlier), 0, [None, None], children=children)
    columns = [stages if field.name == "stages" else pa.array([], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, names=schema.names)
    assert trace_reader._conform(batch, schema).num_rows == 0
