# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Journal of a long measurement: its finished pieces, in a file that survives a crash.

One line of JSON per finished piece of work, on the disk before the next piece begins. The same
measurement started again finds those pieces and continues after them; a line that a crash
truncated is dropped, and its piece is measured again. Timed frames are stored in chunks, each
measured under one condition.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from jetson_dnn_rt.errors import ConfigurationError, naming
from jetson_dnn_rt.safety.records import one_of, read_record, within
from jetson_dnn_rt.variants.measuring.timing import TimedRun

FORMAT, VERSION = "jetson_dnn_rt-profile-journal", 1

ALONE = "none"
"""The condition in which nothing else runs."""


@dataclass(frozen=True)
class _Head:
    """The first line of the file."""

    format: Annotated[str, one_of(FORMAT)]
    version: Annotated[int, within(VERSION, VERSION)]
    settings: dict[str, Any]


@dataclass(frozen=True)
class _Piece:
    """Every other line."""

    piece: str
    value: Any


@dataclass(frozen=True)
class Chunk:
    """Chunk of frames of a profile, run in all variants of a task in turn."""

    task: str
    first: int  # number of the first frame that counts
    clocks: str  # as read back, in words
    runs: Mapping[str, Sequence[TimedRun]]  # by variant, the cold ones first


class Journal:
    """Finished pieces of a measurement by their names, in a file or, without one, in memory.

    A `ConfigurationError` is raised if the file is not a journal of this version, or cannot be
    written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.settings: Mapping[str, Any] = {}  # of an earlier start
        self.pieces: dict[str, Any] = {}  # as JSON has them, in the order in which they were done
        self._file: BinaryIO | None = None
        if path is not None:
            with naming(path):
                # Not through a link: what is behind a broken line is cut off.
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.fdopen(os.open(path, flags, 0o666), "a+b")
            try:
                self._load(self._file)
            except BaseException:
                self._file.close()
                raise
        self.resumed = len(self.pieces)  # pieces of an earlier start

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Begin or continue the measurement with everything that the pieces depend on.

        A `ConfigurationError` names the difference to the settings of an earlier start.
        """
        wanted = json.loads(json.dumps(settings))
        if not self.settings or self.path is None:
            self._append({"format": FORMAT, "version": VERSION, "settings": wanted})
        elif changes := list(_list_changes(self.settings, wanted)):
            raise ConfigurationError(
                f"{self.path.parent} holds a profile with other settings, which cannot be "
                f"continued: {'; '.join(changes)}; fix: choose another folder, or remove "
                f"{self.path}"
            )

    def put(self, name: str, value: Any) -> None:
        """Store a piece: anything that JSON can hold. It is on the disk when this returns."""
        self.pieces[name] = value
        self._append({"piece": name, "value": value})

    def remember(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return the value of a piece, which is measured and stored if it is missing."""
        if name not in self.pieces:
            self.put(name, measure())
        return self.pieces[name]

    def chunks(self, condition: str) -> Iterator[Chunk]:
        """Return all chunks of a condition, in the order in which they were measured."""
        for name, value in self.pieces.items():
            if name.startswith(f"runs|{condition}|"):
                yield unpack_chunk(name, value)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *details: object) -> None:
        if self._file is not None:
            # What could not be written has been reported by then.
            with contextlib.suppress(OSError):
                self._file.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            assert self.path is not None
            with naming(self.path):
                self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                self._file.flush()
                os.fsync(self._file.fileno())

    def _load(self, file: BinaryIO) -> None:
        file.seek(0)
        whole = 0
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):  # truncated by a crash
                break
            try:
                if number == 0:
                    self.settings = read_record(_Head, json.loads(line)).settings
                else:
                    piece = read_record(_Piece, json.loads(line))
                    self.pieces[piece.piece] = piece.value
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(
                    f"{self.path} line {number + 1} is not a journal of a profile ({error}); fix: "
                    "remove it, or choose another folder"
                ) from error
            whole += len(line)
        file.seek(whole)
        file.truncate()


def _list_changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """``runs was 100, is 200`` for every difference."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            name = f"{path}.{key}" if path else str(key)
            yield from _list_changes(before.get(key), after.get(key), name)
    elif before != after:
        yield f"{path} was {json.dumps(before)}, is {json.dumps(after)}"


def name_chunk(condition: str, clocks: str, task: str, first: int) -> str:
    """Name the piece of a chunk, by the load beside it and the clocks that were requested."""
    return f"runs|{condition}|{clocks}|{task}|{first}"


def unpack_chunk(name: str, value: Mapping[str, Any]) -> Chunk:
    """Read the chunk of a piece."""
    _, _, _, task, first = name.split("|")
    runs = {variant: unpack_runs(rows) for variant, rows in value["runs"].items()}
    return Chunk(task, int(first), value["clocks"], runs)


def pack_runs(runs: Iterable[TimedRun]) -> list[list[int]]:
    """Timed runs as JSON has them."""
    return [[run.sequence, run.stamp_ns, int(run.cold), *run.stamps_ns] for run in runs]


def unpack_runs(rows: Iterable[Sequence[int]]) -> list[TimedRun]:
    """Read the runs of `pack_runs`."""
    return [TimedRun(row[0], row[1], bool(row[2]), tuple(row[3:])) for row in rows]
