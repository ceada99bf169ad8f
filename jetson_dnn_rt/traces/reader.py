# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reader of job traces: folders of parts, Parquet files, Arrow streams.

A trace may be damaged or hostile. Arrow uses offsets as they are in the file, so every batch is
validated before it is used. Content that needs far more memory than its file is refused, since no
trace writer produces it: compressed streams, stream columns of other types (dictionaries), row
groups of more than a gibibyte.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import JobTraceError
from jetson_dnn_rt.safety.utf8_paths import utf8_name
from jetson_dnn_rt.traces.schema import (
    ADDED,
    ADDED_TO_STAGES,
    METADATA_KEY,
    TracedJob,
    TraceMetadata,
    from_row,
    make_schema,
    require_pyarrow,
)

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

STAGES = "stages"
PARQUET, STREAM = ".parquet", ".arrows"
BATCH_ROWS = 4096
"""Jobs read at once, where the file allows a choice."""

ROW_GROUP_BYTES = 2**30
"""Bytes of a Parquet row group by its metadata: forty times what the writer makes."""


@dataclass(frozen=True)
class Trace:
    """A trace on disk, read batch by batch: memory does not grow with it."""

    path: Path
    """Path as given by the caller."""
    metadata: TraceMetadata
    """Metadata of its first part."""
    parts: tuple[Path, ...]
    """Its files, in writing order."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of `make_schema`, or of some of its columns, part by part.

        A truncated stream ends with its last complete batch, which is logged. JobTraceError,
        naming the part, when it is damaged anywhere but at its end.
        """
        schema = make_schema(self.metadata)
        if columns is not None:
            fields = [schema.field(name) for name in columns]
            schema = require_pyarrow().schema(fields, metadata=schema.metadata)
        for part in self.parts:
            for batch in _read_part(part, columns):
                yield _conform(batch, schema)

    def jobs(self) -> Iterator[TracedJob]:
        """The jobs, row by row, for callers that need all their columns."""
        for batch in self.batches():
            yield from map(from_row, batch.to_pylist())

    def table(self) -> pa.Table:
        """Read the whole trace into memory."""
        return require_pyarrow().Table.from_batches(
            list(self.batches()), schema=make_schema(self.metadata)
        )


def open_trace(path: Path) -> Trace:
    """Open a trace: a folder of parts, the output folder of a command, or one file.

    JobTraceError when there is no trace, or one of a later version; the text names it.
    """
    if not path.exists():
        raise JobTraceError(
            f"{path}: No such file or folder; give what --output of run, evaluate or profile, or "
            "trace_dir of the nodes, wrote"
        )
    found = _find_parts(path)
    if not found:
        raise JobTraceError(
            f"{path} is no job trace: a folder with jobs-*.parquet, or a file of it"
        )
    parts: list[Path] = []
    metadata: list[TraceMetadata] = []
    failure: JobTraceError | None = None
    for part in found:
        try:
            metadata.append(_read_metadata(part))
            parts.append(part)
        except UnreadablePartError as error:
            # The disk was full at its first byte: the others are intact.
            failure = error
            logger.warning("%s", error)
    if not parts:
        assert failure is not None
        raise failure
    if any(_settled(other) != _settled(metadata[0]) for other in metadata):
        logger.warning("%s holds several runs; machine and tasks are those of the first", path)
    lost, removed = (max(getattr(one, name) for one in metadata) for name in ("lost", "removed"))
    described = replace(metadata[0], lost=lost, removed=removed)
    if described.missing:
        logger.warning("%s: %s", path, described.missing)
    return Trace(path, described, tuple(parts))


def _settled(metadata: TraceMetadata) -> TraceMetadata:
    """Metadata without the fields that differ between two runs of the same set-up."""
    passing = ("date", "load_average_1min", "command")
    machine = {name: value for name, value in metadata.machine.items() if name not in passing}
    return replace(metadata, machine=machine, lost=0, removed=0)


class UnreadablePartError(JobTraceError):
    """A file is not part of a trace, or empty."""


def _find_parts(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix in (PARQUET, STREAM) else []
    for folder in (path, path / "trace"):
        # A stream beside its Parquet file was being converted to it: the file is complete.
        whole = {file.stem: file for file in folder.glob(f"jobs-*{PARQUET}")}
        open_ = {file.stem: file for file in folder.glob(f"jobs-*{STREAM}")}
        found = open_ | whole
        if found:
            return [found[stem] for stem in sorted(found, key=lambda stem: (len(stem), stem))]
    return []


def _read_metadata(part: Path) -> TraceMetadata:
    """Metadata of a part; an ordinary JobTraceError when its version is too new."""
    pa = require_pyarrow()
    try:
        if part.suffix == PARQUET:
            from pyarrow import parquet

            with utf8_name(part) as name:
                schema = parquet.read_schema(name)
        else:
            with utf8_name(part) as name, pa.OSFile(name) as source:
                schema = pa.ipc.open_stream(source).schema
        text = (schema.metadata or {})[METADATA_KEY]
        names = schema.names
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise UnreadablePartError(f"{part} is no job trace: {error}") from error
    try:
        metadata = TraceMetadata.from_json(text)
    except ValueError as error:
        raise JobTraceError(f"{part}: {error}") from error
    missing = set(make_schema(metadata).names) - set(names) - set(ADDED)
    if missing:
        raise JobTraceError(f"{part} is no job trace: it has no {', '.join(sorted(missing))}")
    return metadata


def _read_part(part: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    pa = require_pyarrow()
    if part.suffix == PARQUET:
        from pyarrow import parquet

        try:
            with utf8_name(part) as name, parquet.ParquetFile(name) as file:
                _check_sizes(file.metadata)
                # Names missing from the file are ignored.
                for batch in file.iter_batches(
                    BATCH_ROWS, columns=None if columns is None else list(columns)
                ):
                    batch.validate(full=True)
                    yield batch
        except (pa.ArrowException, OSError, ValueError) as error:
            raise JobTraceError(f"{part} is damaged: {error}") from error
    else:
        for batch in _read_stream(part):
            known = batch.schema.names
            yield batch if columns is None else batch.select([c for c in columns if c in known])


def _read_stream(part: Path) -> Iterator[pa.RecordBatch]:
    pa = require_pyarrow()
    with utf8_name(part) as name, pa.OSFile(name) as source:
        messages = pa.ipc.MessageReader.open_stream(source)
        try:
            schema = pa.ipc.read_schema(messages.read_next_message())
            _check_types(schema)
        except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
            raise JobTraceError(f"{part} is damaged: {error}") from error
        while True:
            try:
                message = messages.read_next_message()
                _check_plain(message)
                batch = pa.ipc.read_record_batch(message, schema)
                batch.validate(full=True)
            except StopIteration:
                return
            except (pa.ArrowException, OSError, ValueError, struct.error) as error:
                logger.warning("%s is truncated (%s): read up to there", part, error)
                return
            yield batch


def _check_types(schema: pa.Schema) -> None:
    """Refuse stream columns of other types than the writer's."""
    for field in make_schema(TraceMetadata()):
        types = [field.type]
        if field.name == STAGES:
            types.append(_make_earlier(field.type))
        for index in schema.get_all_field_indices(field.name):
            if schema.field(index).type not in types:
                raise JobTraceError(
                    f"{field.name} is {schema.field(index).type}, not {field.type}"
                )


def _check_plain(message: Any) -> None:
    """Refuse a batch with compressed buffers: the file could claim any size for them.

    A message is a flatbuffer, which Arrow has verified: `Message.header` is the third field of
    the table, `RecordBatch.compression` the fourth of that one.
    """
    if message.type != "record batch":
        raise JobTraceError(f"a {message.type} is no part of a trace")
    data = message.metadata.to_pybytes()
    table = _follow(data, struct.unpack_from("<I", data)[0], 2)
    if table is None or _follow(data, table, 3) is not None:
        raise JobTraceError("its buffers are compressed")


def _follow(data: bytes, table: int, field: int) -> int | None:
    """Position of a table in a field of a table; None where the field is not set."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * field
    if place >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", data, vtable + place)[0]
    if not offset:
        return None
    start: int = table + offset
    return start + int(struct.unpack_from("<I", data, start)[0])


def _check_sizes(metadata: Any) -> None:
    """Refuse row groups that no trace writer produces."""
    # Sizes of columns would end the process where their statistics are damaged: pyarrow's accessor
    # lets an exception of C++ through. While it reads, it turns the same into an ArrowInvalid.
    for number in range(metadata.num_row_groups):
        if not 0 <= metadata.row_group(number).total_byte_size <= ROW_GROUP_BYTES:
            raise JobTraceError(f"row group {number} has more than {ROW_GROUP_BYTES:,} bytes")


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of this release, in its order and types; unknown ones are ignored."""
    pa = require_pyarrow()
    try:
        arrays = [
            pa.nulls(batch.num_rows, field.type)
            if field.name in ADDED and field.name not in batch.schema.names
            else _complete(batch.column(field.name), field).cast(field.type)
            for field in schema
        ]
        for field, array in zip(schema, arrays, strict=True):
            _check_whole(field, array)
    except (pa.ArrowException, KeyError) as error:
        raise JobTraceError(f"not a job trace: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _make_earlier(stages: Any) -> Any:
    """Type of the stages in traces of earlier releases."""
    inner = [field for field in stages.value_type if field.name not in ADDED_TO_STAGES]
    pa = require_pyarrow()
    return pa.list_(stages.value_field.with_type(pa.struct(inner)))


def _complete(array: Any, field: Any) -> Any:
    """Add columns to the stages that a trace of an earlier release lacks."""
    pa = require_pyarrow()
    if field.name != STAGES or not pa.types.is_list(array.type):
        return array
    if not pa.types.is_struct(array.type.value_type):
        return array  # no stages, as the cast will say
    if not len(array):
        return pa.array([], field.type)  # the offsets may be missing
    stages = array.flatten()
    given = [inner.name for inner in stages.type]
    if not set(ADDED_TO_STAGES) - set(given):
        return array
    if array.null_count or stages.null_count:
        raise JobTraceError("not a job trace: a stage is empty")
    columns = dict(zip(given, stages.flatten(), strict=True))
    inners = list(field.type.value_type)
    for inner in inners:
        if inner.name in ADDED_TO_STAGES:
            columns.setdefault(inner.name, pa.nulls(len(stages), inner.type))
    whole = pa.StructArray.from_arrays(
        [columns[inner.name] for inner in inners],
        fields=[inner.with_type(columns[inner.name].type) for inner in inners],
    )
    offsets = array.offsets.to_numpy()
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), whole)


def _check_whole(field: Any, array: Any) -> None:
    """Refuse nulls where there can be none, including in stages."""
    if not field.nullable and array.null_count:
        raise JobTraceError(f"not a job trace: {field.name} is empty in {array.null_count} rows")
    if field.name == STAGES:
        stages = array.flatten()
        if stages.null_count:
            raise JobTraceError("not a job trace: a stage is empty")
        for inner, values in zip(stages.type, stages.flatten(), strict=True):
            _check_whole(inner, values)
