# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Job traces: Parquet files, and the Arrow streams of runs that were not closed."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from traced_jobs import METADATA, make_record, write_parquet_trace

from fuzzing.formats import Files, Format
from fuzzing.mutations import INTEGERS, TEXTS, spoil_bytes, spoil_tree
from jetson_dnn_rt.lab.report.export.tables import write_csv
from jetson_dnn_rt.lab.wcet.samples import read_samples
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import METADATA_KEY, TracedJob, make_batch, make_schema

_RECORDS = [make_record(number) for number in range(40)]


class Trace(Format):
    """What both formats share: all that is done with a trace."""

    packages = ("pyarrow",)

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        ((name, data),) = files.items()
        ((_, piece),) = other.items()
        if rng.random() < 0.5:
            return {name: spoil_bytes(data, rng, piece)}
        try:
            table = self.load(data)
            table.validate(full=True)  # Arrow uses offsets as they are
            return {name: self.write(_spoil_table(table, rng), rng)}
        except Exception:  # Arrow's, of what was spoilt before or cannot be written
            return {name: spoil_bytes(data, rng, piece)}

    def load(self, data: bytes) -> pa.Table:
        """The table of a file."""
        raise NotImplementedError

    def write(self, table: pa.Table, rng: random.Random) -> bytes:
        """A file of a table."""
        raise NotImplementedError

    def read(self, folder: Path, work: Path) -> int:
        (path,) = folder.iterdir()
        count = sum(1 for _ in open_trace(path).jobs())
        read_samples([open_trace(path)], by=("task", "variant", "stage", "clocks"))
        write_csv({"t": open_trace(path)}, work / "out.csv")
        return count


class Parquet(Trace):
    """A trace that was closed."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        path = write_parquet_trace(folder / "trace", _RECORDS) / "jobs-0000.parquet"
        return {"closed": {path.name: path.read_bytes()}}

    def load(self, data: bytes) -> pa.Table:
        return parquet.read_table(io.BytesIO(data))

    def write(self, table: pa.Table, rng: random.Random) -> bytes:
        stream = io.BytesIO()
        options = {"compression": rng.choice(("zstd", "snappy", "gzip", "none"))}
        parquet.write_table(table, stream, row_group_size=rng.choice((3, 1000)), **options)
        return stream.getvalue()


class Stream(Trace):
    """A trace that was not closed."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        schema = make_schema(METADATA)
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, schema) as writer:
            for first in (0, 20):
                jobs = [TracedJob(record) for record in _RECORDS[first : first + 20]]
                writer.write_batch(make_batch(jobs, schema))
        return {"open": {"jobs-0000.arrows": stream.getvalue()}}

    def load(self, data: bytes) -> pa.Table:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_all()

    def write(self, table: pa.Table, rng: random.Random) -> bytes:
        stream = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, None, "lz4", "zstd")))
        with pa.ipc.new_stream(stream, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=rng.choice((3, 1000)))
        return stream.getvalue()


def _spoil_table(table: pa.Table, rng: random.Random) -> pa.Table:
    """Change metadata, a column's values, its type or its name, or the rows."""
    how, place = rng.randrange(7), rng.randrange(table.num_columns)
    field = table.schema.field(place)
    if how == 0:
        metadata = json.loads(table.schema.metadata[METADATA_KEY])
        text = json.dumps(spoil_tree(metadata, rng)).encode()
        return table.replace_schema_metadata({METADATA_KEY: text})
    if how == 1:
        return table.remove_column(place)
    if how == 2:
        return table.append_column(rng.choice(table.column_names), table.column(place))
    if how == 3:
        values = table.column(place).to_pylist()
        row = rng.randrange(len(values))
        values[row] = _make_cell(values[row], field.type, rng)
        return table.set_column(place, field.name, pa.array(values, field.type))
    if how == 4:
        kinds = (pa.int32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.null())
        return table.set_column(place, field.name, table.column(place).cast(rng.choice(kinds)))
    if how == 5 and pa.types.is_string(field.type):
        return table.set_column(place, field.name, table.column(place).dictionary_encode())
    return table.slice(rng.randrange(table.num_rows), rng.choice((0, 1, 7)))


def _make_cell(old: Any, kind: Any, rng: random.Random) -> Any:
    if pa.types.is_list(kind):
        stages: list[Any] = [dict(one) for one in old or []]
        if stages and rng.random() < 0.7:
            stage = rng.choice(stages)
            name = rng.choice(sorted(stage))
            stage[name] = _make_cell(stage[name], kind.value_type.field(name).type, rng)
            return stages
        return rng.choice((None, [], [None], stages * 100))
    if pa.types.is_integer(kind):
        return rng.choice((None, rng.choice(INTEGERS)))
    if pa.types.is_boolean(kind):
        return rng.choice((None, True))
    return rng.choice((None, rng.choice([text for text in TEXTS if "\ud800" not in text])))
