"""One frame after the other, every variant of every task on each: nothing waits, nothing is lost.

`run_chunk` does a part of a bag and depends on nothing outside of its request: the first frames of
the chunk warm the variants up before all of its frames are run, so that chunks can be done in any
order, on any worker, and again.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import heapq
import io
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.bags import BagImage, ImageBag, open_image_bag
from jetson_dnn_rt.lab.evaluate.chunk import (
    TAIL_SAMPLES,
    BadMessage,
    ChunkRequest,
    ChunkResult,
    Key,
    TaskSpec,
    VariantChunk,
)
from jetson_dnn_rt.lab.evaluate.plan import OpenTask
from jetson_dnn_rt.models.heads.result_lines import describe_result
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, Stage, StageRecord, Work
from jetson_dnn_rt.traces.histogram import Histogram
from jetson_dnn_rt.traces.metadata import find_configuration
from jetson_dnn_rt.traces.schema import (
    TracedJob,
    TraceMetadata,
    make_batch,
    make_schema,
    require_pyarrow,
)

_RESULT_FIELDS = ("boxes", "scores", "class_ids", "mask")


def name_stream(bag: str, topic: str) -> str:
    """What stands for a bag's topic in the column ``camera`` of a trace.

    ``monday/drive#/image_raw``: the last two names of the path, since the folders before them are
    others on other machines.
    """
    return f"{'/'.join(Path(bag).parts[-2:])}#{topic}"


def digest_result(result: Result) -> bytes:
    """SHA-256 of a result: kind, shapes, types and every bit of its arrays."""
    whole = hashlib.sha256(type(result).__name__.encode())
    for name in _RESULT_FIELDS:
        array = getattr(result, name, None)
        if array is not None:
            whole.update(f"{name}{array.dtype.str}{array.shape}".encode())
            whole.update(np.ascontiguousarray(array).tobytes())
    return whole.digest()


@dataclass(frozen=True)
class Run:
    """One frame through one variant.

    Attributes
    ----------
    record : JobRecord
        Released when its first stage began; late where it took longer than the deadline, alone.
    result : Result or None
        None where a stage failed; the record's reason says why.
    """

    record: JobRecord
    result: Result | None


def run_frame(task: OpenTask, variant: str, frame: Frame, index: int, clock: Clock) -> Run:
    """Run the stages of one variant on one frame.

    Parameters
    ----------
    task : OpenTask
        The task.
    variant : str
        One of its pipelines.
    frame : Frame
        The input.
    index : int
        Place of the frame in its stream, the job's sequence.
    clock : Clock
        Takes the times of the stages.
    """
    work = Work(frame)
    marks, reason = _run_stages(task.pipelines[variant].stages, work, clock)
    begin_ns, end_ns = marks[0][1], marks[-1][2]
    deadline_ns = begin_ns + task.spec.deadline_ns
    outcome = Outcome.MET if end_ns <= deadline_ns else Outcome.LATE
    ran = marks[:-1] if reason else marks
    record = JobRecord(
        task=task.spec.name,
        sequence=index,
        variant=variant,
        outcome=Outcome.FAILED if reason else outcome,
        reason=reason,
        capture_ns=begin_ns,
        release_ns=begin_ns,
        start_ns=begin_ns,
        completion_ns=end_ns,
        absolute_deadline_ns=deadline_ns,
        waiting_ns=0,
        lag_ns=deadline_ns - end_ns,
        # Nobody asked whether it would make it: every frame runs.
        admission=Admission.BUDGET,
        stages=tuple(StageRecord(name, variant, start, end) for name, start, end in ran),
        copied_bytes=work.copied_bytes,
    )
    return Run(record, None if reason else work.result)


def _run_stages(
    stages: Sequence[Stage], work: Work, clock: Clock
) -> tuple[list[tuple[str, int, int]], str]:
    """Start and end of each stage; the last one failed where there is a reason."""
    marks = []
    reason = ""
    for stage in stages:
        start_ns = clock.now_ns()
        try:
            stage.run(work)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        marks.append((stage.name, start_ns, clock.now_ns()))
        if reason:
            break
    return marks, reason


def run_chunk(request: ChunkRequest) -> ChunkResult:
    """Run all variants of all tasks on the frames of a part of a bag.

    One at a time in a process, whatever its threads: two at once would measure each other. The
    tasks and the bag stay open for the next chunk of the same ones; `release` closes them.

    Parameters
    ----------
    request : ChunkRequest
        Which frames, which tasks.

    Returns
    -------
    ChunkResult
        Every message of the chunk is a frame or among the bad ones, and every frame is in each
        variant's histogram or among its failures.

    Raises
    ------
    SourceError
        When the bag or its topic is not there.
    ConfigurationError, ModelError, BackendUnavailableError
        When a task cannot be loaded here.
    """
    with _lock:
        kept = _keep(request)
        with _without_collection():
            return _Chunk(request, kept.tasks, SteadyClock()).run(kept.bag)


def release() -> None:
    """Close what `run_chunk` kept open in this process."""
    with _lock:
        _close_kept()


# -- what stays open between chunks ---------------------------------------------------------------


@dataclass(eq=False)
class _Kept:
    names: tuple[str, str]
    specs: tuple[TaskSpec, ...]
    bag: ImageBag
    tasks: list[OpenTask] = field(default_factory=list)

    def close_tasks(self) -> None:
        for task in self.tasks:
            task.close()
        self.tasks, self.specs = [], ()


_lock = threading.Lock()
_kept: _Kept | None = None


def _close_kept() -> None:
    global _kept
    if _kept is not None:
        kept, _kept = _kept, None
        kept.close_tasks()
        kept.bag.close()


def _keep(request: ChunkRequest) -> _Kept:
    """The bag and the tasks of a request: those of the last one, or newly opened."""
    global _kept
    names = request.bag, request.topic
    if _kept is not None and _kept.names != names:
        bag = open_image_bag(Path(request.bag), request.topic)
        _kept.bag.close()
        _kept.names, _kept.bag = names, bag
    if _kept is None:
        # Before torch or OpenVINO allocate anything; what the system refuses costs time only.
        Realtime(RealtimeConfig()).apply_to_process()
        _kept = _Kept(names, (), open_image_bag(Path(request.bag), request.topic))
    if _kept.specs != request.tasks:
        _kept.close_tasks()
        try:
            for spec in request.tasks:
                _kept.tasks.append(OpenTask(spec))
        except BaseException:
            _close_kept()
            raise
        _kept.specs = request.tasks
    return _kept


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """A full garbage collection with torch imported takes 80 ms: not inside of a frame."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# -- one chunk ------------------------------------------------------------------------------------


class _Chunk:
    def __init__(self, request: ChunkRequest, tasks: Sequence[OpenTask], clock: Clock) -> None:
        self._request, self._tasks, self._clock = request, tasks, clock
        self._camera = name_stream(request.bag, request.topic)
        with detect() as platform:
            self._clocks = find_configuration(platform)
        self._jobs: list[TracedJob] = []
        self._lines: list[str] = []
        self._variants: dict[Key, VariantChunk] = {
            (task.spec.name, variant): VariantChunk()
            for task in tasks
            for variant in task.pipelines
        }
        # Turned over from frame to frame, so that no variant always runs into another's cache.
        self._turns = [(task, variant) for task in tasks for variant in task.pipelines]

    def run(self, bag: ImageBag) -> ChunkResult:
        request = self._request
        bad: list[BadMessage] = []
        frames = 0
        images = _sort_out(bag.read(request.first, request.count), bad)
        first = list(islice(images, request.warm_up))
        for image in first:
            self._warm_up(image)
        while first:
            self._run(first.pop(0))
            frames += 1
        for image in images:
            self._run(image)
            frames += 1
        return ChunkResult(
            request,
            frames,
            bad,
            self._variants,
            rows=_pack(self._jobs),
            machine=describe_machine(),
            notes=list(bag.notes),
            lines="".join(self._lines).encode(),
        )

    def _warm_up(self, image: BagImage) -> None:
        for task, variant in self._turns:
            run = run_frame(task, variant, image.frame, image.index, self._clock)
            self._note(run, image, warm_up=True)

    def _run(self, image: BagImage) -> None:
        turns = self._turns if image.index % 2 == 0 else self._turns[::-1]
        for task, variant in turns:
            run = run_frame(task, variant, image.frame, image.index, self._clock)
            self._note(run, image, warm_up=False)
            _count(self._variants[task.spec.name, variant], run, image.index)
            if self._request.repeat == 0:
                self._lines.append(_format_line(self._camera, image, task, run))

    def _note(self, run: Run, image: BagImage, *, warm_up: bool) -> None:
        clocks = (self._clocks,) * len(run.record.stages)
        job = TracedJob(run.record, self._camera, image.frame.stamp_ns, warm_up, clocks)
        self._jobs.append(job)


def _sort_out(
    messages: Iterator[BagImage | BadMessage], bad: list[BadMessage]
) -> Iterator[BagImage]:
    for message in messages:
        if isinstance(message, BadMessage):
            bad.append(message)
        else:
            yield message


def _count(variant: VariantChunk, run: Run, index: int) -> None:
    record = run.record
    if run.result is None:
        variant.failed[index] = record.reason or "no result"
        return
    time_ns = record.execution_time_ns
    variant.execution.record(time_ns)
    for stage in record.stages:
        variant.stages.setdefault(stage.name, Histogram()).record(stage.execution_time_ns)
    variant.digests[index] = digest_result(run.result)
    variant.largest.append((time_ns, index))
    if len(variant.largest) >= 2 * TAIL_SAMPLES:
        variant.largest = heapq.nlargest(TAIL_SAMPLES, variant.largest)


def _format_line(camera: str, image: BagImage, task: OpenTask, run: Run) -> str:
    # Nothing that depends on times: whoever runs the bag again gets the same file.
    line: dict[str, object] = {
        "stream": camera,
        "frame": image.index,
        "stamp_ns": image.frame.stamp_ns,
        "log_time_ns": image.log_time_ns,
        "task": task.spec.name,
        "variant": run.record.variant,
        **describe_result(run.result, task.model.kind, task.model.labels),
    }
    if run.result is None:
        line["failed"] = run.record.reason
    return json.dumps(line) + "\n"


def _pack(jobs: Sequence[TracedJob]) -> bytes:
    """Jobs as an Arrow IPC stream."""
    pa = require_pyarrow()
    schema = make_schema(TraceMetadata(source="evaluate"))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(make_batch(jobs, schema))
    return sink.getvalue()
