# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files of bags whose messages are stored in chunks: MCAP and ROS 1."""

from __future__ import annotations

import os
import struct
import zlib
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.compression import MAX_PLAIN, BadCompressionError, decompress
from jetson_dnn_rt.cameras.bags.storage import BagFile, DamagedFileError

MAX_RECORD = 16 << 20
"""Bytes of a record that describes: a channel with the definition of its messages, the place of a
chunk and the like."""

MAX_INDICES = 64 << 20
"""Bytes of all indices of one chunk: with more, the chunk itself is scanned."""

MAX_NAMES, MAX_NAME = 10_000, 1024
"""Channels of a file, and bytes of a name."""

SCAN_FREE, SCAN_RATIO = 256 << 20, 100
"""Bytes of chunks without an index that are scanned, and how many more for each byte of the file:
this is where bombs cost time."""

SCAN_RECORD = 256
"""Bytes that a record counts in addition: reading its head takes as long."""

IndexRecord = TypeVar("IndexRecord")


class DamagedRecordError(Exception):
    """A record, or a chunk of records, is not what it should be."""


@dataclass(frozen=True)
class Chunk:
    """Where and how the records of a chunk are stored."""

    start: int
    stored: int
    compression: str  # empty = none
    size: int | None  # when decompressed; None where the recorder did not write it
    crc: int = 0  # 0 where there is none, or the end of the chunk is lost


class ChunkedFile(BagFile, Generic[IndexRecord]):
    """A file of chunks, found by their indices or, where these are missing, by scanning.

    Topics whose message types are not `wanted` have an empty index. A file that cannot be read at
    all is a DamagedFileError.
    """

    def __init__(self, path: Path, wanted: Collection[str], magic: bytes) -> None:
        super().__init__(path)
        self._wanted = wanted
        self._topics: dict[int, str] = {}  # by channel, which ROS 1 calls a connection
        self._chunks: dict[int, Chunk] = {}
        # Of each channel, message after message: byte at which its chunk or record begins, its
        # place in the chunk (-1: no chunk), log time.
        self._found: dict[int, array[int]] = {}
        self._rows: dict[str, npt.NDArray[np.int64]] = {}
        self._kept: tuple[int, memoryview | DamagedRecordError] | None = None
        self._file = path.open("rb")
        self._size = os.fstat(self._file.fileno()).st_size
        self._scan_left = SCAN_FREE + SCAN_RATIO * self._size
        try:
            if self._file.read(len(magic)) != magic:
                raise DamagedFileError(f"{path.name} does not begin with {magic!r}")
            self._walk(self._read_summary())
            if self.notes and not self._topics:
                raise DamagedFileError("; ".join(self.notes))
        except BaseException:
            self._file.close()
            raise

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, in the order of the format."""
        found = [
            np.frombuffer(self._found[number], np.int64).reshape(-1, 3)
            for number, name in self._topics.items()
            if name == topic and number in self._found
        ]
        rows = np.concatenate(found) if found else np.empty((0, 3), np.int64)
        self._rows[topic] = rows = rows[self._order(rows)]
        return rows[:, 2].copy()

    def close(self) -> None:
        """Close the file."""
        self._kept = None
        self._file.close()

    @abstractmethod
    def _read_summary(self) -> list[int]:
        """Read what the end of a closed file says, and where its chunks begin, in order."""

    @abstractmethod
    def _walk(self, starts: Sequence[int]) -> None:
        """Find every message of the file, skipping damaged parts."""

    @abstractmethod
    def _order(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """Order of messages, by their rows of position, place in the chunk and log time."""

    @abstractmethod
    def _enter_indices(self, position: int, indices: Sequence[IndexRecord]) -> bool:
        """Enter the messages of a chunk's indices; False when one cannot be understood."""

    @abstractmethod
    def _scan(self, position: int, records: memoryview) -> None:
        """Enter the messages and channels among a chunk's records."""

    def _read(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def _skip_damage(self, position: int, starts: Sequence[int], error: Exception) -> int:
        """Note damage; returns the byte to go on at, which may be the end of the file."""
        after = bisect_right(starts, position)
        if after == len(starts):
            self.note(f"cannot be read from byte {position} to the end: {error}")
            return self._size
        self.note(f"cannot be read from byte {position} to byte {starts[after]}: {error}")
        return starts[after]

    def _expect(self, counts: Mapping[int, int]) -> None:
        """Add the numbers of messages that the file declares, by channel."""
        for number, count in counts.items():
            if (topic := self._topics.get(number)) is not None:
                self.expected[topic] = self.expected.get(topic, 0) + count

    def _is_wanted(self, number: int) -> bool:
        """Whether messages of a channel are indexed: an IMU has millions in a recording."""
        return self.kinds.get(self._topics.get(number, ""), "") in self._wanted

    def _enter(self, number: int, position: int, offset: int, time_ns: int) -> None:
        self._found.setdefault(number, array("q")).extend((position, offset, time_ns))

    def _enter_all(
        self,
        number: int,
        position: int,
        offsets: npt.NDArray[np.integer],
        times_ns: npt.NDArray[np.integer],
    ) -> None:
        rows = np.empty((len(offsets), 3), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2] = position, offsets, times_ns
        self._found.setdefault(number, array("q")).frombytes(rows.tobytes())

    def _enter_chunk(self, position: int, indices: Sequence[IndexRecord]) -> None:
        """Find a chunk's messages by its indices; without them, by scanning all of it."""
        if indices and self._enter_indices(position, indices):
            return
        try:
            if self._scan_left < 0:
                return  # noted already
            records = self._decompress(position)
            self._scan_left -= len(records)
            self._scan(position, records)
        except (DamagedRecordError, struct.error, UnicodeDecodeError) as error:
            self.note(f"the chunk at byte {position}: {error}")

    def _count_scanned(self) -> None:
        """Count a record that is scanned."""
        self._scan_left -= SCAN_RECORD
        if self._scan_left < 0:
            raise DamagedRecordError("it is too large for a file of this size: not all is scanned")

    def _decompress(self, position: int) -> memoryview:
        """Records of a chunk: all of them, or as many as there are of one that is cut off."""
        if self._kept is None or self._kept[0] != position:
            self._kept = None  # two chunks are not held at once
            try:
                self._kept = (position, self._read_chunk(self._chunks[position]))
            except DamagedRecordError as error:
                self._kept = (position, error)
        records = self._kept[1]
        if isinstance(records, DamagedRecordError):
            raise records
        return records

    def _read_chunk(self, chunk: Chunk) -> memoryview:
        if chunk.stored > MAX_PLAIN:
            raise DamagedRecordError(f"{chunk.stored} bytes, more than the {MAX_PLAIN} accepted")
        stored = self._read(chunk.start, chunk.stored)
        if not chunk.compression:
            records = memoryview(stored)
        else:
            try:
                records = decompress(stored, compression=chunk.compression, size=chunk.size)
            except BadCompressionError as error:
                raise DamagedRecordError(str(error)) from error
        if chunk.crc and zlib.crc32(records) != chunk.crc:
            raise DamagedRecordError("its checksum is wrong")
        return records
