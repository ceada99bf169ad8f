# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags of ROS 1, from the first byte on: the index of a closed bag helps, but is not needed.

A recorder that is killed leaves ``.bag.active``, without that index. Records and their fields:
http://wiki.ros.org/Bags/Format/2.0.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.chunked import (
    MAX_INDICES,
    MAX_NAME,
    MAX_NAMES,
    MAX_RECORD,
    Chunk,
    ChunkedFile,
    DamagedRecordError,
)
from jetson_dnn_rt.cameras.bags.storage import DamagedMessageError, deserialize_ros1, name_kind

MAGIC = b"#ROSBAG V2.0\n"

_MESSAGE, _BAG, _INDEX, _CHUNK, _CHUNK_INFO, _CONNECTION = 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
_LENGTH = struct.Struct("<I")
_INDEX_ENTRY = np.dtype([("s", "<u4"), ("ns", "<u4"), ("offset", "<u4")])

MAX_HEAD = 1 << 16
"""Bytes of the fields of a record."""


class _Head(NamedTuple):
    """Kind and fields of a record, where its data begin, and how long they are."""

    code: int
    fields: dict[bytes, bytes]
    begin: int
    length: int


_Index = tuple[dict[bytes, bytes], bytes]
"""Fields and data of an index."""


class Ros1File(ChunkedFile[_Index]):
    """A ``.bag`` file; see `ChunkedFile`."""

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        super().__init__(path, wanted, MAGIC)

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message; the chunk that holds it is kept for the next."""
        position, offset, _ = self._rows[topic][place].tolist()
        try:
            if offset < 0:
                head = self._read_head(position)
                return self._read(head.begin, head.length)
            records = self._decompress(position)
            head = _read_head(records, offset)
            if head.code != _MESSAGE or self._topic_of(head.fields) != topic:
                raise DamagedRecordError("its chunk holds no message where the index says")
            return records[head.begin : head.begin + head.length]
        except DamagedRecordError as error:
            raise DamagedMessageError(f"{self.path.name}: {error}") from error

    def deserialize(self, data: bytes | memoryview, kind: str, topic: str) -> Any:
        """Make a message of the format of ROS 1."""
        return deserialize_ros1(data, kind)

    def _read_head(self, position: int) -> _Head:
        """Read the head of the record at one byte of the file."""
        start = self._read(position, _LENGTH.size)
        if len(start) < _LENGTH.size:
            raise DamagedRecordError("the file ends in the head of a record")
        (length,) = _LENGTH.unpack(start)
        if length > MAX_HEAD:
            raise DamagedRecordError(f"a head of {length} bytes, at most {MAX_HEAD} are accepted")
        head = _read_head(memoryview(start + self._file.read(length + _LENGTH.size)), 0, cut=True)
        return head._replace(begin=position + head.begin)

    def _read_data(self, head: _Head, most: int) -> bytes:
        if head.length > most:
            text = f"a record of {head.length} bytes, at most {most} are accepted"
            raise DamagedRecordError(text)
        data = self._read(head.begin, head.length)
        if len(data) < head.length:
            raise DamagedRecordError("the file ends in a record")
        return data

    def _read_summary(self) -> list[int]:
        """Read topics, messages by topic, and where chunks begin, if the file was closed."""
        starts: list[int] = []
        try:
            head = self._read_head(len(MAGIC))
            if head.code != _BAG:
                raise DamagedRecordError("the first record is not that of the bag")
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
            self._expect(counts)
        except (DamagedRecordError, struct.error) as error:
            self.note(f"its index is damaged: {error}")
        return sorted(starts)

    def _walk(self, starts: Sequence[int]) -> None:
        """Find every message of the file, skipping damaged parts."""
        position = len(MAGIC)
        chunk: int | None = None
        indices: list[_Index] = []
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
                    raise DamagedRecordError("the file ends in a record")
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
            except (DamagedRecordError, struct.error) as error:
                if chunk is not None:
                    self._enter_chunk(chunk, [])
                    chunk = None
                position = self._skip_damage(position, starts, error)
        if chunk is not None:
            self._enter_chunk(chunk, indices)

    def _read_chunk_head(self, head: _Head) -> Chunk:
        """Where a chunk's records are; the sizes are written when it is closed."""
        compression = _text(head.fields, b"compression")
        compression = "" if compression == "none" else compression
        size, rest = _number(head.fields, b"size"), self._size - head.begin
        if not head.length and not size and compression:
            return Chunk(head.begin, rest, compression, None)
        # The records of an open chunk that is not compressed follow as if there were no chunk.
        return Chunk(head.begin, min(head.length, rest), compression, size)

    def _order(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """By their log times, as the tools of ROS 1 do."""
        return np.lexsort(rows.T[[1, 0, 2]])

    def _scan(self, position: int, records: memoryview) -> None:
        for offset, head in _split(records):
            self._count_scanned()
            if head.code == _MESSAGE:
                self._enter_message(position, offset, head.fields)
            elif head.code == _CONNECTION:
                self._define(head.fields, records[head.begin : head.begin + head.length])
        if len(records) < (self._chunks[position].size or 0):
            raise DamagedRecordError("only its beginning can be read")

    def _enter_indices(self, position: int, indices: Sequence[_Index]) -> bool:
        found: dict[int, npt.NDArray[np.void]] = {}
        for fields, data in indices:
            try:
                number = _number(fields, b"conn")
                known = _number(fields, b"ver") == 1 and number in self._topics
            except (DamagedRecordError, struct.error):
                return False
            if not known or len(data) % _INDEX_ENTRY.itemsize:
                return False
            if not self._is_wanted(number):
                continue
            found[number] = np.frombuffer(data, _INDEX_ENTRY)
        for number, entries in found.items():
            times_ns = entries["s"] * np.int64(1_000_000_000) + entries["ns"]
            self._enter_all(number, position, entries["offset"], times_ns)
        return True

    def _enter_message(self, position: int, offset: int, fields: dict[bytes, bytes]) -> None:
        number = _number(fields, b"conn")
        if self._is_wanted(number):
            seconds, nanoseconds = struct.unpack("<II", fields.get(b"time", b""))
            self._enter(number, position, offset, seconds * 1_000_000_000 + nanoseconds)

    def _topic_of(self, fields: dict[bytes, bytes]) -> str | None:
        return self._topics.get(_number(fields, b"conn"))

    def _define(self, fields: dict[bytes, bytes], data: memoryview) -> None:
        """Enter a connection: its topic, and the type of its messages."""
        try:
            number = _number(fields, b"conn")
            if number in self._topics:
                return
            if len(self._topics) >= MAX_NAMES:
                raise DamagedRecordError(f"there are more than {MAX_NAMES}")
            topic = _text(fields, b"topic")
            self.kinds[topic] = name_kind(_text(_split_fields(data), b"type"))
            self._topics[number] = topic
        except (DamagedRecordError, struct.error) as error:
            self.note(f"a connection is left out: {error}")


def _read_head(records: memoryview, offset: int, *, cut: bool = False) -> _Head:
    """Read the head of a record; `cut`: its data need not be in `records`."""
    (size,) = _LENGTH.unpack(_take(records, offset, _LENGTH.size))
    if size > MAX_HEAD:
        raise DamagedRecordError(f"a head of {size} bytes, at most {MAX_HEAD} are accepted")
    fields = _split_fields(_take(records, offset + _LENGTH.size, size))
    begin = offset + 2 * _LENGTH.size + size
    (length,) = _LENGTH.unpack(_take(records, begin - _LENGTH.size, _LENGTH.size))
    if not cut and begin + length > len(records):
        raise DamagedRecordError("it ends in a record")
    code = fields.get(b"op", b"")
    if len(code) != 1 or not _MESSAGE <= code[0] <= _CONNECTION:
        raise DamagedRecordError(f"{code[:8]!r} is not a kind of record")
    return _Head(code[0], fields, begin, length)


def _take(records: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(records):
        raise DamagedRecordError("it ends in the head of a record")
    return records[offset : offset + size]


def _split_fields(head: memoryview) -> dict[bytes, bytes]:
    """Split the fields of a head by their names."""
    fields: dict[bytes, bytes] = {}
    place = 0
    while place < len(head):
        (length,) = _LENGTH.unpack(_take(head, place, _LENGTH.size))
        name, is_field, value = bytes(_take(head, place + _LENGTH.size, length)).partition(b"=")
        if not is_field:
            raise DamagedRecordError("a field of a record has no name")
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
        raise DamagedRecordError(f"a record without {name.decode()}")
    return int.from_bytes(value, "little")


def _text(fields: dict[bytes, bytes], name: bytes) -> str:
    value = fields.get(name)
    if value is None:
        raise DamagedRecordError(f"a record without {name.decode()}")
    if len(value) > MAX_NAME:
        text = f"a name of {len(value)} bytes, at most {MAX_NAME} are accepted"
        raise DamagedRecordError(text)
    return value.decode("utf-8", "replace")
