# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The interface of a bag's files: an index first, then single messages by their place.

Bags are read here record by record, not with a reader that accepts whole bags only: of a damaged
one everything readable is wanted, in the order in which it was recorded.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import JetsonDnnRtError

MAX_NOTES = 20
"""Damaged places of a file that are named."""

MAX_NOTE = 500
"""Characters of a note, in which names of topics and kinds come from the file."""


class DamagedMessageError(JetsonDnnRtError):
    """A message is in the index, but its bytes cannot be read."""


class DamagedFileError(JetsonDnnRtError):
    """A file of a bag of which nothing at all can be read."""


class Notes(list[str]):
    """Damage in words: a bounded number of places is named, then one note says there is more."""

    def append(self, note: str) -> None:
        """Add a note, unless there are too many already."""
        if len(self) < MAX_NOTES:
            super().append(note[:MAX_NOTE])
        elif len(self) == MAX_NOTES:
            super().append("further damage is not named")


class BagFile(ABC):
    """One file of a bag."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Message type (``sensor_msgs/msg/Image``) by topic, of the topics that can be decoded.
        self.kinds: dict[str, str] = {}
        # Messages by topic that the file itself declares; empty where it declares none.
        self.expected: dict[str, int] = {}
        self.notes: list[str] = Notes()

    def note(self, text: str) -> None:
        """Note damage with the file's name."""
        self.notes.append(f"{self.path.name}: {text}")

    @abstractmethod
    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages in nanoseconds, in the order of recording."""

    @abstractmethod
    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Bytes of the message at one place of the index; DamagedMessageError if unreadable."""

    def deserialize(self, data: bytes | memoryview, kind: str, topic: str) -> Any:
        """Make a message of CDR; arrays are views of `data`. Raises whatever rosbags does."""
        return load_types("ROS2_HUMBLE").deserialize_cdr(memoryview(data), kind)

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


def name_kind(name: str) -> str:
    """Name of a message type as in ROS 2: ``sensor_msgs/Image`` is ``sensor_msgs/msg/Image``."""
    package, slash, kind = name.partition("/")
    return f"{package}/msg/{kind}" if slash and "/" not in kind else name


def deserialize_ros1(data: bytes | memoryview, kind: str) -> Any:
    """Make a message of the format of ROS 1."""
    return load_types("ROS1_NOETIC").deserialize_ros1(memoryview(data), kind)


@functools.cache
def load_types(release: str) -> Any:
    """Message types of a release of ROS; images are the same in all releases of ROS 2."""
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores[release])
