# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags of ROS 1, with the reader of rosbags: whole ones only."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.compression import decompress
from jetson_dnn_rt.cameras.bags.storage import (
    BagFile,
    DamagedFileError,
    DamagedMessageError,
    load_types,
)

MAGIC = b"#ROSBAG V2.0"


class Ros1File(BagFile):
    """A ``.bag`` file; DamagedFileError when rosbags cannot read it."""

    def __init__(self, path: Path) -> None:
        from rosbags.rosbag1 import Reader

        super().__init__(path)
        try:
            self._reader = Reader(path)
            self._reader.open()
        except Exception as error:  # on a damaged file rosbags may raise anything
            raise DamagedFileError(f"{path.name}: {str(error)[:200]}") from error
        # Outside of it: another version of rosbags must not look like damage.
        self._limit_chunks()
        self._connections: dict[str, list[Any]] = {}
        for connection in self._reader.connections:
            self.kinds[connection.topic] = connection.msgtype
            self._connections.setdefault(connection.topic, []).append(connection)
        self._times: dict[str, npt.NDArray[np.int64]] = {}
        self._messages: Iterator[Any] = iter(())
        self._next: tuple[str, int] = ("", -1)

    def _limit_chunks(self) -> None:
        """Decompress chunks within the limits of `decompress`: rosbags itself has none."""
        from rosbags.rosbag1.reader import decompressors

        names = {function: name for name, function in decompressors.items()}
        for position, chunk in self._reader.chunks.items():
            name = names[chunk.decompressor]
            if name != "none":
                limited = functools.partial(decompress, compression=name)
                self._reader.chunks[position] = chunk._replace(decompressor=limited)

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages, by which this format orders them."""
        entries = self._reader.indexes
        times = sorted(e.time for c in self._connections[topic] for e in entries[c.id])
        self._times[topic] = np.array(times, np.int64)
        return self._times[topic]

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of one message; quick only for the one after the last."""
        if self._next != (topic, place):
            # By its time: a damaged one before it is skipped.
            times = self._times[topic]
            start = int(times[place])
            messages = self._reader.messages(self._connections[topic], start=start)
            before = place - int(np.searchsorted(times, start))
            self._messages = itertools.islice(messages, before, None)
        self._next = (topic, place + 1)
        try:
            data: bytes = next(self._messages)[2]
        except Exception as error:  # StopIteration, too: the index promises more than there is
            self._next = ("", -1)
            self._reader.current_chunk = (-1, io.BytesIO())  # it may be closed
            raise DamagedMessageError(f"{self.path.name}: {error}") from error
        return data

    def deserialize(self, data: bytes | memoryview, kind: str) -> Any:
        """Make a message of the format of ROS 1."""
        return load_types("ROS1_NOETIC").deserialize_ros1(memoryview(data), kind)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
