"""What a job trace holds: one row per job, and once what it was measured on.

The schema is versioned: a reader of this release reads version 1 (lines of JSON, ``jobs.jsonl``)
and version 2 (Arrow stream while running, Parquet when closed). Derived times (response, lateness,
execution) are not stored: there is one truth for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.tasks import JobRecord

if TYPE_CHECKING:
    import pyarrow as pa

TRACE_VERSION = 2
METADATA_KEY = b"jetson_dnn_rt"
OPTIONAL_COLUMNS = frozenset(("copied_bytes", "batch"))
"""Added since version 2 began: empty in traces of earlier releases, which pass them over too."""
WARM_UP_JOBS = 10
"""The first jobs of a task in each variant are marked: caches, allocators and clocks settle."""


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A row of a trace.

    Attributes
    ----------
    record : JobRecord
        The job.
    camera : str
        Where its frames came from: a camera's name, a topic, a bag.
    stamp_ns : int or None
        Of the frame, in the source's clock (the message header's stamp).
    warm_up : bool
        Not to be mixed with the others in a statement about the tail.
    clocks : tuple of str
        Clock configuration that held at the start of each stage, as the platform describes it;
        empty strings where nothing reads the clocks.
    """

    record: JobRecord
    camera: str = ""
    stamp_ns: int | None = None
    warm_up: bool = False
    clocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TracedTask:
    """What is known of a task before its first job.

    Attributes
    ----------
    camera, model, model_hash : str
        Its stream, its model's source and the SHA-256 of the model.
    variants, stages : tuple of str
        That may run; names of the stages.
    deadline_ns, period_ns : int
        At the start.
    """

    camera: str = ""
    model: str = ""
    model_hash: str = ""
    variants: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    deadline_ns: int = 0
    period_ns: int = 0


@dataclass(frozen=True)
class TraceMetadata:
    """What a trace was measured on and with.

    Attributes
    ----------
    machine : dict
        CPU, GPU, system, versions (`platforms.machine.describe_machine`).
    platform : dict
        Title, clocks and power mode as read back, whether clocks can be set.
    realtime : dict
        Real-time settings by name: applied or not, and why.
    tasks : dict of str to TracedTask
        By name.
    parameters : dict
        Whatever configured the run, by node or command.
    source : str
        ``run``, ``evaluate``, ``profile``, ``nodes`` or ``simulate``.
    lost : int
        Jobs that are not in the trace, up to the begin of a part, or to its end where that is
        known (Parquet); of a trace the most of its parts.
    removed : int
        Of these, those in parts that were removed when the limit was reached.
    """

    machine: Mapping[str, Any] = field(default_factory=dict)
    platform: Mapping[str, Any] = field(default_factory=dict)
    realtime: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, TracedTask] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    lost: int = 0
    removed: int = 0

    @property
    def missing(self) -> str:
        """What is not in the trace, in words; empty when nothing is missing."""
        if not self.lost:
            return ""
        of_them = f", {self.removed} of them the oldest, removed at the limit"
        return f"{self.lost} jobs are not in the trace{of_them if self.removed else ''}"

    def to_json(self) -> bytes:
        """For the metadata of the file's schema."""
        return json.dumps({"version": TRACE_VERSION, **asdict(self)}, default=str).encode()

    @classmethod
    def from_json(cls, text: bytes) -> TraceMetadata:
        """Read what `to_json` wrote; unknown keys of later releases are passed over.

        Raises
        ------
        ValueError
            When it is no metadata of a trace, or of a version that this release cannot read.
        """
        try:
            fields = json.loads(text)
            version = int(fields["version"])
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"no metadata of a job trace: {error!r}") from error
        if version > TRACE_VERSION:
            raise ValueError(
                f"trace version {version}, this release reads up to {TRACE_VERSION}: update it"
            )
        try:
            tasks = {
                name: TracedTask(**{k: _freeze(v) for k, v in values.items() if k in _TASK_FIELDS})
                for name, values in fields["tasks"].items()
            }
            known = {k: v for k, v in fields.items() if k in _FIELDS and k != "tasks"}
            metadata = cls(tasks=tasks, **known)
            _check_kinds(metadata)
            for task in tasks.values():
                _check_kinds(task)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no metadata of a job trace: {error!r}") from error
        return metadata


_FIELDS = frozenset(TraceMetadata.__dataclass_fields__)
_TASK_FIELDS = frozenset(TracedTask.__dataclass_fields__)


def _check_kinds(one: TraceMetadata | TracedTask) -> None:
    """Raise TypeError for a value of another kind than its default."""
    for item in one.__dataclass_fields__.values():
        kind = dict if item.default is MISSING else type(item.default)
        value = getattr(one, item.name)
        if type(value) is not kind or (kind is tuple and not all(type(v) is str for v in value)):
            raise TypeError(f"{item.name} is {value!r:.80}")


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def require_pyarrow() -> Any:
    """Import pyarrow.

    Raises
    ------
    ConfigurationError
        With the install line when it is missing.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigurationError(
            "traces need pyarrow, which is not installed: pip install 'jetson_dnn_rt[traces]'"
        ) from error
    return pyarrow


def make_schema(metadata: TraceMetadata) -> pa.Schema:
    """The columns; times are int64 nanoseconds on the machine's steady clock."""
    pa = require_pyarrow()
    stage = pa.struct(
        [
            pa.field("name", pa.string(), nullable=False),
            pa.field("variant", pa.string(), nullable=False),
            pa.field("start_ns", pa.int64(), nullable=False),
            pa.field("end_ns", pa.int64(), nullable=False),
            pa.field("clocks", pa.string(), nullable=False),
        ]
    )
    texts = ("task", "camera", "variant", "outcome", "reason", "admission")
    times = (
        *("capture_ns", "release_ns", "completion_ns"),
        *("absolute_deadline_ns", "waiting_ns", "lag_ns"),
    )
    fields = [pa.field(name, pa.string(), nullable=False) for name in texts]
    fields += [pa.field("sequence", pa.int64(), nullable=False), pa.field("stamp_ns", pa.int64())]
    fields += [pa.field("warm_up", pa.bool_(), nullable=False), pa.field("start_ns", pa.int64())]
    fields += [pa.field(name, pa.int64(), nullable=False) for name in times]
    fields += [pa.field(name, pa.int64()) for name in ("copied_bytes", "batch")]
    fields.append(pa.field("stages", pa.list_(stage), nullable=False))
    return pa.schema(fields, metadata={METADATA_KEY: metadata.to_json()})


def to_row(job: TracedJob) -> dict[str, Any]:
    """A job as a row of `make_schema`."""
    record = job.record
    clocks = job.clocks or ("",) * len(record.stages)
    return {
        "task": record.task,
        "camera": job.camera,
        "variant": record.variant,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "admission": record.admission.value,
        "sequence": record.sequence,
        "stamp_ns": job.stamp_ns,
        "warm_up": job.warm_up,
        "start_ns": record.start_ns,
        "capture_ns": record.capture_ns,
        "release_ns": record.release_ns,
        "completion_ns": record.completion_ns,
        "absolute_deadline_ns": record.absolute_deadline_ns,
        "waiting_ns": record.waiting_ns,
        "lag_ns": record.lag_ns,
        "copied_bytes": record.copied_bytes,
        "batch": record.batch,
        "stages": [
            {
                "name": stage.name,
                "variant": stage.variant,
                "start_ns": stage.start_ns,
                "end_ns": stage.end_ns,
                "clocks": configuration,
            }
            for stage, configuration in zip(record.stages, clocks, strict=True)
        ],
    }


def from_row(row: Mapping[str, Any]) -> TracedJob:
    """Read what `to_row` made.

    Raises
    ------
    ValueError
        When it is no row of a trace.
    """
    from jetson_dnn_rt.tasks import Admission, Outcome, StageRecord

    try:
        batch = row["batch"] or 1
        stages = tuple(
            StageRecord(
                s["name"],
                s["variant"],
                s["start_ns"],
                s["end_ns"],
                # Which of them ran in it is not stored: it is the network that batches.
                batch if s["name"].startswith("inference") else 1,
            )
            for s in row["stages"]
        )
        record = JobRecord(
            task=row["task"],
            sequence=row["sequence"],
            variant=row["variant"],
            outcome=Outcome(row["outcome"]),
            reason=row["reason"],
            capture_ns=row["capture_ns"],
            release_ns=row["release_ns"],
            start_ns=row["start_ns"],
            completion_ns=row["completion_ns"],
            absolute_deadline_ns=row["absolute_deadline_ns"],
            waiting_ns=row["waiting_ns"],
            lag_ns=row["lag_ns"],
            admission=Admission(row["admission"]),
            stages=stages,
            copied_bytes=row["copied_bytes"] or 0,
        )
        clocks = tuple(stage["clocks"] for stage in row["stages"])
        return TracedJob(record, row["camera"], row["stamp_ns"], row["warm_up"], clocks)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a row of a job trace: {error!r}") from error
