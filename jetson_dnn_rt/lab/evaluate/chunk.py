"""A part of a bag, what is to be done with it, and what comes back: all of it can be pickled.

A chunk is evaluated wherever there is a worker, and any worker gives the same results: bit for bit
the same detections, and times of the machine that it ran on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage as BadMessage
from jetson_dnn_rt.traces.histogram import Histogram

TAIL_SAMPLES = 256
"""Largest times that a chunk brings back for each histogram: what a tail is looked at with."""


@dataclass(frozen=True)
class TaskSpec:
    """A task of a parameter file as a worker needs it: no ROS, nothing loaded.

    Attributes
    ----------
    name, model : str
        Of the task; source of its model.
    variants : tuple of str
        Those that are evaluated, the one that runs first in front.
    deadline_ns, period_ns : int
        Relative deadline, expected time between frames.
    values : mapping
        The task's other parameters by name (thresholds, threads, stages, engine_cache, ...).
    """

    name: str
    model: str
    variants: tuple[str, ...]
    deadline_ns: int
    period_ns: int
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChunkRequest:
    """Messages ``first`` to ``first + count - 1`` of a topic of a bag, for some tasks.

    Attributes
    ----------
    bag, topic : str
        Path as the worker sees it; name of the topic.
    first, count : int
        Places among the topic's messages, in the order of their recording.
    tasks : tuple of TaskSpec
        Each sees every frame.
    warm_up : int
        Frames that are run beforehand and only marked; the first of the chunk, so that a chunk
        needs nothing of another.
    repeat : int
        Number of this repetition, from 0.
    """

    bag: str
    topic: str
    first: int
    count: int
    tasks: tuple[TaskSpec, ...]
    warm_up: int = 10
    repeat: int = 0


@dataclass(eq=False)
class VariantChunk:
    """What one variant of one task did with the frames of a chunk.

    Attributes
    ----------
    execution, stages : Histogram, dict of str to Histogram
        Of whole jobs and of each stage, nanoseconds, without warm-up.
    largest : list of (int, int)
        The `TAIL_SAMPLES` longest executions and the places of their frames, falling.
    digests : dict of int to bytes
        SHA-256 of the result of each frame, by its place.
    failed : dict of int to str
        Frames on which it failed, and why.
    """

    execution: Histogram = field(default_factory=Histogram)
    stages: dict[str, Histogram] = field(default_factory=dict)
    largest: list[tuple[int, int]] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


Key = tuple[str, str]
"""Task and variant."""


@dataclass(eq=False)
class ChunkResult:
    """What came back.

    Attributes
    ----------
    request : ChunkRequest
        What was asked for.
    frames : int
        Messages that were frames.
    bad : list of BadMessage
        The others: ``frames + len(bad)`` is what could be read, ``request.count`` at best.
    variants : dict of (str, str) to VariantChunk
        By task and variant.
    rows : bytes
        The jobs as an Arrow IPC stream of `wcet.trace_schema.make_schema`.
    machine : dict
        That it ran on.
    lines : bytes
        What was found in each frame by each variant, as lines of JSON; of repetition 0 only, the
        others find the same or differ in their digests.
    """

    request: ChunkRequest
    frames: int
    bad: list[BadMessage]
    variants: dict[Key, VariantChunk]
    rows: bytes = b""
    machine: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: bytes = b""


def merge_variants(parts: Sequence[VariantChunk]) -> VariantChunk:
    """Several chunks as one; the order does not matter."""
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
    """One figure for all results, in the order of the frames: equal only when all are equal."""
    whole = hashlib.sha256()
    for index in sorted(digests):
        whole.update(index.to_bytes(8, "little") + digests[index])
    return whole.hexdigest()
