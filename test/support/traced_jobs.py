# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Job records and traces for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import (
    TracedJob,
    TracedTask,
    TraceMetadata,
    make_batch,
    make_schema,
)
from jetson_dnn_rt.traces.writer import TraceWriter

METADATA = TraceMetadata(
    machine={"cpu": "Some CPU", "versions": {"numpy": "1.21"}},
    platform={"clocks": "unknown clocks"},
    realtime={"mallopt": {"applied": True, "detail": ""}},
    tasks={
        "detector": TracedTask(
            "camera", "null:1", "ab" * 32, ("full@null",), ("a", "b"), 40_000_000, 33_000_000
        )
    },
    parameters={"detector": {"deadline_ms": 40.0}},
    source="run",
)


def make_record(
    sequence: int,
    *,
    task: str = "detector",
    variant: str = "full@null",
    stages_ns: tuple[int, ...] = (2_000_000, 3_000_000),
    outcome: Outcome = Outcome.MET,
    release_ns: int | None = None,
    deadline_ns: int = 40_000_000,
    variants: tuple[str, ...] | None = None,
) -> JobRecord:
    """A job of stages ``a``, ``b``, ... that run one after the other from its release on."""
    release_ns = sequence * 33_000_000 if release_ns is None else release_ns
    start_ns = release_ns + 100_000
    stages, at_ns = [], start_ns
    for index, time_ns in enumerate(stages_ns):
        name = "abcdefgh"[index]
        used = variants[index] if variants else variant
        stages.append(StageRecord(name, used, at_ns, at_ns + time_ns))
        at_ns += time_ns
    return JobRecord(
        task=task,
        sequence=sequence,
        variant=variant,
        outcome=outcome,
        reason="" if outcome in (Outcome.MET, Outcome.LATE) else "why",
        capture_ns=release_ns - 5,
        release_ns=release_ns,
        start_ns=start_ns if stages else None,
        completion_ns=at_ns + 10_000,
        absolute_deadline_ns=release_ns + deadline_ns,
        waiting_ns=7,
        lag_ns=-3,
        admission=Admission.BUDGET if stages else Admission.NONE,
        stages=tuple(stages),
        copied_bytes=1_168_128,
    )


def write_parquet_trace(
    folder: Path, records: Iterable[JobRecord], metadata: TraceMetadata = METADATA
) -> Path:
    """A trace as `TraceWriter` leaves it."""
    with TraceWriter(folder, metadata) as writer:
        for record in records:
            writer.write(record, wait=True)
    return folder


def sequences(path: Path) -> list[int]:
    """Numbers of the jobs that can be read."""
    return [job.record.sequence for job in open_trace(path).jobs()]


def write_part(path: Path, records: Iterable[JobRecord]) -> Path:
    """One file of a trace, nothing of it marked as warm-up."""
    schema = make_schema(TraceMetadata())
    batch = make_batch([TracedJob(record) for record in records], schema)
    parquet.write_table(pa.Table.from_batches([batch]), path)
    return path
