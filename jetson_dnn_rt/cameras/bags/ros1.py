# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags of ROS 1, from the first byte on: the index of a closed bag helps, but is not needed.

A recorder that is killed leaves ``.bag.active``, without that index. Records and their fields:
http://wiki.ros.org/Bags/Format/2.0.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.compression import MAX_PLAIN, BadCompressionError, decompress
from jetson_dnn_rt.cameras.bags.storage import (
    BagFile,
    DamagedFileError,
    DamagedMessageError,
    deserialize_ros1,
    name_kind,
)

MAGIC = b"#ROSBAG V2.0\n"

_MESSAGE, _BAG, _INDEX, _CHUNK, _CHUNK_INFO, _CONNECTION = 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
_LENGTH = struct.Struct("<I")
_INDEX_ENTRY = np.dtype([("s", "<u4"), ("ns", "<u4"), ("offset", "<u4")])

MAX_HEAD = 1 << 16
"""Bytes of the fields of a record."""

MAX_RECORD = 16 << 20
"""Bytes of a connection, whose message definition is long, or of a chunk's place."""

MAX_INDICES = 64 << 20
"""Bytes of all indices of one chunk: with more, the chunk itself is scanned."""

MAX_NAMES, MAX_NAME = 10_000, 1024
"""Connections of a file, and bytes of their names."""

SCAN_FREE, SCAN_RATIO = 256 << 20, 100
"""Bytes of chunks without an index that are scanned, and how many more for each byte of the file:
this is where bombs cost time."""

SCAN_RECORD = 256
"""Bytes that a record counts in addition: reading its head takes as long."""


class _Chunk(NamedTuple):
    """Where and how the records of a chunk are stored."""

    start: int
    stored: int
    compression: str
    size: int | None  # of a chunk that was not closed, which is the last: unknown


class _Head(NamedTuple):
    """Kind and fields of a record, where its data begin, and how long they are."""

    code: int
    fields: dict[bytes, bytes]
    begin: int
    length: int


class Ros1File(BagFile):
    """A ``.bag`` file; DamagedFileError when it is not one.

    Topics whose message types are not `wanted` have an empty index.
    """

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        super().__init__(path)
        self._wanted = wanted
        self._connections: dict[int, str] = {}
        # Of each connection, message after message: log time, byte at which its chunk or record
        # begins, its place in the chunk (-1: no chunk).
        self._found: dict[int, array[int]] = {}
        self._chunks: dict[int, _Chunk] = {}
        self._rows: dict[str, npt.NDArray[np.int64]] = {}
        self._kept: tuple[int, memoryview | _DamagedRecordError] | None = None
        self._file = path.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        self._scan_left = SCAN_FREE + SCAN_RATIO * self._size
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise DamagedFileError(f"{path.name} does not begin as a bag of ROS 1 does")
            self._walk(self._read_index())
            if self.notes and not self._connections:
                raise DamagedFileError("; ".join(self.notes))
        except BaseException:
            self._file.close()
            raise

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, by which this format orders them."""
        found = [
            np.frombuffer(self._found[number], np.int64).reshape(-1, 3)
            for number, name in self._connections.items()
            if name == topic and number in self._found
        ]
        rows = np.concatenate(found) if found else np.empty((0, 3), np.int64)
        self._rows[topic] = rows = rows[np.lexsort(rows.T[::-1])]
        return rows[:, 0].copy()

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message; the chunk that holds it is kept for the next."""
        _, position, offset = self._rows[topic][place].tolist()
        try:
            if offset < 0:
                head = self._read_head(position)
                return self._read(head.begin, head.length)
            records = self._decompress(position)
            head = _read_head(records, offset)
            if head.code != _MESSAGE or self._topic_of(head.fields) != topic:
                raise _DamagedRecordError("its chunk holds no message where the index says")
            return records[head.begin : head.begin + head.length]
        except _DamagedRecordError as error:
            raise DamagedMessageError(f"{self.path.name}: {error}") from error

    def deserialize(self, data: bytes | memoryview, kind: str, topic: str) -> Any:
        """Make a message of the format of ROS 1."""
        return deserialize_ros1(data, kind)

    def close(self) -> None:
        """Close the file."""
        self._kept = None
        self._file.close()

    def _read(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def _read_head(self, position: int) -> _Head:
        """Read the head of the record at one byte of the file."""
        start = self._read(position, _LENGTH.size)
        if len(start) < _LENGTH.size:
            raise _DamagedRecordError("the file ends in the head of a record")
        (length,) = _LENGTH.unpack(start)
        if length > MAX_HEAD:
            raise _DamagedRecordError(f"a head of {length} bytes, at most {MAX_HEAD} are accepted")
        head = _read_head(memoryview(start + self._file.read(length + _LENGTH.size)), 0, cut=True)
        return head._replace(begin=position + head.begin)

    def _read_data(self, head: _Head, most: int) -> bytes:
        if head.length > most:
            text = f"a record of {head.length} bytes, at most {most} are accepted"
            raise _DamagedRecordError(text)
        data = self._read(head.begin, head.length)
        if len(data) < head.length:
            raise _DamagedRecordError("the file ends in a record")
        return data

    def _read_index(self) -> list[int]:
        """Read topics, messages by topic, and where chunks begin, if the file was closed."""
        starts: list[int] = []
        try:
            head = self._read_head(len(MAGIC))
            if head.code != _BAG:
                raise _DamagedRecordError("the first record is not that of the bag")
            position = _number(head.fields, b"index_pos")
            if not len(MAGIC) < position < self._size:
                lead = f"{self.path.name} has no end: "
                self.notes.append(f"{lead}it was not closed, or is cut off")
                return []
            counts: dict[int, int] = {}
            while position < self._size:
                head = self._read_head(position)
                if head.code == _CONNECTION:
                    self._define(head.fields, memoryview(self._read_data(head, MAX_RECORD)))
                elif head.code == _CHUNK_INFO:
                    starts.append(_number(head.fields, b"chunk_pos"))
                    data = self._read_data(head, MAX_RECORD)
                    for number, count in struct.iter_unpack("<II", data[: len(data) // 8 * 8]):
                        counts[number] = counts.get(number, 0) + count
                position = head.begin + head.length
            for number, count in counts.items():
                if number in self._connections:
                    topic = self._connections[number]
                    self.expected[topic] = self.expected.get(topic, 0) + count
        except (_DamagedRecordError, struct.error) as error:
            self.note(f"its index is damaged: {error}")
        return sorted(starts)

    def _walk(self, starts: list[int]) -> None:
        """Find every message of the file, skipping damaged parts."""
        position = len(MAGIC)
        chunk: int | None = None
        indices: list[tuple[dict[bytes, bytes], bytes]] = []
        indexed = 0
        while position < self._size:
            try:
                head = self._read_head(position)
                if chunk is not None and head.code != _INDEX:
                    self._enter_chunk(chunk, indices)
                    chunk = None
                if head.code == _CHUNK:
                    self._chunks[position] = self._read_chunk_head(head)
                    chunk, indices, indexed = position, [], 0
                    if self._chunks[position].size is None:
                        break
                if head.begin + head.length > self._size:
                    raise _DamagedRecordError("the file ends in a record")
                if head.code == _INDEX and chunk is not None:
                    indexed += head.length
                    if indexed <= MAX_INDICES:
                        indices.append((head.fields, self._read_data(head, MAX_INDICES)))
                elif head.code == _MESSAGE:
                    # Of a chunk that the recorder did not close.
                    self._enter_message(position, -1, head.fields)
                elif head.code == _CONNECTION:
                    self._define(head.fields, memoryview(self._read_data(head, MAX_RECORD)))
                position = head.begin + head.length
            except (_DamagedRecordError, struct.error) as error:
                if chunk is not None:
                    self._enter_chunk(chunk, [])
                    chunk = None
                after = bisect_right(starts, position)
                behind = starts[after] if after < len(starts) else None
                until = "to the end" if behind is None else f"to byte {behind}"
                self.note(f"cannot be read from byte {position} {until}: {error}")
                if behind is None:
                    return
                position = behind
        if chunk is not None:
            self._enter_chunk(chunk, indices)

    def _read_chunk_head(self, head: _Head) -> _Chunk:
        """Where a chunk's records are; the sizes are written when it is closed."""
        compression = _text(head.fields, b"compression")
        size, rest = _number(head.fields, b"size"), self._size - head.begin
        if not head.length and not size and compression != "none":
            return _Chunk(head.begin, rest, compression, None)
        # The records of an open chunk that is not compressed follow as if there were no chunk.
        return _Chunk(head.begin, min(head.length, rest), compression, size)

    def _enter_chunk(self, position: int, indices: list[tuple[dict[bytes, bytes], bytes]]) -> None:
        """Find a chunk's messages by its indices; without them, by scanning all of it."""
        if indices and self._enter_indices(position, indices):
            return
        try:
            if self._scan_left < 0:
                return  # noted already
            records = self._decompress(position)
            self._scan_left -= len(records)
            for offset, head in _split(records):
                self._scan_left -= SCAN_RECORD
                if self._scan_left < 0:
                    text = "it is too large for a file of this size: not all is scanned"
                    raise _DamagedRecordError(text)
                if head.code == _MESSAGE:
                    self._enter_message(position, offset, head.fields)
                elif head.code == _CONNECTION:
                    self._define(head.fields, records[head.begin : head.begin + head.length])
            if len(records) < (self._chunks[position].size or 0):
                raise _DamagedRecordError("only its beginning can be read")
        except (_DamagedRecordError, struct.error) as error:
            self.note(f"the chunk at byte {position}: {error}")

    def _enter_indices(
        self, position: int, indices: list[tuple[dict[bytes, bytes], bytes]]
    ) -> bool:
        """Enter the messages of a chunk's indices; False when one cannot be understood."""
        found: dict[int, npt.NDArray[np.int64]] = {}
        for fields, data in indices:
            try:
                number = _number(fields, b"conn")
                known = _number(fields, b"ver") == 1 and number in self._connections
            except (_DamagedRecordError, struct.error):
                return False
            if not known or len(data) % _INDEX_ENTRY.itemsize:
                return False
            if not self._is_wanted(number):
                continue
            entries = np.frombuffer(data, _INDEX_ENTRY)
            rows = np.empty((len(entries), 3), np.int64)
            rows[:, 0] = entries["s"] * np.int64(1_000_000_000) + entries["ns"]
            rows[:, 1] = position
            rows[:, 2] = entries["offset"]
            found[number] = rows
        for number, rows in found.items():
            self._found.setdefault(number, array("q")).frombytes(rows.tobytes())
        return True

    def _enter_message(self, position: int, offset: int, fields: dict[bytes, bytes]) -> None:
        number = _number(fields, b"conn")
        if self._is_wanted(number):
            seconds, nanoseconds = struct.unpack("<II", fields.get(b"time", b""))
            row = (seconds * 1_000_000_000 + nanoseconds, position, offset)
            self._found.setdefault(number, array("q")).extend(row)

    def _topic_of(self, fields: dict[bytes, bytes]) -> str | None:
        return self._connections.get(_number(fields, b"conn"))

    def _is_wanted(self, number: int) -> bool:
        """Whether messages of a connection are indexed: an IMU has millions in a recording."""
        return self.kinds.get(self._connections.get(number, ""), "") in self._wanted

    def _define(self, fields: dict[bytes, bytes], data: memoryview) -> None:
        """Enter a connection: its topic, and the type of its messages."""
        try:
            number = _number(fields, b"conn")
            if number in self._connections:
                return
            if len(self._connections) >= MAX_NAMES:
                raise _DamagedRecordError(f"there are more than {MAX_NAMES}")
            topic = _text(fields, b"topic")
            self.kinds[topic] = name_kind(_text(_split_fields(data), b"type"))
            self._connections[number] = topic
        except (_DamagedRecordError, struct.error) as error:
            self.note(f"a connection is left out: {error}")

    def _decompress(self, position: int) -> memoryview:
        """Records of a chunk: all of them, or as many as there are of one that is cut off."""
        if self._kept is None or self._kept[0] != position:
            self._kept = None  # two chunks are not held at once
            try:
                self._kept = (position, self._read_chunk(self._chunks[position]))
            except _DamagedRecordError as error:
                self._kept = (position, error)
        records = self._kept[1]
        if isinstance(records, _DamagedRecordError):
            raise records
        return records

    def _read_chunk(self, chunk: _Chunk) -> memoryview:
        if chunk.stored > MAX_PLAIN:
            raise _DamagedRecordError(f"{chunk.stored} bytes, more than the {MAX_PLAIN} accepted")
        stored = self._read(chunk.start, chunk.stored)
        if chunk.compression == "none":
            return memoryview(stored)
        try:
            return decompress(stored, compression=chunk.compression, size=chunk.size)
        except BadCompressionError as error:
            raise _DamagedRecordError(str(error)) from error


class _DamagedRecordError(Exception):
    """A record, or a chunk of records, is not what it should be."""


def _read_head(records: memoryview, offset: int, *, cut: bool = False) -> _Head:
    """Read the head of a record; `cut`: its data need not be in `records`."""
    (size,) = _LENGTH.unpack(_take(records, offset, _LENGTH.size))
    if size > MAX_HEAD:
        raise _DamagedRecordError(f"a head of {size} bytes, at most {MAX_HEAD} are accepted")
    fields = _split_fields(_take(records, offset + _LENGTH.size, size))
    begin = offset + 2 * _LENGTH.size + size
    (length,) = _LENGTH.unpack(_take(records, begin - _LENGTH.size, _LENGTH.size))
    if not cut and begin + length > len(records):
        raise _DamagedRecordError("it ends in a record")
    code = fields.get(b"op", b"")
    if len(code) != 1 or not _MESSAGE <= code[0] <= _CONNECTION:
        raise _DamagedRecordError(f"{code[:8]!r} is not a kind of record")
    return _Head(code[0], fields, begin, length)


def _take(records: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(records):
        raise _DamagedRecordError("it ends in the head of a record")
    return records[offset : offset + size]


def _split_fields(head: memoryview) -> dict[bytes, bytes]:
    """Split the fields of a head by their names."""
    fields: dict[bytes, bytes] = {}
    place = 0
    while place < len(head):
        (length,) = _LENGTH.unpack(_take(head, place, _LENGTH.size))
        name, is_field, value = bytes(_take(head, place + _LENGTH.size, length)).partition(b"=")
        if not is_field:
            raise _DamagedRecordError("a field of a record has no name")
        fields[name] = value
        place += _LENGTH.size + length
    return fields


def _split(records: memoryview) -> Iterator[tuple[int, _Head]]:
    """Place and head of the records of a chunk."""
    offset = 0
    while offset < len(records):
        head = _read_head(records, offset)
        yield offset, head
        offset = head.begin + head.length


def _number(fields: dict[bytes, bytes], name: bytes) -> int:
    value = fields.get(name, b"")
    if not 1 <= len(value) <= 8:
        raise _DamagedRecordError(f"a record without {name.decode()}")
    return int.from_bytes(value, "little")


def _text(fields: dict[bytes, bytes], name: bytes) -> str:
    value = fields.get(name)
    if value is None:
        raise _DamagedRecordError(f"a record without {name.decode()}")
    if len(value) > MAX_NAME:
        text = f"a name of {len(value)} bytes, at most {MAX_NAME} are accepted"
        raise _DamagedRecordError(text)
    return value.decode("utf-8", "replace")
