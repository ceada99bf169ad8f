# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags in SQLite, as far as their pages can be read."""

from __future__ import annotations

import os
import sqlite3
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.compression import MAX_PLAIN, decompress_message
from jetson_dnn_rt.cameras.bags.storage import BagFile, DamagedFileError, DamagedMessageError

MAGIC = b"SQLite format 3\x00"

_LARGEST_ID = 1 << 40
"""Where the search for the next readable row ends: no recording has a million million messages."""

MAX_GAPS = 2000
"""Damaged places behind which readable rows are sought; each search takes a millisecond."""

MAX_TOPICS, MAX_NAME = 10_000, 1024
"""Topics of a file, and characters of their names."""

_TICK = 10_000
"""SQLite's steps between two checks of the budget; a row takes about 20."""

_TICKS_FREE, _BYTES_PER_TICK = 200, 2000
"""A damaged tree may lead to the same pages for ever: steps are limited by the file's size."""

_COLUMNS = {
    "topics": {"id", "name", "type", "serialization_format"},
    "messages": {"id", "topic_id", "timestamp", "data"},
}
"""Columns read from rosbag2's tables, whose ``id`` is the number of the row."""

# Only integers are fetched, of whatever else the columns hold.
_SELECT = (
    "SELECT id, CASE typeof(topic_id) WHEN 'integer' THEN topic_id END, "
    "CASE typeof(timestamp) WHEN 'integer' THEN timestamp ELSE 0 END FROM messages WHERE id >= ?"
)

_Row = tuple[int, int | None, int]
"""Number, topic, log time in nanoseconds."""


class SqliteFile(BagFile):
    """A ``.db3`` file of rosbag2; DamagedFileError when not even its topics can be read.

    Rows are taken by their numbers, which count up as messages are recorded: log times may jump.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._log = path.with_name(path.name + "-wal")
        self._numbers: dict[str, list[int]] = {}
        self._rows: dict[str, npt.NDArray[np.int64]] = {}
        self._ticks = 0
        self._size = sum(file.stat().st_size for file in (path, self._log) if file.exists())
        self._connection = self._connect()
        try:
            for table in _COLUMNS:
                self._check_table(table)
            topics = self._connection.execute(
                "SELECT id, name, type, serialization_format FROM topics ORDER BY id LIMIT ?",
                (MAX_TOPICS,),
            ).fetchall()
            self._connection.execute("SELECT id FROM messages LIMIT 1").fetchall()
        except (sqlite3.Error, MemoryError, DamagedFileError) as error:
            self._connection.close()
            if isinstance(error, DamagedFileError):
                raise
            raise DamagedFileError(f"{path.name}: {str(error)[:200]}") from error
        self._note_size()
        for number, name, kind, serialization in topics:
            if not all(isinstance(text, str) and len(text) <= MAX_NAME for text in (name, kind)):
                self.note(f"the name or type of topic {number} is none")
            elif serialization == "cdr":
                self.kinds[name] = kind
                self._numbers.setdefault(name, []).append(number)
            else:
                self.note(f"topic {name} is in {serialization!r}, not in CDR")

    def _connect(self) -> sqlite3.Connection:
        """Open without writing to the recording.

        Beside a write-ahead log SQLite may leave its index, ``-shm``.
        """
        name = f"file:{quote(os.fsencode(self.path.resolve()))}?mode=ro"
        log = self._log
        if log.exists() and log.stat().st_size:
            # The recorder did not finish: the latest messages are in the write-ahead log.
            connection = self._guard(name)
            try:
                connection.execute("SELECT id FROM topics LIMIT 1").fetchall()
                return connection
            except sqlite3.Error as error:
                connection.close()
                self.notes.append(f"{log.name} cannot be read and is left out: {error}")
        journal = self.path.with_name(self.path.name + "-journal")
        if journal.exists() and journal.stat().st_size:
            # Rolling it back would write to the file.
            self.notes.append(f"{journal.name} is there: the last messages may be incomplete")
        connection = self._guard(f"{name}&immutable=1")
        # Without it a file shorter than its header says is refused as a whole.
        connection.execute("PRAGMA writable_schema=ON")
        return connection

    def _guard(self, name: str) -> sqlite3.Connection:
        """Open a file whose schema and pages are not trusted."""
        connection = sqlite3.connect(name, uri=True, check_same_thread=False)
        connection.execute("PRAGMA trusted_schema=OFF")
        if hasattr(connection, "setlimit"):  # Python 3.11
            # Nothing in a file is longer than the file, but its pages may claim so.
            longest = min(MAX_PLAIN, max(1 << 20, self._size))
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        self._allow()
        connection.set_progress_handler(self._tick, _TICK)
        return connection

    def _allow(self) -> None:
        """Allow the next statements as many steps as the file can need."""
        self._ticks = _TICKS_FREE + self._size // _BYTES_PER_TICK

    def _tick(self) -> int:
        """Called by SQLite; any value but 0 aborts the statement."""
        self._ticks -= 1
        return int(self._ticks < 0)

    def _check_table(self, table: str) -> None:
        """Refuse what only looks like a table of rosbag2: views, virtual tables, computed columns.

        SQLite is asked how it understood the schema, whatever the schema calls it. A view has no
        primary key, and neither has a virtual table built into SQLite.
        """
        found = self._connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        names = {name for _, name, *_ in found}
        keys = [(name, kind) for _, name, kind, _, _, key, _ in found if key]
        if (
            not names >= _COLUMNS[table]
            or keys != [("id", "INTEGER")]
            or any(hidden for *_, hidden in found)
        ):
            raise DamagedFileError(f"{self.path.name}: {table!r} is not a table of rosbag2")

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, by their numbers."""
        wanted = set(self._numbers[topic])
        numbers, times = array("q"), array("q")
        self._allow()
        for number, of_topic, time_ns in self._scan():
            if of_topic in wanted:
                numbers.append(number)
                times.append(time_ns)
        self._rows[topic] = np.array(numbers, np.int64)
        return np.array(times, np.int64)

    def _scan(self) -> Iterator[_Row]:
        """Every row that can be reached."""
        last, gaps = 0, 0  # the numbers begin at 1
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
            except (sqlite3.Error, MemoryError) as error:
                gaps += 1
                go_on = gaps <= MAX_GAPS and self._ticks >= 0
                behind = self._find_readable(last + 1) if go_on else None
                self._note_gap(last + 1, behind[0] if behind else None, str(error))
            if behind is None:
                return
            yield behind
            last = behind[0]

    def _note_gap(self, first: int, end: int | None, why: str) -> None:
        until = "to the end" if end is None else f"up to row {end - 1}"
        self.note(f"rows from {first} {until}: {why}")

    def _note_size(self) -> None:
        """Note when the file is shorter than its header says (SQLite's format, 1.3)."""
        with self.path.open("rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
        if len(header) < 100:  # all of it is in the write-ahead log
            return
        page, changes, pages = struct.unpack(">16xH6xII", header[:32])
        promised = (65536 if page == 1 else page) * pages
        if size < promised and struct.unpack_from(">I", header, 92)[0] == changes:
            self.notes.append(f"{self.path.name} is cut off: {size} of {promised} bytes")

    def _find_readable(self, bad: int) -> _Row | None:
        """First row that can be reached after a damaged one: steps double, then halve."""
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
        except (sqlite3.Error, MemoryError):
            return None
        return row if row is not None and row[0] >= number else None

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message."""
        number = int(self._rows[topic][place])
        self._allow()
        try:
            # The length is in the row's head: what is too long is not fetched.
            row = self._connection.execute(
                "SELECT CASE WHEN typeof(data) = 'blob' AND length(data) <= ? THEN data END "
                "FROM messages WHERE id = ?",
                (min(MAX_PLAIN, self._size), number),
            ).fetchone()
        except (sqlite3.Error, MemoryError) as error:
            raise DamagedMessageError(f"{self.path.name}: {error}") from error
        if row is None or not isinstance(row[0], bytes):
            raise DamagedMessageError(
                f"{self.path.name}: its row holds no message, or one longer than "
                f"{min(MAX_PLAIN, self._size)} bytes"
            )
        return decompress_message(row[0])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
