# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Campaign: the chunks of a sequential evaluation counted, compared, written and released.

Results come in any order and are put in the order of their requests before anything is written, so
a fleet leaves the same files as one machine. Memory does not grow with the frames, except for 8
bytes a frame and variant where repetitions are compared.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage
from jetson_dnn_rt.lab.evaluate.chunk import (
    ChunkRequest,
    ChunkResult,
    Key,
    VariantChunk,
    merge_variants,
)
from jetson_dnn_rt.lab.evaluate.plan import TaskSpec
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TraceMetadata, make_schema, require_pyarrow
from jetson_dnn_rt.traces.writer import StreamPart, turn_into_parquet

CHUNK_FRAMES = 250
"""Long enough that ten warm-up frames cost 4 %, short enough that a lost worker costs little."""

NAMED = 20
"""Bad messages, failed frames and differing results that are listed; all are counted."""

_MARK_BYTES = 8

Stream = tuple[str, str]
"""Bag and topic."""


def split_stream(
    bag: str,
    topic: str,
    count: int,
    tasks: Sequence[TaskSpec],
    *,
    repeats: int = 1,
    frames: int = CHUNK_FRAMES,
    warm_up: int = 10,
    masks: bool = False,
) -> list[ChunkRequest]:
    """Make the requests that cover all messages of a topic, `repeats` times."""
    specs = tuple(tasks)
    return [
        ChunkRequest(bag, topic, first, min(frames, count - first), specs, warm_up, repeat, masks)
        for repeat in range(repeats)
        for first in range(0, count, frames)
    ]


@dataclass(eq=False)
class StreamCount:
    """Counts of the messages of one topic of one bag, in one repetition."""

    messages: int = 0
    frames: int = 0
    unreadable: int = 0
    bad: list[BadMessage] = field(default_factory=list)
    """The first `NAMED` of those that are unreadable."""
    notes: list[str] = field(default_factory=list)
    """Damage of the bag, each once."""


def _mark(request: ChunkRequest, digests: dict[int, bytes]) -> bytes:
    """Return the first bytes of each frame's digest; zeros where there is none."""
    places = range(request.first, request.first + request.count)
    nothing = bytes(_MARK_BYTES)
    return b"".join(digests.get(place, nothing)[:_MARK_BYTES] for place in places)


class Campaign:
    """Results of all requests, added in any order, each once.

    Parameters
    ----------
    requests : sequence of ChunkRequest
        All requests of the evaluation, repetition by repetition.
    write_rows, write_lines : callable
        Called with `ChunkResult.rows` and `ChunkResult.lines` in the order of the requests;
        without them nothing is written.
    """

    def __init__(
        self,
        requests: Sequence[ChunkRequest],
        write_rows: Callable[[bytes], object] = lambda rows: None,
        write_lines: Callable[[bytes], object] = lambda lines: None,
    ) -> None:
        self._order = {_name(request): place for place, request in enumerate(requests)}
        if len(self._order) != len(requests):
            raise ValueError("requests: the same part of a bag is requested twice")
        self._repeats = 1 + max((request.repeat for request in requests), default=0)
        self._write_rows, self._write_lines = write_rows, write_lines
        self._waiting: dict[int, ChunkResult] = {}
        self._next = 0
        self._folded: dict[tuple[int, Stream, Key], Any] = {}
        """SHA-256 of all results of a repetition so far, in the order of the frames."""
        self._marks: defaultdict[tuple[Stream, Key], bytearray] = defaultdict(bytearray)
        """Marks of repetition 0, which the others are compared with."""
        self._compared: Counter[tuple[int, Stream, Key]] = Counter()
        self.variants: dict[Key, VariantChunk] = {}
        """All streams and repetitions together, without the digests of single frames."""
        self.failed: Counter[Key] = Counter()
        self.streams: defaultdict[Stream, StreamCount] = defaultdict(StreamCount)
        """By bag and topic, of repetition 0."""
        self.differing: defaultdict[Key, list[tuple[str, int]]] = defaultdict(list)
        """The first `NAMED` bags and places whose result differed in another repetition."""
        self.differences: Counter[Key] = Counter()
        self.lost = 0
        """Messages of all repetitions that are neither frames nor bad."""
        self.machines: list[dict[str, Any]] = []
        """Machines that ran chunks, each once."""

    @property
    def done(self) -> int:
        """Number of results counted."""
        return self._next

    @property
    def complete(self) -> bool:
        """Whether every request was answered."""
        return self._next == len(self._order)

    def add(self, result: ChunkResult) -> None:
        """Add a result; one that comes before its turn waits.

        Raises
        ------
        ValueError
            When it was not requested, or was added before.
        """
        place = self._order.get(_name(result.request), -1)
        if place < 0:
            raise ValueError(f"{_name(result.request)} was not requested")
        if place < self._next or place in self._waiting:
            raise ValueError(f"{_name(result.request)} was already added")
        self._waiting[place] = result
        while self._next in self._waiting:
            self._count(self._waiting.pop(self._next))
            self._next += 1

    def digest(self, stream: Stream, key: Key, repeat: int = 0) -> str:
        """Digest all results of a variant on a stream, as `chunk.digest_results` does."""
        return str(self._folded.get((repeat, stream, key), hashlib.sha256()).hexdigest())

    @property
    def identical(self) -> bool | None:
        """Whether all repetitions gave bit-identical results; None with only one."""
        if self._repeats == 1:
            return None
        return not self.differences.total() and all(
            folded.hexdigest() == self._folded[0, stream, key].hexdigest()
            for (_, stream, key), folded in self._folded.items()
        )

    def _count(self, result: ChunkResult) -> None:
        request = result.request
        stream = request.bag, request.topic
        self.lost += request.count - result.frames - len(result.bad)
        if request.repeat == 0:
            count = self.streams[stream]
            count.messages += request.count
            count.frames += result.frames
            count.unreadable += len(result.bad)
            count.bad += result.bad[: NAMED - len(count.bad)]
            count.notes += [note for note in result.notes if note not in count.notes]
        for key, variant in result.variants.items():
            self._fold(request, stream, key, variant.digests)
            self.failed[key] += len(variant.failed)
            before = self.variants.get(key, VariantChunk())
            whole = merge_variants([before, variant])
            whole.digests = {}
            whole.failed = dict(list(whole.failed.items())[:NAMED])
            self.variants[key] = whole
        self._write_rows(result.rows)
        self._write_lines(result.lines)
        if not any(_same(result.machine, machine) for machine in self.machines):
            self.machines.append(result.machine)

    def _fold(
        self, request: ChunkRequest, stream: Stream, key: Key, digests: dict[int, bytes]
    ) -> None:
        whole = self._folded.setdefault((request.repeat, stream, key), hashlib.sha256())
        for index in sorted(digests):
            whole.update(index.to_bytes(8, "little") + digests[index])
        if self._repeats == 1:
            return
        now = _mark(request, digests)
        if request.repeat == 0:
            self._marks[stream, key].extend(now)
            return
        begin = self._compared[request.repeat, stream, key]
        first = self._marks[stream, key][begin : begin + len(now)]
        self._compared[request.repeat, stream, key] += len(now)
        if now == first:
            return
        named = self.differing[key]
        for offset in range(0, len(now), _MARK_BYTES):
            if now[offset : offset + _MARK_BYTES] != first[offset : offset + _MARK_BYTES]:
                self.differences[key] += 1
                if len(named) < NAMED:
                    named.append((stream[0], request.first + offset // _MARK_BYTES))


def _name(request: ChunkRequest) -> tuple[str, str, int, int, int]:
    return request.bag, request.topic, request.repeat, request.first, request.count


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Compare descriptions of machines without what changes from chunk to chunk."""
    passing = dict.fromkeys(("load_average_1min", "date", "command"))
    return {**one, **passing} == {**other, **passing}


class TraceParts:
    """A job trace of packed chunks: a folder of parts, readable after a crash while it is written.

    Files that an earlier evaluation left in the folder are removed. A part is closed and the next
    one begun at `part_bytes`, by default that of `room`.

    Raises
    ------
    ConfigurationError
        When pyarrow is missing.
    OSError
        When the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        metadata: TraceMetadata,
        *,
        room: TraceRoom | None = None,
        part_bytes: int | None = None,
    ) -> None:
        self._pa = require_pyarrow()
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("jobs-*.*"):
            old.unlink()
        self.folder = folder
        self.written = 0
        self._schema = make_schema(metadata)
        self._room = room or TraceRoom(ring=False)
        self._part_bytes = part_bytes or self._room.part_bytes
        self._number = 0
        self._part: StreamPart | None = None

    def write(self, rows: bytes) -> None:
        """Append `ChunkResult.rows`.

        Raises
        ------
        OSError
            When the disk is full or cannot be written.
        """
        with self._pa.ipc.open_stream(self._pa.BufferReader(rows)) as stream:
            for batch in stream:
                self._append(batch)

    def _append(self, batch: Any) -> None:
        # The worker did not know the metadata of the evaluation.
        batch = self._pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        data = batch.serialize()
        self._room.make(self.folder, self._part.size if self._part else 0, data.size)
        if self._part is None:
            path = self.folder / f"jobs-{self._number:04d}.arrows"
            self._part = StreamPart(path, self._schema)
            self._number += 1
        self._part.append(data)
        self.written += batch.num_rows
        if self._part.size >= self._part_bytes:
            self.close()

    def close(self) -> None:
        """Turn the open part into Parquet; a later `write` begins another one."""
        if self._part is not None:
            part, self._part = self._part, None
            part.close()
            path = turn_into_parquet(part.path, self._schema)
            self._room.add(path, lambda: None)

    def __enter__(self) -> TraceParts:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
