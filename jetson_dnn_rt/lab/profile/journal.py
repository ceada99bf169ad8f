"""The finished pieces of a long measurement, in a file that survives a crash.

One line of JSON per finished piece of work, on the disk before the next piece begins. The same
measurement started again finds those pieces and continues after them; a line that a crash
truncated is dropped, and its piece is measured again. Timed frames are kept in chunks, each
measured under one condition.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.measuring.timing import TimedRun

FORMAT, VERSION = "jetson_dnn_rt-profile-journal", 1

ALONE = "none"
"""The condition in which nothing else runs."""


class Journal:
    """Finished pieces of a measurement by their names, in memory only."""

    def __init__(self) -> None:
        self._pieces: dict[str, Any] = {}
        self.resumed = 0  # pieces of an earlier start

    def get(self, name: str) -> Any:
        """The value of a piece, as JSON has it; None if it is still to be done."""
        return self._pieces.get(name)

    def put(self, name: str, value: Any) -> None:
        """Keep the value of a piece: anything that JSON can hold but None."""
        self._pieces[name] = value

    def remember(self, name: str, measure: Callable[[], Any]) -> Any:
        """The value of a piece, which is measured and kept if it is still to be done."""
        value = self.get(name)
        if value is None:
            value = measure()
            self.put(name, value)
        return value

    def items(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Names and values of pieces, in the order in which they were done."""
        return ((name, v) for name, v in self._pieces.items() if name.startswith(prefix))

    def close(self) -> None:
        """Close the file, if there is one."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class FileJournal(Journal):
    """A journal in a file, which is created or continued.

    `settings` hold everything that the pieces depend on. A `ConfigurationError` names the
    difference if the file has other settings; it is also raised if the file is no journal of this
    version, or cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.path = path
        head = {"format": FORMAT, "version": VERSION, "settings": settings}
        try:
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
        try:
            self._load(head)
        except BaseException:
            self._file.close()
            raise

    def put(self, name: str, value: Any) -> None:
        """Keep a piece; it is on the disk when this returns."""
        super().put(name, value)
        self._append({"piece": name, "value": value})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _load(self, head: Mapping[str, Any]) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):  # truncated by a crash
                break
            try:
                fields = json.loads(line)
                if number == 0:
                    self._check(fields, json.loads(json.dumps(head)))
                else:
                    self._pieces[fields["piece"]] = fields["value"]
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError(
                    f"{self.path} line {number + 1} is no journal of a profile ({error!r}); fix: "
                    "remove it, or choose another folder"
                ) from error
            whole += len(line)
        self._file.seek(whole)
        self._file.truncate()
        self.resumed = len(self._pieces)
        if not whole:
            self._append(head)

    def _check(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        if found["format"] != FORMAT or found["version"] != VERSION:
            raise ValueError(f"{found['format']} {found['version']}")
        changes = list(_list_changes(found["settings"], wanted["settings"]))
        if changes:
            raise ConfigurationError(
                f"{self.path.parent} holds a profile with other settings, which cannot be "
                f"continued: {'; '.join(changes)}; fix: choose another folder, or remove "
                f"{self.path}"
            )


def read_settings(path: Path) -> Mapping[str, Any] | None:
    """Settings of a journal; None if there is none, or it cannot be read."""
    try:
        with path.open("rb") as file:
            settings = json.loads(file.readline())["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return settings if isinstance(settings, dict) else None


def _list_changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """``runs was 100, is 200`` for every difference."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            name = f"{path}.{key}" if path else str(key)
            yield from _list_changes(before.get(key), after.get(key), name)
    elif before != after:
        yield f"{path} was {json.dumps(before)}, is {json.dumps(after)}"


def pack_run(run: TimedRun) -> list[int]:
    """A timed run as JSON has it."""
    return [run.sequence, run.stamp_ns, int(run.cold), *run.stamps_ns]


def unpack_run(row: Sequence[int]) -> TimedRun:
    """Read a run of `pack_run`."""
    return TimedRun(row[0], row[1], bool(row[2]), tuple(row[3:]))


@dataclass(frozen=True)
class ChunkKey:
    """Some frames of a profile, which ran in all variants of a task in turn."""

    condition: str  # what ran beside: `ALONE`, ``cpu``, ``memory``, ``gpu``, ``cohort:N``
    clocks: str  # configuration that was asked for: its number, or ``current``
    task: str
    first: int  # number of the first frame that counts

    def __str__(self) -> str:
        return "|".join(("runs", self.condition, self.clocks, self.task, str(self.first)))


@dataclass(frozen=True)
class Chunk:
    """Some timed frames in all variants of a task."""

    key: ChunkKey
    clocks: str  # as read back, in words; empty where nothing reads them
    runs: Mapping[str, Sequence[TimedRun]]  # by variant, the cold ones first

    def put(self, journal: Journal) -> None:
        """Keep it in a journal."""
        runs = {variant: list(map(pack_run, runs)) for variant, runs in self.runs.items()}
        journal.put(str(self.key), {"clocks": self.clocks, "runs": runs})


def _make_chunk(key: ChunkKey, value: Mapping[str, Any]) -> Chunk:
    runs = {variant: list(map(unpack_run, rows)) for variant, rows in value["runs"].items()}
    return Chunk(key, value["clocks"], runs)


def load_chunk(journal: Journal, key: ChunkKey) -> Chunk | None:
    """A chunk that was measured; None if it was not."""
    value = journal.get(str(key))
    return None if value is None else _make_chunk(key, value)


def list_chunks(journal: Journal, condition: str) -> Iterator[Chunk]:
    """All chunks of a condition, in the order in which they were measured."""
    for name, value in journal.items(f"runs|{condition}|"):
        _, _, clocks, task, first = name.split("|")
        yield _make_chunk(ChunkKey(condition, clocks, task, int(first)), value)
