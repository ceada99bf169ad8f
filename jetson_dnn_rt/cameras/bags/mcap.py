# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags in MCAP, from the first byte on: neither footer nor summary is needed.

Records and their fields: https://mcap.dev/spec (version 0).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

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
from jetson_dnn_rt.cameras.bags.compression import MAX_PLAIN, decompress_message
from jetson_dnn_rt.cameras.bags.storage import DamagedMessageError, deserialize_ros1, name_kind

MAGIC = b"\x89MCAP0\r\n"

_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _MESSAGE_INDEX = 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
_CHUNK_INDEX, _STATISTICS, _DATA_END = 0x08, 0x0B, 0x0F
_HEAD = struct.Struct("<BQ")
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_CHUNK_HEAD = struct.Struct("<QQQII")
_FOOTER_SIZE = _HEAD.size + 20 + len(MAGIC)
_LATEST_NS = (1 << 63) - 1
_INDEX_ENTRY = np.dtype([("time", "<u8"), ("offset", "<u8")])


class McapFile(ChunkedFile[memoryview]):
    """An ``.mcap`` file of rosbag2; see `ChunkedFile`."""

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        self._schemas: dict[int, str] = {}
        self._of_ros1: set[str] = set()
        super().__init__(path, wanted, MAGIC)

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message; the chunk that holds it is kept for the next."""
        position, offset, _ = self._rows[topic][place].tolist()
        try:
            if offset < 0:
                record = memoryview(self._record(position, MAX_PLAIN))
            else:
                record = self._record_of(self._decompress(position), offset)
        except DamagedRecordError as error:
            raise DamagedMessageError(f"{self.path.name}: {error}") from error
        return decompress_message(record[_MESSAGE_HEAD.size :])

    def deserialize(self, data: bytes | memoryview, kind: str, topic: str) -> Any:
        """Make a message of CDR, or of the format of ROS 1."""
        if topic in self._of_ros1:
            return deserialize_ros1(data, kind)
        return super().deserialize(data, kind, topic)

    def _record(self, position: int, most: int = MAX_RECORD) -> bytes:
        """Contents of the record at one byte of the file."""
        head = self._read(position, _HEAD.size)
        if len(head) < _HEAD.size:
            raise DamagedRecordError("the file ends in the head of a record")
        length = _HEAD.unpack(head)[1]
        if position + _HEAD.size + length > self._size:
            raise DamagedRecordError("the file ends in a record")
        if length > most:
            raise DamagedRecordError(f"a record of {length} bytes, at most {most} are accepted")
        return self._file.read(length)

    @staticmethod
    def _record_of(records: memoryview, offset: int) -> memoryview:
        """Contents of the message at one byte of a chunk's records."""
        if offset + _HEAD.size > len(records):
            raise DamagedRecordError("only the beginning of its chunk can be read")
        code, length = _HEAD.unpack_from(records, offset)
        begin = offset + _HEAD.size
        if code == _MESSAGE and _MESSAGE_HEAD.size <= length <= len(records) - begin:
            return records[begin : begin + length]
        raise DamagedRecordError("its chunk holds no message where the index says")

    def _read_summary(self) -> list[int]:
        """Count messages by topic and find where chunks begin, if the file was closed."""
        end = self._size - _FOOTER_SIZE
        tail = self._read(max(end, 0), _FOOTER_SIZE)
        if end < 0 or tail[-len(MAGIC) :] != MAGIC or tail[0] != _FOOTER:
            self.notes.append(f"{self.path.name} has no end: it was not closed, or is cut off")
            return []
        (position,) = struct.unpack_from("<Q", tail, _HEAD.size)
        starts: list[int] = []
        counts: dict[int, int] = {}
        try:
            while position and position < end:
                code, length = _HEAD.unpack(self._read(position, _HEAD.size))
                if code in (_SCHEMA, _CHANNEL, _CHUNK_INDEX, _STATISTICS):
                    content = memoryview(self._record(position))
                    self._define(code, content)
                    if code == _CHUNK_INDEX:
                        starts.append(struct.unpack_from("<Q", content, 16)[0])
                    elif code == _STATISTICS:
                        (size,) = struct.unpack_from("<I", content, 42)
                        counts = dict(struct.iter_unpack("<HQ", content[46 : 46 + size]))
                position += _HEAD.size + length
        except (struct.error, DamagedRecordError, UnicodeDecodeError) as error:
            self.note(f"its summary is damaged: {error}")
        self._expect(counts)
        return sorted(starts)

    def _walk(self, starts: Sequence[int]) -> None:
        """Find every message of the data section, skipping damaged parts."""
        position = len(MAGIC)
        indices: list[memoryview] = []
        indexed = 0
        chunk: int | None = None
        while position < self._size:
            try:
                head = self._read(position, _HEAD.size)
                if len(head) < _HEAD.size:
                    raise DamagedRecordError("the file ends in the head of a record")
                code, length = _HEAD.unpack(head)
                if chunk is not None and code != _MESSAGE_INDEX:
                    self._enter_chunk(chunk, indices)
                    chunk = None
                    self._file.seek(position + _HEAD.size)
                if code in (_DATA_END, _FOOTER):
                    return
                _check_kind(code)
                if code == _CHUNK:
                    try:
                        self._chunks[position] = self._read_chunk_head(position, length)
                        chunk, indices, indexed = position, [], 0
                    except (DamagedRecordError, UnicodeDecodeError) as error:
                        self.note(f"the chunk at byte {position}: {error}")
                if position + _HEAD.size + length > self._size:
                    raise DamagedRecordError("the file ends in a record")
                if code == _MESSAGE_INDEX:
                    indexed += length
                    if indexed <= MAX_INDICES:
                        indices.append(memoryview(self._file.read(length)))
                    else:
                        indices = []
                elif code == _MESSAGE:
                    self._enter_message(position, -1, self._read_exactly(_MESSAGE_HEAD.size))
                elif code in (_SCHEMA, _CHANNEL):
                    self._define(code, memoryview(self._record(position)))
                position += _HEAD.size + length
            except (DamagedRecordError, struct.error, UnicodeDecodeError) as error:
                if chunk is not None:
                    self._enter_chunk(chunk, ())
                    chunk = None
                position = self._skip_damage(position, starts, error)
        if chunk is not None:
            self._enter_chunk(chunk, ())

    def _read_exactly(self, size: int) -> bytes:
        content = self._file.read(size)
        if len(content) < size:
            raise DamagedRecordError("the file ends in a record")
        return content

    def _read_chunk_head(self, position: int, length: int) -> Chunk:
        content = self._read_exactly(_CHUNK_HEAD.size)
        _, _, size, crc, letters = _CHUNK_HEAD.unpack(content)
        if _CHUNK_HEAD.size + letters + 8 > length or letters > MAX_NAME:
            raise DamagedRecordError("it is shorter than its head")
        compression = self._read_exactly(letters).decode()
        (stored,) = struct.unpack("<Q", self._read_exactly(8))
        start = self._file.tell()
        there = min(stored, self._size - start, position + _HEAD.size + length - start)
        return Chunk(start, there, compression, size, crc if there == stored else 0)

    def _order(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """As they were written."""
        return np.lexsort(rows.T[::-1])

    def _scan(self, position: int, records: memoryview) -> None:
        for code, offset, content in _split(records):
            self._count_scanned()
            if code == _MESSAGE:
                self._enter_message(position, offset, content)
            else:
                self._define(code, content)

    def _enter_indices(self, position: int, indices: Sequence[memoryview]) -> bool:
        found: dict[int, npt.NDArray[np.void]] = {}
        for content in indices:
            if len(content) < 6:
                return False
            number, size = struct.unpack_from("<HI", content)
            if size % _INDEX_ENTRY.itemsize or size > len(content) - 6:
                return False
            if size and number not in self._topics:
                return False
            if not self._is_wanted(number):
                continue
            found[number] = np.frombuffer(content[6 : 6 + size], _INDEX_ENTRY)
        for number, entries in found.items():
            offsets = np.minimum(entries["offset"], _LATEST_NS)
            self._enter_all(number, position, offsets, np.minimum(entries["time"], _LATEST_NS))
        return True

    def _enter_message(self, position: int, offset: int, content: bytes | memoryview) -> None:
        number, _, time_ns, _ = _MESSAGE_HEAD.unpack_from(content)
        if self._is_wanted(number):
            self._enter(number, position, offset, min(time_ns, _LATEST_NS))

    def _define(self, code: int, content: memoryview) -> None:
        """Enter a schema or a channel."""
        try:
            if max(len(self._schemas), len(self._topics)) > MAX_NAMES:
                raise DamagedRecordError(f"there are more than {MAX_NAMES}")
            if code == _SCHEMA:
                (number,) = struct.unpack_from("<H", content)
                self._schemas[number] = _string(content, 2)[0]
            elif code == _CHANNEL:
                number, schema = struct.unpack_from("<HH", content)
                topic, behind = _string(content, 4)
                encoding = _string(content, behind)[0]
                if number in self._topics:
                    return
                self._topics[number] = topic
                kind = self._schemas.get(schema, "")
                if encoding in ("cdr", "ros1"):
                    # Some writers leave out what ROS 2 has in the middle of the name.
                    self.kinds[topic] = name_kind(kind)
                    self._of_ros1 |= {topic} if encoding == "ros1" else set()
                else:
                    self.note(
                        f"topic {topic} ({kind}) is in {encoding!r}: messages of ROS are read, in "
                        "'cdr' or 'ros1'"
                    )
        except (DamagedRecordError, struct.error, UnicodeDecodeError) as error:
            self.note(f"a schema or channel is left out: {error}")


def _check_kind(code: int) -> None:
    if not 0x01 <= code <= _DATA_END and code < 0x80:
        raise DamagedRecordError(f"{code:#04x} is not a kind of record")


def _split(records: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Kind, place and contents of the records of a chunk."""
    offset = 0
    while offset < len(records):
        if offset + _HEAD.size > len(records):
            raise DamagedRecordError("it ends in the head of a record")
        code, length = _HEAD.unpack_from(records, offset)
        _check_kind(code)
        begin = offset + _HEAD.size
        if begin + length > len(records):
            raise DamagedRecordError("it ends in a record")
        yield code, offset, records[begin : begin + length]
        offset = begin + length


def _string(content: memoryview, position: int) -> tuple[str, int]:
    """A string after its length, and where it ends."""
    (length,) = struct.unpack_from("<I", content, position)
    begin = position + 4
    if begin + length > len(content):
        raise DamagedRecordError("a string is longer than its record")
    if length > MAX_NAME:
        raise DamagedRecordError(f"a name of {length} bytes, at most {MAX_NAME} are accepted")
    return bytes(content[begin : begin + length]).decode(), begin + length
