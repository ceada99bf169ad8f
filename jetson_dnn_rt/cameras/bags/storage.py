"""What the storages of bags have in common: an index first, then single messages by their place.

Bags are read here record by record, not with a reader that takes a whole bag or none: of a damaged
one everything that is readable is wanted, in the order in which it was recorded.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.zstd import MAGIC, BadCompressionError, decompress
from jetson_dnn_rt.errors import JetsonDnnRtError

MAX_NOTES = 20
"""So many damaged places of a file are named."""

MAX_NOTE = 500
"""Characters: names of topics and kinds are up to the file."""


class DamagedMessageError(JetsonDnnRtError):
    """A message is in the index, but its bytes cannot be had."""


class DamagedFileError(JetsonDnnRtError):
    """Nothing at all can be read of a file of a bag."""


class BagFile(Protocol):
    """One file of a bag.

    Attributes
    ----------
    kinds : dict of str to str
        Message type by topic, ``sensor_msgs/msg/Image``, of the topics in CDR.
    expected : dict of str to int
        Messages by topic that the file itself says it has; empty where it says nothing.
    notes : list of str
        What is damaged, in words.
    """

    kinds: dict[str, str]
    expected: dict[str, int]
    notes: list[str]

    def index(self, topic: str) -> npt.NDArray[np.int64]:
        """Log times of a topic's messages in nanoseconds, in the order of recording."""

    def fetch(self, topic: str, place: int) -> bytes | memoryview:
        """Give the bytes of the message at one place of the index.

        Raises
        ------
        DamagedMessageError
            When they cannot be read.
        """

    def deserialize(self, data: bytes | memoryview, kind: str) -> Any:
        """Make a message of bytes; raises whatever rosbags does."""

    def close(self) -> None:
        """Let go of the file."""


class Notes(list[str]):
    """What is damaged, in words: so many places are named, the rest is said to be there."""

    def append(self, note: str) -> None:
        """Take a note, unless there are too many already."""
        if len(self) < MAX_NOTES:
            super().append(note[:MAX_NOTE])
        elif len(self) == MAX_NOTES:
            super().append("further damage is not named")


def decompress_message(data: bytes | memoryview) -> bytes | memoryview:
    """Decompress a message that was compressed on its own; others are given back.

    Raises
    ------
    DamagedMessageError
        When it cannot be decompressed.
    """
    if bytes(data[:4]) != MAGIC:
        return data
    try:
        return decompress(data)
    except BadCompressionError as error:
        raise DamagedMessageError(f"its compression is damaged: {error}") from error
