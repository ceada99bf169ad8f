"""Traces as flat rows: one for each job, one for each stage that ran.

Columns end in ``_ns`` where they hold a steady time as it was traced, and in ``_ms`` where they
hold what follows from such times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.traces.reader import Trace

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]
Integers = npt.NDArray[np.int64]

_AS_TRACED = (
    *("task", "camera", "sequence", "variant", "outcome", "reason", "admission", "warm_up"),
    *("stamp_ns", "capture_ns", "release_ns", "start_ns", "completion_ns"),
    "absolute_deadline_ns",
)
_DERIVED = ("response_ms", "execution_ms", "waiting_ms", "deadline_ms", "lateness_ms", "lag_ms")
JOB_COLUMNS = ("trace", *_AS_TRACED, *_DERIVED)
STAGE_COLUMNS = (
    *("trace", "task", "sequence", "position", "stage", "variant", "clocks", "warm_up"),
    *("start_ns", "end_ns", "execution_ms"),
)


def iterate_rows(trace: Trace, label: str) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows of `JOB_COLUMNS` and of `STAGE_COLUMNS`, batch by batch.

    Parameters
    ----------
    trace : Trace
        What is exported.
    label : str
        Into the column ``trace``.
    """
    for batch in trace.batches():
        yield _job_rows(batch, label), _stage_rows(batch, label)


def _job_rows(batch: pa.RecordBatch, label: str) -> list[Row]:
    starts_ns, ends_ns, offsets, _ = _stages(batch)
    sums_ns = np.concatenate([[0], np.cumsum(ends_ns - starts_ns)])
    release_ns, completion_ns = _numbers(batch, "release_ns"), _numbers(batch, "completion_ns")
    deadline_ns = _numbers(batch, "absolute_deadline_ns")
    derived_ns = (
        completion_ns - release_ns,
        sums_ns[offsets[1:]] - sums_ns[offsets[:-1]],
        _numbers(batch, "waiting_ns"),
        deadline_ns - release_ns,
        completion_ns - deadline_ns,
        _numbers(batch, "lag_ns"),
    )
    columns = [[label] * batch.num_rows]
    columns += [batch.column(name).to_pylist() for name in _AS_TRACED]
    columns += [(times_ns / 1e6).tolist() for times_ns in derived_ns]
    return list(zip(*columns, strict=True))


def _stage_rows(batch: pa.RecordBatch, label: str) -> list[Row]:
    starts_ns, ends_ns, offsets, texts = _stages(batch)
    counts = np.diff(offsets)
    jobs = np.repeat(np.arange(batch.num_rows), counts)
    positions = np.arange(len(starts_ns)) - np.repeat(offsets[:-1], counts)
    columns = [
        [label] * len(starts_ns),
        *(batch.column(name).take(jobs).to_pylist() for name in ("task", "sequence")),
        positions.tolist(),
        *(texts[name].to_pylist() for name in ("name", "variant", "clocks")),
        batch.column("warm_up").take(jobs).to_pylist(),
        starts_ns.tolist(),
        ends_ns.tolist(),
        ((ends_ns - starts_ns) / 1e6).tolist(),
    ]
    return list(zip(*columns, strict=True))


def _stages(batch: pa.RecordBatch) -> tuple[Integers, Integers, Integers, dict[str, Any]]:
    """Starts and ends of all stages, where those of each job begin [jobs + 1], and their texts."""
    column = batch.column("stages")
    offsets = np.asarray(column.offsets.to_numpy(), np.int64)
    values = column.flatten()
    arrays = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    starts_ns, ends_ns = (
        np.asarray(arrays[name].to_numpy(), np.int64) for name in ("start_ns", "end_ns")
    )
    return starts_ns, ends_ns, offsets - offsets[0], arrays


def _numbers(batch: pa.RecordBatch, name: str) -> Integers:
    return np.asarray(batch.column(name).to_numpy(), np.int64)
