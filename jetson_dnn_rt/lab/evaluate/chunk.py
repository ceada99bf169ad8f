# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Chunk: part of a bag, run frame by frame with every variant of every task; nothing waits.

Requests and results can be pickled. A chunk depends on nothing outside its request: its first
frames warm the variants up before all of its frames are run, so chunks can be run in any order,
on any worker and repeatedly, with the same results: bit for bit the same detections, and times of
the machine that they ran on.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import heapq
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage, BagImage, ImageBag, open_image_bag
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.plan import OpenTask, TaskSpec
from jetson_dnn_rt.lab.evaluate.streams import name_stream
from jetson_dnn_rt.models.heads.result_lines import describe_frame, describe_result
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.tasks import JobRecord, StageRecord, Work
from jetson_dnn_rt.traces.histogram import Histogram
from jetson_dnn_rt.traces.metadata import find_configuration
from jetson_dnn_rt.traces.schema import (
    TracedJob,
    TraceMetadata,
    make_batch,
    make_schema,
    require_pyarrow,
)

TAIL_SAMPLES = 256
"""Number of longest times that a chunk returns for each variant, for the tail."""

Key = tuple[str, str]
"""Task and variant."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class ChunkRequest:
    """Messages ``first`` to ``first + count - 1`` of a topic of a bag, for some tasks.

    The bag's path is as the worker sees it. `warm_up` frames, the first of the chunk, are run
    beforehand and marked. Repetitions count from 0. `masks`: whole, in the lines of results.
    """

    bag: str
    topic: str
    first: int
    count: int
    tasks: tuple[TaskSpec, ...]
    warm_up: int = 10
    repeat: int = 0
    masks: bool = False


@dataclass(eq=False)
class VariantChunk:
    """Times and results of one variant of one task on the frames of a chunk, without warm-up."""

    execution: Histogram = field(default_factory=Histogram)
    stages: dict[str, Histogram] = field(default_factory=dict)
    largest: list[tuple[int, int]] = field(default_factory=list)
    """The `TAIL_SAMPLES` longest executions in ns and the places of their frames, descending."""
    digests: dict[int, bytes] = field(default_factory=dict)
    """SHA-256 of the result of each frame, by its place."""
    failed: dict[int, str] = field(default_factory=dict)
    """Frames on which the variant failed, and why."""


@dataclass(eq=False)
class ChunkResult:
    """Result of a chunk: ``frames + len(bad)`` messages could be read, at most `request.count`."""

    request: ChunkRequest
    frames: int
    bad: list[BadMessage]
    variants: dict[Key, VariantChunk]
    rows: bytes = b""
    """Jobs as an Arrow IPC stream of `traces.schema.make_schema`."""
    machine: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: bytes = b""
    """Results of each frame and variant as lines of JSON; of repetition 0 only, since differences
    in the others show in their digests."""


def merge_variants(parts: Sequence[VariantChunk]) -> VariantChunk:
    """Merge chunks of a variant; the order does not matter."""
    whole = VariantChunk()
    for part in parts:
        whole.execution.merge(part.execution)
        for name, histogram in part.stages.items():
            whole.stages.setdefault(name, Histogram()).merge(histogram)
        whole.digests |= part.digests
        whole.failed |= part.failed
    pooled = [sample for part in parts for sample in part.largest]
    whole.largest = sorted(pooled, reverse=True)[:TAIL_SAMPLES]
    return whole


def digest_results(digests: Mapping[int, bytes]) -> str:
    """Digest all results in the order of the frames: equal only when all are equal."""
    whole = hashlib.sha256()
    for index in sorted(digests):
        whole.update(index.to_bytes(8, "little") + digests[index])
    return whole.hexdigest()


def digest_result(result: Result) -> bytes:
    """Compute the SHA-256 of a result: kind, shapes, types and every bit of its arrays."""
    whole = hashlib.sha256(type(result).__name__.encode())
    for part in fields(result):
        array = getattr(result, part.name)
        if isinstance(array, np.ndarray):
            whole.update(f"{part.name}{array.dtype.str}{array.shape}".encode())
            whole.update(np.ascontiguousarray(array).tobytes())
    for other in getattr(result, "others", ()):
        whole.update(other.name.encode() + digest_result(other))
    return whole.digest()


def run_frame(
    task: OpenTask, variant: str, frame: Frame, index: int, clock: Clock
) -> tuple[JobRecord, Result | None]:
    """Run the stages of one variant on one frame.

    The job is released when its first stage begins; it is late if it took longer than the
    deadline by itself. There is no result if a stage failed; the record has the reason.
    """
    work = Work(frame)
    begin_ns = clock.now_ns()
    stages: list[StageRecord] = []
    reason = ""
    for stage in task.pipelines[variant].stages:
        start_ns = clock.now_ns() if stages else begin_ns
        try:
            stage.run(work)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        end_ns = clock.now_ns()
        if reason:
            break
        stages.append(StageRecord(stage.name, variant, start_ns, end_ns))
    times_ns = (begin_ns, end_ns, task.spec.deadline_ns)
    record = JobRecord.alone(
        task.spec.name, index, variant, times_ns, stages, reason, work.copied_bytes
    )
    return record, None if reason else work.result


# -- Tasks and bag, which stay open between chunks -----------------------------------------------


class _Kept(Generic[K, V]):
    """Cache of the last object opened, which stays open until another one is requested."""

    def __init__(self, open_one: Callable[[K], AbstractContextManager[V]]) -> None:
        self._open = open_one
        self._stack = contextlib.ExitStack()
        self._value: tuple[K, V] | None = None

    def get(self, key: K) -> V:
        if self._value is None or self._value[0] != key:
            self.close()
            self._value = key, self._stack.enter_context(self._open(key))
        return self._value[1]

    def close(self) -> None:
        self._value = None
        self._stack.close()


@contextlib.contextmanager
def _open_tasks(specs: tuple[TaskSpec, ...]) -> Iterator[list[OpenTask]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(OpenTask(spec)) for spec in specs]


_lock = threading.Lock()
_bag = _Kept[tuple[str, str], ImageBag](lambda names: open_image_bag(Path(names[0]), names[1]))
_tasks = _Kept[tuple[TaskSpec, ...], list[OpenTask]](_open_tasks)


@functools.cache
def _prepare_process() -> None:
    """Set up the process before torch or OpenVINO allocate; what is refused only costs time."""
    Realtime(RealtimeConfig()).apply_to_process()


def run_chunk(
    request: ChunkRequest, step: Callable[[int], object] = lambda frames: None
) -> ChunkResult:
    """Run all variants of all tasks on the frames of a part of a bag.

    `step` is called with the frames done. Run only one at a time in a process, whatever its
    threads: two at once would disturb each other's times. The tasks and the bag stay open for the
    next chunk; `release` closes them. Every message of the chunk is a frame or among the bad ones,
    and every frame is in each variant's histogram or among its failures.

    Raises
    ------
    SourceError
        When the bag or its topic does not exist.
    ConfigurationError, ModelError, BackendUnavailableError
        When a task cannot be loaded here.
    """
    with _lock:
        _prepare_process()
        bag, tasks = _bag.get((request.bag, request.topic)), _tasks.get(request.tasks)
        with _without_collection():
            return _Chunk(request, tasks, SteadyClock()).run(bag, step)


def release() -> None:
    """Close what `run_chunk` kept open in this process."""
    with _lock:
        _tasks.close()
        _bag.close()


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Keep garbage collection out of frames: a full one with torch imported takes 80 ms."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# -- One chunk -----------------------------------------------------------------------------------


class _Chunk:
    def __init__(self, request: ChunkRequest, tasks: Sequence[OpenTask], clock: Clock) -> None:
        self._request, self._clock = request, clock
        self._camera = name_stream(request.bag, request.topic)
        with detect() as platform:
            self._clocks = find_configuration(platform)
        self._jobs: list[TracedJob] = []
        self._lines: list[str] = []
        self._bad: list[BadMessage] = []
        self._turns = [(task, variant) for task in tasks for variant in task.pipelines]
        self._variants: dict[Key, VariantChunk] = {
            (task.spec.name, variant): VariantChunk() for task, variant in self._turns
        }

    def run(self, bag: ImageBag, step: Callable[[int], object]) -> ChunkResult:
        frames = 0
        images = self._read(bag)
        first = list(islice(images, self._request.warm_up))
        for image in first:
            for task, variant in self._turns:
                self._run(task, variant, image, warm_up=True)
        while first:
            self._measure(first.pop(0))
            frames += 1
            step(frames)
        for image in images:
            self._measure(image)
            frames += 1
            step(frames)
        return ChunkResult(
            self._request,
            frames,
            self._bad,
            self._variants,
            rows=pack_jobs(self._jobs),
            machine=describe_machine(),
            notes=list(bag.notes),
            lines="".join(self._lines).encode(),
        )

    def _read(self, bag: ImageBag) -> Iterator[BagImage]:
        for message in bag.read(self._request.first, self._request.count):
            if isinstance(message, BadMessage):
                self._bad.append(message)
            else:
                yield message

    def _run(
        self, task: OpenTask, variant: str, image: BagImage, *, warm_up: bool
    ) -> tuple[JobRecord, Result | None]:
        record, result = run_frame(task, variant, image.frame, image.index, self._clock)
        clocks = (self._clocks,) * len(record.stages)
        self._jobs.append(TracedJob(record, self._camera, image.frame.stamp_ns, warm_up, clocks))
        return record, result

    def _measure(self, image: BagImage) -> None:
        # In turns, so that no variant always runs into another's cache.
        for task, variant in self._turns if image.index % 2 == 0 else self._turns[::-1]:
            record, result = self._run(task, variant, image, warm_up=False)
            _count(self._variants[task.spec.name, variant], record, result)
            if self._request.repeat:
                continue
            # Nothing here depends on times: running the bag again gives the same file.
            line: dict[str, object] = {
                "stream": self._camera,
                "frame": image.index,
                **describe_frame(image.frame),
                "log_time_ns": image.log_time_ns,
                "task": task.spec.name,
                "variant": variant,
                **describe_result(
                    result, task.model.kind, task.model.labels, masks=self._request.masks
                ),
            }
            if result is None:
                line["failed"] = record.reason
            self._lines.append(json.dumps(line) + "\n")


def _count(variant: VariantChunk, record: JobRecord, result: Result | None) -> None:
    index = record.sequence
    if result is None:
        variant.failed[index] = record.reason or "no result"
        return
    time_ns = record.execution_time_ns
    variant.execution.record(time_ns)
    for stage in record.stages:
        variant.stages.setdefault(stage.name, Histogram()).record(stage.execution_time_ns)
    variant.digests[index] = digest_result(result)
    variant.largest.append((time_ns, index))
    if len(variant.largest) >= 2 * TAIL_SAMPLES:
        variant.largest = heapq.nlargest(TAIL_SAMPLES, variant.largest)


def pack_jobs(jobs: Sequence[TracedJob]) -> bytes:
    """Pack jobs as an Arrow IPC stream."""
    pa = require_pyarrow()
    schema = make_schema(TraceMetadata(source="evaluate"))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(make_batch(jobs, schema))
    return sink.getvalue()
