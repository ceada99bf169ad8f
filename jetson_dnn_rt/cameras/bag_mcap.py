"""Bags in MCAP, from the first byte on: neither the footer nor the summary has to be there.

Records and their fields: https://mcap.dev/spec (version 0).
"""

from __future__ import annotations

import importlib
import os
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bag_storage import (
    DamagedFileError,
    DamagedMessageError,
    decompress_message,
)
from jetson_dnn_rt.cameras.bag_types import deserialize_cdr
from jetson_dnn_rt.cameras.zstd import import_zstd

MAGIC = b"\x89MCAP0\r\n"

_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _MESSAGE_INDEX = 0x02, 0x03, 0x04, 0x05, 0x06, 0x07
_CHUNK_INDEX, _STATISTICS, _DATA_END = 0x08, 0x0B, 0x0F
_HEAD = struct.Struct("<BQ")
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_CHUNK_HEAD = struct.Struct("<QQQII")
_FOOTER_SIZE = _HEAD.size + 20 + len(MAGIC)
_LATEST_NS = (1 << 63) - 1
_INDEX_ENTRY = np.dtype([("time", "<u8"), ("offset", "<u8")])


class _Row(NamedTuple):
    """A message: where its chunk begins and its place therein (-1: no chunk), its log time."""

    position: int
    offset: int
    time_ns: int


@dataclass(frozen=True)
class _Chunk:
    """Where a chunk's records are stored; ``crc`` is 0 where there is none or its end is lost."""

    start: int
    stored: int
    compression: str
    size: int
    crc: int


class McapFile:
    """An ``.mcap`` file of rosbag2; see `BagFile`.

    Parameters
    ----------
    path : Path
        The file.
    wanted : collection of str
        Message types; topics of others have an empty index.

    Raises
    ------
    DamagedFileError
        When it is no MCAP file.
    """

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        self.kinds: dict[str, str] = {}
        self.expected: dict[str, int] = {}
        self.notes: list[str] = []
        self._path, self._wanted = path, wanted
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, str] = {}
        self._chunks: dict[int, _Chunk] = {}
        self._found: dict[int, list[_Row]] = {}
        self._rows: dict[str, list[_Row]] = {}
        self._kept: tuple[int, memoryview] | None = None
        self._file = path.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.read(len(MAGIC)) != MAGIC:
                raise DamagedFileError(f"{path.name} does not begin as an MCAP file does")
            summary = self._read_summary()
            self._walk(summary)
        except BaseException:
            self._file.close()
            raise

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, in the order in which they were written."""
        numbers = [number for number, name in self._channels.items() if name == topic]
        rows = sorted(row for number in numbers for row in self._found.get(number, ()))
        self._rows[topic] = rows
        return np.array([min(row.time_ns, _LATEST_NS) for row in rows], np.int64)

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message; the chunk that holds it is kept for the next."""
        row = self._rows[topic][place]
        try:
            if row.offset < 0:
                record = memoryview(self._record(row.position))
            else:
                record = self._record_of(self._decompress(row.position), row.offset)
        except _DamagedRecordError as error:
            raise DamagedMessageError(f"{self._path.name}: {error}") from error
        return decompress_message(record[_MESSAGE_HEAD.size :])

    def deserialize(self, data: bytes | memoryview, kind: str) -> Any:
        """Make a message of CDR."""
        return deserialize_cdr(data, kind)

    def close(self) -> None:
        """Let go of the file."""
        self._kept = None
        self._file.close()

    def _read(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def _record(self, position: int) -> bytes:
        """Contents of the record at one byte of the file."""
        head = self._read(position, _HEAD.size)
        if len(head) < _HEAD.size:
            raise _DamagedRecordError("the file ends in the head of a record")
        length = _HEAD.unpack(head)[1]
        if position + _HEAD.size + length > self._size:
            raise _DamagedRecordError("the file ends in a record")
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
        """Messages by topic, and where chunks begin, when the file has come to its end."""
        end = self._size - _FOOTER_SIZE
        tail = self._read(max(end, 0), _FOOTER_SIZE)
        if end < 0 or tail[-len(MAGIC) :] != MAGIC or tail[0] != _FOOTER:
            self.notes.append(f"{self._path.name} has no end: it was not closed, or is cut off")
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
            self.notes.append(f"{self._path.name}: its summary is damaged: {error}")
        for number, count in counts.items():
            topic = self._channels.get(number)
            if topic is not None:
                self.expected[topic] = self.expected.get(topic, 0) + count
        return sorted(starts)

    def _walk(self, starts: list[int]) -> None:
        """Find every message of the data section, passing over what is damaged."""
        position = len(MAGIC)
        indices: list[memoryview] = []
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
                if not 0x01 <= code <= _DATA_END and code < 0x80:
                    raise _DamagedRecordError(f"{code:#04x} is no kind of record")
                if code == _CHUNK:
                    self._chunks[position] = self._read_chunk_head(position, length)
                    chunk, indices = position, []
                if position + _HEAD.size + length > self._size:
                    raise _DamagedRecordError("the file ends in a record")
                if code == _MESSAGE_INDEX:
                    indices.append(memoryview(self._file.read(length)))
                elif code == _MESSAGE:
                    self._enter_message(position, -1, self._read_exactly(_MESSAGE_HEAD.size))
                elif code in (_SCHEMA, _CHANNEL):
                    self._define(code, memoryview(self._file.read(length)))
                position += _HEAD.size + length
            except (_DamagedRecordError, struct.error, UnicodeDecodeError) as error:
                if chunk is not None:
                    self._enter_chunk(chunk, None)
                    chunk = None
                behind = next((start for start in starts if start > position), None)
                until = "to the end" if behind is None else f"to byte {behind}"
                self.notes.append(
                    f"{self._path.name}: cannot be read from byte {position} {until}: {error}"
                )
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
        if _CHUNK_HEAD.size + letters + 8 > length:
            raise _DamagedRecordError("a chunk is shorter than its head")
        compression = self._read_exactly(letters).decode()
        (stored,) = struct.unpack("<Q", self._read_exactly(8))
        start = self._file.tell()
        there = min(stored, self._size - start, position + _HEAD.size + length - start)
        return _Chunk(start, there, compression, size, crc if there == stored else 0)

    def _enter_chunk(self, position: int, indices: list[memoryview] | None) -> None:
        """Find a chunk's messages by its indices; without them, by looking at all of it."""
        if indices and self._enter_indices(position, indices):
            return
        try:
            records = self._decompress(position)
        except _DamagedRecordError as error:
            self.notes.append(f"{self._path.name}: the chunk at byte {position}: {error}")
            return
        try:
            for code, offset, content in _split(records):
                if code == _MESSAGE:
                    self._enter_message(position, offset, content)
                else:
                    self._define(code, content)
        except (_DamagedRecordError, struct.error, UnicodeDecodeError) as error:
            self.notes.append(f"{self._path.name}: in the chunk at byte {position}: {error}")

    def _enter_indices(self, position: int, indices: list[memoryview]) -> bool:
        """Enter the messages of a chunk's indices; False when one is of an unknown channel."""
        rows: dict[int, list[_Row]] = {}
        for content in indices:
            number, size = struct.unpack_from("<HI", content)
            if size and number not in self._channels:
                return False
            if not self._is_wanted(number):
                continue
            entries = np.frombuffer(content[6 : 6 + size], _INDEX_ENTRY)
            rows[number] = [
                _Row(position, int(offset), int(time_ns)) for time_ns, offset in entries
            ]
        for number, found in rows.items():
            self._found.setdefault(number, []).extend(found)
        return True

    def _enter_message(self, position: int, offset: int, content: bytes | memoryview) -> None:
        number, _, time_ns, _ = _MESSAGE_HEAD.unpack_from(content)
        if self._is_wanted(number):
            self._found.setdefault(number, []).append(_Row(position, offset, time_ns))

    def _is_wanted(self, number: int) -> bool:
        """Leave out what is not asked for: a recording has millions of messages of an IMU."""
        return self.kinds.get(self._channels.get(number, ""), "") in self._wanted

    def _define(self, code: int, content: memoryview) -> None:
        """Take down a schema or a channel."""
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
            if encoding == "cdr":
                self.kinds[topic] = self._schemas.get(schema, "")
            else:
                self.notes.append(f"{self._path.name}: topic {topic} is in {encoding!r}, not CDR")

    def _decompress(self, position: int) -> memoryview:
        """Records of a chunk: all of them, or as many as there are of one that is cut off."""
        if self._kept is not None and self._kept[0] == position:
            return self._kept[1]
        chunk = self._chunks[position]
        stored = self._read(chunk.start, chunk.stored)
        records = _decompress(stored, chunk.compression, chunk.size)
        if chunk.crc and zlib.crc32(records) != chunk.crc:
            raise _DamagedRecordError("its checksum is wrong")
        self._kept = (position, memoryview(records))
        return self._kept[1]


class _DamagedRecordError(Exception):
    """A record, or a chunk of records, is not what it should be."""


def _decompress(stored: bytes, compression: str, size: int) -> bytes:
    if compression == "":
        return stored
    if compression == "zstd":
        zstd = import_zstd()
        try:
            records: bytes = zstd.ZstdDecompressor().decompress(stored, max_length=size)
        except zstd.ZstdError as error:
            raise _DamagedRecordError(str(error)) from error
        return records
    if compression == "lz4":
        lz4 = importlib.import_module("lz4.frame")  # rosbags brings it along
        try:
            records = lz4.LZ4FrameDecompressor().decompress(stored, max_length=size)
        except RuntimeError as error:
            raise _DamagedRecordError(str(error)) from error
        return records
    raise _DamagedRecordError(f"compression {compression!r} is not known")


def _split(records: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Kind, place and contents of the records of a chunk."""
    offset = 0
    while offset < len(records):
        if offset + _HEAD.size > len(records):
            raise _DamagedRecordError("it ends in the head of a record")
        code, length = _HEAD.unpack_from(records, offset)
        begin = offset + _HEAD.size
        if begin + length > len(records):
            raise _DamagedRecordError("it ends in a record")
        yield code, offset, records[begin : begin + length]
        offset = begin + length


def _string(content: memoryview, position: int) -> tuple[str, int]:
    """A string behind its length, and where it ends."""
    (length,) = struct.unpack_from("<I", content, position)
    begin = position + 4
    if begin + length > len(content):
        raise _DamagedRecordError("a string is longer than its record")
    return bytes(content[begin : begin + length]).decode(), begin + length
