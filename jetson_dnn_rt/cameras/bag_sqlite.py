"""Bags in SQLite, as far as their pages can be read."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bag_storage import (
    DamagedFileError,
    DamagedMessageError,
    decompress_message,
)
from jetson_dnn_rt.cameras.bag_types import deserialize_cdr

MAGIC = b"SQLite format 3\x00"

_LARGEST_ID = 1 << 40
"""Where the search for the next readable row ends: no recording has a million million messages."""

_NAMED = 20
"""So many damaged places are named."""

_SELECT = "SELECT id, topic_id, timestamp FROM messages WHERE id >= ?"

_Row = tuple[int, int, int]
"""Number, topic, log time in nanoseconds."""


class SqliteFile:
    """A ``.db3`` file of rosbag2; see `BagFile`.

    Rows are taken by their numbers, which count up as messages are recorded: log times may jump.

    Raises
    ------
    DamagedFileError
        When not even its topics can be read.
    """

    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        self.expected: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self._path = path
        self._numbers: dict[str, list[int]] = {}
        self._rows: dict[str, npt.NDArray[np.int64]] = {}
        self._gaps = 0
        self._connection = self._connect()
        try:
            topics = self._connection.execute(
                "SELECT id, name, type, serialization_format FROM topics ORDER BY id"
            ).fetchall()
            self._connection.execute("SELECT id FROM messages LIMIT 1").fetchall()
        except sqlite3.Error as error:
            self._connection.close()
            raise DamagedFileError(f"{path.name}: {error}") from error
        self._note_size()
        for number, name, kind, serialization in topics:
            if serialization == "cdr":
                self.kinds[name] = kind
                self._numbers.setdefault(name, []).append(number)
            else:
                self.notes.append(f"{path.name}: topic {name} is in {serialization!r}, not in CDR")

    def _connect(self) -> sqlite3.Connection:
        """Open without writing to the recording.

        Beside a write-ahead log SQLite may leave its index, ``-shm``.
        """
        name = f"file:{quote(str(self._path.resolve()))}?mode=ro"
        log = self._path.with_name(self._path.name + "-wal")
        if log.exists() and log.stat().st_size:
            # The recorder did not come to an end: the latest messages are in the write-ahead log.
            connection = sqlite3.connect(name, uri=True, check_same_thread=False)
            try:
                connection.execute("SELECT id FROM topics LIMIT 1").fetchall()
                return connection
            except sqlite3.Error as error:
                connection.close()
                self.notes.append(f"{log.name} cannot be read and is left out: {error}")
        journal = self._path.with_name(self._path.name + "-journal")
        if journal.exists() and journal.stat().st_size:
            # To take it back, the file would have to be written to.
            self.notes.append(f"{journal.name} is there: the last messages may be incomplete")
        connection = sqlite3.connect(f"{name}&immutable=1", uri=True, check_same_thread=False)
        # Without it a file shorter than its header says is refused as a whole.
        connection.execute("PRAGMA writable_schema=ON")
        return connection

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, by their numbers."""
        wanted = set(self._numbers[topic])
        found = [row for row in self._scan() if row[1] in wanted]
        self._rows[topic] = np.array([row[0] for row in found], np.int64)
        times = [row[2] if isinstance(row[2], int) else 0 for row in found]
        return np.array(times, np.int64)

    def _scan(self) -> Iterator[_Row]:
        """Every row that can be reached."""
        last = 0  # the numbers begin at 1
        while True:
            try:
                for row in self._connection.execute(f"{_SELECT} ORDER BY id", (last + 1,)):
                    if row[0] <= last:  # a damaged tree gives rows out of their order
                        continue
                    if row[0] > last + 1:
                        self._note_gap(last + 1, row[0], "they are not there")
                    yield row
                    last = row[0]
                return
            except sqlite3.Error as error:
                behind = self._find_readable(last + 1)
                self._note_gap(last + 1, behind[0] if behind else None, str(error))
            if behind is None:
                return
            yield behind
            last = behind[0]

    def _note_gap(self, first: int, end: int | None, why: str) -> None:
        self._gaps += 1
        if self._gaps <= _NAMED:
            until = "to the end" if end is None else f"up to row {end - 1}"
            self.notes.append(f"{self._path.name}: rows from {first} {until}: {why}")

    def _note_size(self) -> None:
        """Say whether the file is shorter than its header says (SQLite's format, 1.3)."""
        with self._path.open("rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
        page, changes, pages = struct.unpack(">16xH6xII", header[:32])
        promised = (65536 if page == 1 else page) * pages
        if size < promised and struct.unpack_from(">I", header, 92)[0] == changes:
            self.notes.append(f"{self._path.name} is cut off: {size} of {promised} bytes")

    def _find_readable(self, bad: int) -> _Row | None:
        """First row behind a damaged one that can be reached, by steps that double, then halve."""
        low, step = bad, 1
        while (good := self._find_row(low + step)) is None:
            low, step = low + step, 2 * step
            if low > _LARGEST_ID:
                return None
        # Nothing is reached from `low`, `good` is from `low + step`.
        high = low + step
        while low + 1 < high:
            middle = (low + high) // 2
            row = self._find_row(middle)
            if row is None:
                low = middle
            else:
                good, high = row, middle
        return good

    def _find_row(self, number: int) -> _Row | None:
        """First row from a number on; None where the way there is damaged, or there is none."""
        try:
            row: _Row | None = self._connection.execute(
                f"{_SELECT} ORDER BY id LIMIT 1", (number,)
            ).fetchone()
        except sqlite3.Error:
            return None
        return row if row is not None and row[0] >= number else None

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message."""
        number = int(self._rows[topic][place])
        try:
            row = self._connection.execute(
                "SELECT data FROM messages WHERE id = ?", (number,)
            ).fetchone()
        except (sqlite3.Error, MemoryError) as error:
            raise DamagedMessageError(f"{self._path.name}: {error}") from error
        if row is None or not isinstance(row[0], bytes):
            raise DamagedMessageError(f"{self._path.name}: its row holds no message")
        return decompress_message(row[0])

    def deserialize(self, data: bytes | memoryview, kind: str) -> Any:
        """Make a message of CDR."""
        return deserialize_cdr(data, kind)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
