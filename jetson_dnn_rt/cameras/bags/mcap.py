# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags in MCAP, from the first byte on: neither footer nor summary is needed.

Records and their fields: https://mcap.dev/spec (version 0).
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.compression import (
    MAX_PLAIN,
    BadCompressionError,
    decompress,
    decompress_message,
)
from jetson_dnn_rt.cameras.bags.storage import (
    BagFile,
    DamagedFileError,
    DamagedMessageError,
    deserialize_ros1,
    name_kind,
)

MAGIC = b"\x89MCAP0\r\n"

_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _MESSAGE_INDEX = 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
_CHUNK_INDEX, _STATISTICS, _DATA_END = 0x08, 0x0B, 0x0F
_HEAD = struct.Struct("<BQ")
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_CHUNK_HEAD = struct.Struct("<QQQII")
_FOOTER_SIZE = _HEAD.size + 20 + len(MAGIC)
_LATEST_NS = (1 << 63) - 1
_INDEX_ENTRY = np.dtype([("time", "<u8"), ("offset", "<u8")])


MAX_RECORD = 16 << 20
"""Bytes of a schema, a channel, a chunk's place and the like."""

MAX_INDICES = 64 << 20
"""Bytes of all indices of one chunk: with more, the chunk itself is scanned."""

MAX_NAMES, MAX_NAME = 10_000, 1024
"""Schemas and channels of a file, and bytes of their names."""

SCAN_FREE, SCAN_RATIO = 256 << 20, 100
"""Bytes of chunks without an index that are scanned, and how many more for each byte of the file:
this is where bombs cost time."""

SCAN_RECORD = 256
"""Bytes that a record counts in addition: reading its head takes as long."""


@dataclass(frozen=True)
class _Chunk:
    """Where and how the records of a chunk are stored."""

    start: int
    stored: int
    compression: str
    size: int
    crc: int  # 0 where there is none, or the end of the chunk is lost


class McapFile(BagFile):
    """An ``.mcap`` file of rosbag2; DamagedFileError when it is not one.

    Topics whose message types are not `wanted` have an empty index.
    """

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        super().__init__(path)
        self._wanted = wanted
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, str] = {}
        self._of_ros1: set[str] = set()
        self._chunks: dict[int, _Chunk] = {}
        # Of each channel, message after message: byte at which its chunk or record begins, its
        # place in the chunk (-1: no chunk), log time.
        self._found: dict[int, array[int]] = {}
        self._rows: dict[str, npt.NDArray[np.int64]] = {}
        self._kept: tuple[int, memoryview | _DamagedRecordError] | None = None
        self._file = path.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        self._scan_left = SCAN_FREE + SCAN_RATIO * self._size
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise DamagedFileError(f"{path.name} does not begin as an MCAP file does")
            self._walk(self._read_summary())
        except BaseException:
            self._file.close()
            raise

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, in the order in which they were written."""
        found = [
            np.frombuffer(self._found[number], np.int64).reshape(-1, 3)
            for number, name in self._channels.items()
            if name == topic and number in self._found
        ]
        rows = np.concatenate(found) if found else np.empty((0, 3), np.int64)
        self._rows[topic] = rows = rows[np.lexsort(rows.T[::-1])]
        return rows[:, 2].copy()

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message; the chunk that holds it is kept for the next."""
        position, offset, _ = self._rows[topic][place].tolist()
        try:
            if offset < 0:
                record = memoryview(self._record(position, MAX_PLAIN))
            else:
                record = self._record_of(self._decompress(position), offset)
        except _DamagedRecordError as error:
            raise DamagedMessageError(f"{self.path.name}: {error}") from error
        return decompress_message(record[_MESSAGE_HEAD.size :])

    def deserialize(self, data: bytes | memoryview, kind: str, topic: str) -> Any:
        """Make a message of CDR, or of the format of ROS 1."""
        if topic in self._of_ros1:
            return deserialize_ros1(data, kind)
        return super().deserialize(data, kind, topic)

    def close(self) -> None:
        """Close the file."""
        self._kept = None
        self._file.close()

    def _read(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def _record(self, position: int, most: int = MAX_RECORD) -> bytes:
        """Contents of the record at one byte of the file."""
        head = self._read(position, _HEAD.size)
        if len(head) < _HEAD.size:
            raise _DamagedRecordError("the file ends in the head of a record")
        length = _HEAD.unpack(head)[1]
        if position + _HEAD.size + length > self._size:
            raise _DamagedRecordError("the file ends in a record")
        if length > most:
            raise _DamagedRecordError(f"a record of {length} bytes, at most {most} are accepted")
        return self._file.read(length)

    @staticmethod
    def _record_of(records: memoryview, offset: int) -> memoryview:
        """Contents of the message at one byte of a chunk's records."""
        if offset + _HEAD.size > len(records):
            raise _DamagedRecordError("only the beginning of its chunk can be read")
        code, length = _HEAD.unpack_from(records, offset)
        begin = offset + _HEAD.size
        if code == _MESSAGE and _MESSAGE_HEAD.size <= length <= len(records) - begin:
            return records[begin : begin + length]
        raise _DamagedRecordError("its chunk holds no message where the index says")

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
        except (struct.error, _DamagedRecordError, UnicodeDecodeError) as error:
            self.note(f"its summary is damaged: {error}")
        for number, count in counts.items():
            topic = self._channels.get(number)
            if topic is not None:
                self.expected[topic] = self.expected.get(topic, 0) + count
        return sorted(starts)

    def _walk(self, starts: list[int]) -> None:
        """Find every message of the data section, skipping damaged parts."""
        position = len(MAGIC)
        indices: list[memoryview] = []
        indexed = 0
        chunk: int | None = None
        while position < self._size:
            try:
                head = self._read(position, _HEAD.size)
                if len(head) < _HEAD.size:
                    raise _DamagedRecordError("the file ends in the head of a record")
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
                    except (_DamagedRecordError, UnicodeDecodeError) as error:
                        self.note(f"the chunk at byte {position}: {error}")
                if position + _HEAD.size + length > self._size:
                    raise _DamagedRecordError("the file ends in a record")
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
            except (_DamagedRecordError, struct.error, UnicodeDecodeError) as error:
                if chunk is not None:
                    self._enter_chunk(chunk, None)
                    chunk = None
                after = bisect_right(starts, position)
                behind = starts[after] if after < len(starts) else None
                until = "to the end" if behind is None else f"to byte {behind}"
                self.note(f"cannot be read from byte {position} {until}: {error}")
                if behind is None:
                    return
                position = behind
        if chunk is not None:
            self._enter_chunk(chunk, None)

    def _read_exactly(self, size: int) -> bytes:
        content = self._file.read(size)
        if len(content) < size:
            raise _DamagedRecordError("the file ends in a record")
        return content

    def _read_chunk_head(self, position: int, length: int) -> _Chunk:
        content = self._read_exactly(_CHUNK_HEAD.size)
        _, _, size, crc, letters = _CHUNK_HEAD.unpack(content)
        if _CHUNK_HEAD.size + letters + 8 > length or letters > MAX_NAME:
            raise _DamagedRecordError("it is shorter than its head")
        compression = self._read_exactly(letters).decode()
        (stored,) = struct.unpack("<Q", self._read_exactly(8))
        start = self._file.tell()
        there = min(stored, self._size - start, position + _HEAD.size + length - start)
        return _Chunk(start, there, compression, size, crc if there == stored else 0)

    def _enter_chunk(self, position: int, indices: list[memoryview] | None) -> None:
        """Find a chunk's messages by its indices; without them, by scanning all of it."""
        if indices and self._enter_indices(position, indices):
            return
        try:
            if self._scan_left < 0:
                return  # noted already
            records = self._decompress(position)
            self._scan_left -= len(records)
            for code, offset, content in _split(records):
                self._scan_left -= SCAN_RECORD
                if self._scan_left < 0:
                    text = "it is too large for a file of this size: not all is scanned"
                    raise _DamagedRecordError(text)
                if code == _MESSAGE:
                    self._enter_message(position, offset, content)
                else:
                    self._define(code, content)
        except (_DamagedRecordError, struct.error, UnicodeDecodeError) as error:
            self.note(f"the chunk at byte {position}: {error}")

    def _enter_indices(self, position: int, indices: list[memoryview]) -> bool:
        """Enter the messages of a chunk's indices; False when one cannot be understood."""
        found: dict[int, npt.NDArray[np.int64]] = {}
        for content in indices:
            if len(content) < 6:
                return False
            number, size = struct.unpack_from("<HI", content)
            if size % _INDEX_ENTRY.itemsize or size > len(content) - 6:
                return False
            if size and number not in self._channels:
                return False
            if not self._is_wanted(number):
                continue
            entries = np.frombuffer(content[6 : 6 + size], _INDEX_ENTRY)
            rows = np.empty((len(entries), 3), np.int64)
            rows[:, 0] = position
            rows[:, 1] = np.minimum(entries["offset"], _LATEST_NS)
            rows[:, 2] = np.minimum(entries["time"], _LATEST_NS)
            found[number] = rows
        for number, rows in found.items():
            self._found.setdefault(number, array("q")).frombytes(rows.tobytes())
        return True

    def _enter_message(self, position: int, offset: int, content: bytes | memoryview) -> None:
        number, _, time_ns, _ = _MESSAGE_HEAD.unpack_from(content)
        if self._is_wanted(number):
            row = (position, offset, min(time_ns, _LATEST_NS))
            self._found.setdefault(number, array("q")).extend(row)

    def _is_wanted(self, number: int) -> bool:
        """Whether messages of a channel are indexed: an IMU has millions in a recording."""
        return self.kinds.get(self._channels.get(number, ""), "") in self._wanted

    def _define(self, code: int, content: memoryview) -> None:
        """Enter a schema or a channel."""
        try:
            if max(len(self._schemas), len(self._channels)) > MAX_NAMES:
                raise _DamagedRecordError(f"there are more than {MAX_NAMES}")
            if code == _SCHEMA:
                (number,) = struct.unpack_from("<H", content)
                self._schemas[number] = _string(content, 2)[0]
            elif code == _CHANNEL:
                number, schema = struct.unpack_from("<HH", content)
                topic, behind = _string(content, 4)
                encoding = _string(content, behind)[0]
                if number in self._channels:
                    return
                self._channels[number] = topic
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
        except (_DamagedRecordError, struct.error, UnicodeDecodeError) as error:
            self.note(f"a schema or channel is left out: {error}")

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
        if not chunk.compression:
            records = memoryview(stored)
        else:
            try:
                records = decompress(stored, compression=chunk.compression, size=chunk.size)
            except BadCompressionError as error:
                raise _DamagedRecordError(str(error)) from error
        if chunk.crc and zlib.crc32(records) != chunk.crc:
            raise _DamagedRecordError("its checksum is wrong")
        return records


class _DamagedRecordError(Exception):
    """A record, or a chunk of records, is not what it should be."""


def _check_kind(code: int) -> None:
    if not 0x01 <= code <= _DATA_END and code < 0x80:
        raise _DamagedRecordError(f"{code:#04x} is not a kind of record")


def _split(records: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Kind, place and contents of the records of a chunk."""
    offset = 0
    while offset < len(records):
        if offset + _HEAD.size > len(records):
            raise _DamagedRecordError("it ends in the head of a record")
        code, length = _HEAD.unpack_from(records, offset)
        _check_kind(code)
        begin = offset + _HEAD.size
        if begin + length > len(records):
            raise _DamagedRecordError("it ends in a record")
        yield code, offset, records[begin : begin + length]
        offset = begin + length


def _string(content: memoryview, position: int) -> tuple[str, int]:
    """A string after its length, and where it ends."""
    (length,) = struct.unpack_from("<I", content, position)
    begin = position + 4
    if begin + length > len(content):
        raise _DamagedRecordError("a string is longer than its record")
    if length > MAX_NAME:
        raise _DamagedRecordError(f"a name of {length} bytes, at most {MAX_NAME} are accepted")
    return bytes(content[begin : begin + length]).decode(), begin + length
