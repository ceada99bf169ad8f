# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Schema of a job trace: one row per job, and metadata of machine and run.

The schema is versioned. Files are Arrow streams while they are written and Parquet when closed.
Derived times (response, lateness, execution) are not stored: each has one source.

Batches are made column by column, without a Python loop over jobs or stages, because other threads
wait for the interpreter meanwhile: 5 us for a job of four stages; row by row it was 11.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ConfigurationError, JobTraceError
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord

if TYPE_CHECKING:
    import pyarrow as pa

TRACE_VERSION = 2
METADATA_KEY = b"jetson_dnn_rt"
SHARING = "shared cores"
"""Parameter: how the tasks of the process share its cores; no name of a node or task, which are
its neighbours."""
NARROW_SLOWDOWNS = "narrow_slowdowns"
"""Value of `SHARING`: by task how many times as long its network took narrow before the run, see
`jetson_dnn_rt.runtime.sharing.core_split`."""
WARM_UP = "warm_up_ns"
"""Parameter: by task and variant, run by run, the times of the stages that its first budgets came
from."""
WARM_UP_JOBS = 10
"""First jobs of a task in each variant, marked while caches, allocators and clocks settle."""

_STAGE = ("name", "variant", "start_ns", "end_ns", "narrow")
_COLUMNS = (
    *("task", "camera", "variant", "outcome", "reason", "admission", "sequence", "stamp_ns"),
    *("warm_up", "start_ns", "capture_ns", "release_ns", "completion_ns"),
    *("absolute_deadline_ns", "waiting_ns", "lag_ns", "copied_bytes", "batch"),
    "cancelled_ns",
)
_RECORD = tuple(name for name in _COLUMNS if name not in ("camera", "stamp_ns", "warm_up"))
_TEXTS = ("task", "camera", "variant", "outcome", "reason", "admission", "name", "clocks")
_FLAGS = ("warm_up", "narrow")
ADDED, ADDED_TO_STAGES = ("cancelled_ns",), ("narrow",)
"""Columns, of jobs and of their stages, that traces of earlier releases lack; read as empty."""
_OPTIONAL = ("stamp_ns", "start_ns", "copied_bytes", "batch", *ADDED, *ADDED_TO_STAGES)
_of_record, _of_stage = attrgetter(*_RECORD), attrgetter(*_STAGE)


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A row of a trace."""

    record: JobRecord
    camera: str = ""
    """Source of the frame: a camera's name, a topic, a bag."""
    stamp_ns: int | None = None
    """Time stamp of the frame, in the source's clock (the message header's stamp)."""
    warm_up: bool = False
    clocks: tuple[str, ...] = ()
    """Clock configuration at the start of each stage; empty where nothing reads the clocks."""


@dataclass(frozen=True)
class TracedTask:
    """Metadata of a task, with its deadline and period at the start."""

    camera: str = ""
    model: str = ""
    model_hash: str = ""
    variants: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    deadline_ns: int = 0
    period_ns: int = 0


@dataclass(frozen=True)
class TraceMetadata:
    """Metadata of a trace: machine, platform, settings and tasks."""

    machine: Mapping[str, Any] = field(default_factory=dict)
    """CPU, GPU, system, versions (`platforms.machine.describe_machine`)."""
    platform: Mapping[str, Any] = field(default_factory=dict)
    """Title, clocks and power mode as read back, whether clocks can be set."""
    realtime: Mapping[str, Any] = field(default_factory=dict)
    """Real-time settings by name: applied or not, and why."""
    tasks: Mapping[str, TracedTask] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Configuration of the run, by node or command."""
    source: str = ""
    """``run``, ``evaluate``, ``profile``, ``nodes`` or ``simulate``."""
    lost: int = 0
    """Jobs missing from the trace, up to the beginning of a part, or up to its end where that is
    known (Parquet); for a trace the maximum over its parts."""
    removed: int = 0
    """Of these, those in parts that were removed at the size limit."""

    @property
    def missing(self) -> str:
        """Description of jobs missing from the trace; empty when none is."""
        if not self.lost:
            return ""
        of_them = f", {self.removed} of them the oldest, removed at the limit"
        return f"{self.lost} jobs are not in the trace{of_them if self.removed else ''}"

    def to_json(self) -> bytes:
        """JSON for the metadata of the file's schema."""
        return json.dumps({"version": TRACE_VERSION, **asdict(self)}, default=str).encode()

    @classmethod
    def from_json(cls, text: bytes) -> TraceMetadata:
        """Read the output of `to_json`; unknown keys are ignored.

        JobTraceError when it is not metadata of a trace, or of a later version.
        """
        try:
            fields = json.loads(text)
            version = int(fields["version"])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise JobTraceError(f"no metadata of a job trace: {error!r}") from error
        if version > TRACE_VERSION:
            raise JobTraceError(
                f"trace version {version}, this release reads up to {TRACE_VERSION}: update it"
            )
        try:
            known = {name: value for name, value in fields.items() if name in _FIELDS}
            known["tasks"] = {
                name: {k: v for k, v in values.items() if k in _TASK_FIELDS}
                for name, values in fields["tasks"].items()
            }
            return read_record(cls, known)
        except (KeyError, AttributeError, ValueError) as error:
            raise JobTraceError(f"no metadata of a job trace: {error!r}") from error


_FIELDS = frozenset(TraceMetadata.__dataclass_fields__)
_TASK_FIELDS = frozenset(TracedTask.__dataclass_fields__)


def require_pyarrow() -> Any:
    """Import pyarrow; ConfigurationError with the install command when it is missing."""
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigurationError(
            "traces need pyarrow, which is not installed: pip install 'jetson_dnn_rt[traces]'"
        ) from error
    return pyarrow


def describe_kind(batch: int, *, narrow: bool) -> str:
    """Words after the name of a variant for jobs that statistics keep apart, ``" (narrow)"``.

    The time of a batch is that of several frames, narrow networks take longer. Empty for others.
    """
    if batch > 1:
        return f" (batch of {batch})"
    return " (narrow)" if narrow else ""


def make_schema(metadata: TraceMetadata) -> pa.Schema:
    """The columns; times are int64 nanoseconds on the machine's steady clock."""
    pa = require_pyarrow()
    kinds = {"text": pa.string(), "int": pa.int64(), "bool": pa.bool_()}

    def column(name: str, optional: Sequence[str] = ()) -> Any:
        kind = "text" if name in _TEXTS else "bool" if name in _FLAGS else "int"
        return pa.field(name, kinds[kind], nullable=name in optional)

    stage = pa.struct([column(name, _OPTIONAL) for name in (*_STAGE, "clocks")])
    fields = [column(name, _OPTIONAL) for name in _COLUMNS]
    fields.append(pa.field("stages", pa.list_(stage), nullable=False))
    return pa.schema(fields, metadata={METADATA_KEY: metadata.to_json()})


def from_row(row: Mapping[str, Any]) -> TracedJob:
    """A job from a row of a batch; JobTraceError when it is not a row of a trace."""
    try:
        batch = row["batch"] or 1
        stages = tuple(
            StageRecord(
                **{name: stage[name] for name in _STAGE if name != "narrow"},
                narrow=bool(stage["narrow"]),
                # The stages that ran in the batch are not stored: the network is what is batched.
                batch=batch if stage["name"].startswith("inference") else 1,
            )
            for stage in row["stages"]
        )
        values = {name: row[name] for name in _RECORD if name != "batch"}
        values["outcome"] = Outcome(row["outcome"])
        values["admission"] = Admission(row["admission"])
        values |= {name: row[name] or 0 for name in ("copied_bytes", "cancelled_ns")}
        record = JobRecord(**values, stages=stages)
        clocks = tuple(stage["clocks"] for stage in row["stages"])
        return TracedJob(record, row["camera"], row["stamp_ns"], row["warm_up"], clocks)
    except (KeyError, TypeError, ValueError) as error:
        raise JobTraceError(f"not a row of a job trace: {error!r}") from error


def make_batch(jobs: Sequence[TracedJob], schema: pa.Schema) -> pa.RecordBatch:
    """Jobs as a batch of `make_schema`, in order; ValueError or TypeError for a bad value."""
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
    """N job records, with their cameras, stamps, clocks and warm-up marks, as a batch.

    `cameras`, `stamps_ns` and `warm_ups` have N items, `clocks` one for each stage of all jobs.
    ValueError or TypeError for a value that its column cannot hold.
    """
    pa = require_pyarrow()
    stages_of = list(map(attrgetter("stages"), records))
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
    """Transpose rows to `width` columns, which are empty where there is no row."""
    return list(zip(*rows, strict=True)) or ((),) * width
