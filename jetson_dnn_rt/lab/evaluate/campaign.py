"""The chunks of a sequential evaluation as one: counted, compared, written, and then forgotten.

Results come in any order and are put in the order of their requests before anything is written, so
that a fleet leaves the same files as one machine. Memory does not grow with the frames, but for 8
bytes a frame and variant where repetitions are compared.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetson_dnn_rt.lab.evaluate.chunk import (
    BadMessage,
    ChunkRequest,
    ChunkResult,
    Key,
    TaskSpec,
    VariantChunk,
    merge_variants,
)

CHUNK_FRAMES = 250
"""Long enough that ten warm-up frames cost 4 %, short enough that a lost worker costs little."""

NAMED = 20
"""So many bad messages, failed frames and differing results are named; all are counted."""

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
) -> list[ChunkRequest]:
    """The requests that do all of a topic, `repeats` times.

    Parameters
    ----------
    bag, topic : str
        Which one.
    count : int
        Messages of the topic, or how many of them are to be done.
    tasks : sequence of TaskSpec
        Each sees every frame.
    repeats : int
        How often, >= 1.
    frames : int
        Messages in a chunk, >= 1.
    warm_up : int
        See `ChunkRequest`.

    Raises
    ------
    ValueError
        When `frames` or `repeats` is below 1.
    """
    for name, value in (("frames", frames), ("repeats", repeats)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1: {value}")
    return [
        ChunkRequest(bag, topic, first, min(frames, count - first), tuple(tasks), warm_up, repeat)
        for repeat in range(repeats)
        for first in range(0, count, frames)
    ]


@dataclass(eq=False)
class StreamCount:
    """What became of the messages of one topic of one bag, in one repetition."""

    messages: int = 0
    frames: int = 0
    unreadable: int = 0
    bad: list[BadMessage] = field(default_factory=list)
    """The first `NAMED` of those that are unreadable."""
    notes: list[str] = field(default_factory=list)
    """What is wrong with the bag, each once."""


class _Folded:
    """The digests of one variant in one repetition of one stream, in the order of the frames."""

    def __init__(self, marks: bytearray | None) -> None:
        self._whole = hashlib.sha256()
        self._marks = marks

    def add(self, request: ChunkRequest, digests: dict[int, bytes]) -> None:
        for index in sorted(digests):
            self._whole.update(index.to_bytes(8, "little") + digests[index])
        if self._marks is not None:
            self._marks += _mark(request, digests)

    @property
    def digest(self) -> str:
        """As `chunk.digest_results` of all of them."""
        return self._whole.hexdigest()


def _mark(request: ChunkRequest, digests: dict[int, bytes]) -> bytes:
    """The first bytes of each frame's digest; zeros where there is none."""
    places = range(request.first, request.first + request.count)
    nothing = bytes(_MARK_BYTES)
    return b"".join(digests.get(place, nothing)[:_MARK_BYTES] for place in places)


class Campaign:
    """Takes the results of all requests, in any order, each once.

    Parameters
    ----------
    requests : sequence of ChunkRequest
        All that will come, repetition by repetition.
    write_rows, write_lines : callable
        Take `ChunkResult.rows` and `ChunkResult.lines` in the order of the requests.

    Attributes
    ----------
    variants : dict of (str, str) to VariantChunk
        All streams and repetitions together, without the digests of single frames.
    streams : dict of (str, str) to StreamCount
        By bag and topic, of repetition 0.
    differing : dict of (str, str) to list of (str, int)
        For each task and variant the first `NAMED` stream and place whose result another
        repetition did not repeat.
    lost : int
        Messages of all repetitions that are neither frames nor bad.
    machines : list of dict
        Those that did it, each once.
    """

    def __init__(
        self,
        requests: Sequence[ChunkRequest],
        write_rows: Callable[[bytes], None],
        write_lines: Callable[[bytes], None],
    ) -> None:
        self._order = {_name(request): place for place, request in enumerate(requests)}
        if len(self._order) != len(requests):
            raise ValueError("requests: the same part of a bag is there twice")
        self._repeats = 1 + max((request.repeat for request in requests), default=0)
        self._write_rows, self._write_lines = write_rows, write_lines
        self._waiting: dict[int, ChunkResult] = {}
        self._next = 0
        self._folded: dict[tuple[int, Stream, Key], _Folded] = {}
        self._marks: dict[tuple[Stream, Key], bytearray] = {}
        self._compared: Counter[tuple[int, Stream, Key]] = Counter()
        self.variants: dict[Key, VariantChunk] = {}
        self.failed: Counter[Key] = Counter()
        self.streams: dict[Stream, StreamCount] = {}
        self.differing: dict[Key, list[tuple[str, int]]] = {}
        self.differences: Counter[Key] = Counter()
        self.lost = 0
        self.machines: list[dict[str, Any]] = []

    @property
    def done(self) -> int:
        """Results that were counted."""
        return self._next

    @property
    def complete(self) -> bool:
        """Whether every request was answered."""
        return self._next == len(self._order)

    def add(self, result: ChunkResult) -> None:
        """Take a result; what came before its turn waits.

        Raises
        ------
        ValueError
            When it was not asked for, or is there already.
        """
        place = self._order.get(_name(result.request), -1)
        if place < 0:
            raise ValueError(f"nobody asked for {_name(result.request)}")
        if place < self._next or place in self._waiting:
            raise ValueError(f"{_name(result.request)} is there already")
        self._waiting[place] = result
        while self._next in self._waiting:
            self._count(self._waiting.pop(self._next))
            self._next += 1

    def digest(self, stream: Stream, key: Key, repeat: int = 0) -> str:
        """One figure for all results of a variant on a stream."""
        return self._folded[repeat, stream, key].digest

    @property
    def identical(self) -> bool | None:
        """Whether all repetitions found the same, to the bit; None with one only."""
        if self._repeats == 1:
            return None
        return not self.differences.total() and all(
            folded.digest == self._folded[0, stream, key].digest
            for (_, stream, key), folded in self._folded.items()
        )

    def _count(self, result: ChunkResult) -> None:
        request = result.request
        stream = request.bag, request.topic
        lost = request.count - result.frames - len(result.bad)
        self.lost += lost
        if request.repeat == 0:
            count = self.streams.setdefault(stream, StreamCount())
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
        marks = None
        if request.repeat == 0 and self._repeats > 1:
            marks = self._marks.setdefault((stream, key), bytearray())
        place = request.repeat, stream, key
        if place not in self._folded:
            self._folded[place] = _Folded(marks)
        self._folded[place].add(request, digests)
        if request.repeat > 0:
            self._compare(request, stream, key, digests)

    def _compare(
        self, request: ChunkRequest, stream: Stream, key: Key, digests: dict[int, bytes]
    ) -> None:
        begin = self._compared[request.repeat, stream, key]
        now = _mark(request, digests)
        first = self._marks[stream, key][begin : begin + len(now)]
        self._compared[request.repeat, stream, key] += len(now)
        if now == first:
            return
        named = self.differing.setdefault(key, [])
        for offset in range(0, len(now), _MARK_BYTES):
            if now[offset : offset + _MARK_BYTES] != first[offset : offset + _MARK_BYTES]:
                self.differences[key] += 1
                if len(named) < NAMED:
                    named.append((stream[0], request.first + offset // _MARK_BYTES))


def _name(request: ChunkRequest) -> tuple[str, str, int, int, int]:
    return request.bag, request.topic, request.repeat, request.first, request.count


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two descriptions are of one machine: load and date change from chunk to chunk."""
    passing = ("load_average_1min", "date", "command")
    return {k: v for k, v in one.items() if k not in passing} == {
        k: v for k, v in other.items() if k not in passing
    }
