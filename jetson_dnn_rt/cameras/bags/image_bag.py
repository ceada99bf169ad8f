# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Images of one topic of a ROS bag by their place: neither ROS nor a running graph is needed.

Of a damaged bag everything readable is read; the rest is counted and named.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags import compression, mcap, photos, ros1, sqlite
from jetson_dnn_rt.cameras.bags.folder import METADATA, BagLayout, lay_out
from jetson_dnn_rt.cameras.bags.storage import BagFile, DamagedFileError, DamagedMessageError
from jetson_dnn_rt.cameras.encoded_pictures import BadImageError
from jetson_dnn_rt.cameras.image_messages import decode_image, view_image
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.small_files import describe_pointer

DECODERS: dict[str, Callable[[Any, int], Frame]] = {
    "sensor_msgs/msg/Image": view_image,
    "sensor_msgs/msg/CompressedImage": decode_image,
    photos.KIND: photos.decode_photo,
}
"""Message types that give frames. Each has the size of its message, which may change."""

LONGEST_PAUSE_NS = 60_000_000_000
"""A longer step between two messages is a jump of a clock, or a pause of the recorder."""

NAMED = 20
"""Jumps that are named; all are counted."""

_LONGEST_TEXT = 2000
"""Characters of a reason, and of a list of topics: their names come from the file."""


@dataclass(frozen=True)
class BadMessage:
    """A message that gave no frame: its place among the topic's messages, and why."""

    index: int
    reason: str


@dataclass(frozen=True, eq=False)
class BagImage:
    """A message that is an image."""

    index: int  # its place among the topic's messages, in the order of recording
    log_time_ns: int  # when it was recorded, in the recorder's clock
    frame: Frame  # its ``stamp_ns`` is the header's, ``sequence`` is `index`


@dataclass(frozen=True, eq=False)
class _Part:
    """The topic's messages in one file."""

    file: BagFile
    kind: str
    first: int
    times_ns: npt.NDArray[np.int64]


class ImageBag:
    """One topic of a bag, to be closed or used as a context; `open_image_bag` makes it.

    Attributes
    ----------
    count : int
        Messages of the topic that are in the files' indices; what cannot be reached at all, behind
        a broken end, is not.
    missing : int
        Messages that the bag declares, and that are not among `count`.
    log_times_ns : ndarray of int64, [count]
        When each was recorded.
    notes : list of str
        What is damaged, in words.
    kind : str
        Type of the messages.
    """

    def __init__(
        self, path: Path, topic: str, parts: list[_Part], expected: int, files: list[BagFile]
    ) -> None:
        self.path, self.topic = path, topic
        self.notes: list[str] = []
        self._parts, self._files = parts, files
        self.kind = parts[0].kind
        self._jumps: set[int] = set()
        times = [np.empty(0, np.int64), *(part.times_ns for part in parts)]
        self.log_times_ns: npt.NDArray[np.int64] = np.concatenate(times)
        self.count = len(self.log_times_ns)
        self.missing = max(0, expected - self.count)

    def read(self, first: int = 0, count: int | None = None) -> Iterator[BagImage | BadMessage]:
        """Read `count` messages from place `first` on, or all of the rest; decode nothing else.

        ValueError when `first` or `count` is below zero.
        """
        if first < 0 or (count is not None and count < 0):
            raise ValueError(f"places begin at 0: {first}, {count} messages")
        return self._read(range(self.count)[first : None if count is None else first + count])

    def _read(self, places: range) -> Iterator[BagImage | BadMessage]:
        before = self.read_one(places[0] - 1) if places and places[0] else None
        for index in places:
            message = self.read_one(index)
            if isinstance(message, BagImage):
                if isinstance(before, BagImage):
                    self._watch_stamps(before, message)
                before = message
            yield message

    def _watch_stamps(self, before: BagImage, now: BagImage) -> None:
        """Note jumps of the camera's clock; those of the recorder's are noted on opening."""
        step_ns = now.frame.stamp_ns - before.frame.stamp_ns
        if 0 <= step_ns <= LONGEST_PAUSE_NS or now.index in self._jumps:
            return
        self._jumps.add(now.index)
        if len(self._jumps) <= NAMED:
            self.notes.append(f"header stamps {_describe_step(step_ns)} at message {now.index}")
        elif len(self._jumps) == NAMED + 1:
            self.notes.append(f"header stamps jump more than {NAMED} times")

    def read_one(self, index: int) -> BagImage | BadMessage:
        """Read the message at one place; IndexError when there is none."""
        if not 0 <= index < self.count:
            raise IndexError(f"message {index} of {self.count}")
        part = next(part for part in reversed(self._parts) if part.first <= index)
        try:
            data = part.file.fetch(self.topic, index - part.first)
            message = part.file.deserialize(data, part.kind, self.topic)
            frame = DECODERS[part.kind](message, index)
        except Exception as error:  # rosbags has errors of its own for what it cannot parse
            ours = isinstance(error, (DamagedMessageError, BadImageError, SourceError))
            text = str(error) if ours else f"{type(error).__name__}: {error}"
            return BadMessage(index, text[:_LONGEST_TEXT])
        return BagImage(index, int(self.log_times_ns[index]), frame)

    def close(self) -> None:
        """Close the files; frames that were read stay as they are."""
        for file in self._files:
            file.close()

    def __enter__(self) -> ImageBag:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_image_bag(path: Path | str, topic: str = "", *, messages: bool = True) -> ImageBag:
    """Open one topic with images of a bag of rosbag2 (sqlite3, mcap) or of ROS 1.

    Parameters
    ----------
    path : path
        Folder of a bag, or one of its files; ``~`` is the home directory. A folder of images
        stands for a bag, see `photos`.
    topic : str, optional
        May be omitted when only one topic has images.
    messages : bool
        Whether messages will be read, for which rosbags is needed; what there is is found without
        it. The launch file only asks that, and runs on the Python of ROS.

    Raises
    ------
    ConfigurationError
        When rosbags is missing, or it is not clear which topic is meant.
    SourceError
        When there is no such bag, nothing of it can be read, or it holds no image.
    """
    path = Path(path).expanduser()
    of_photos = photos.holds_photos(path)
    if (
        messages
        and path.exists()
        and not of_photos
        and importlib.util.find_spec("rosbags") is None
    ):
        raise ConfigurationError(
            f"bag {path} is read with rosbags, which is not installed: "
            "pip install 'jetson_dnn_rt[bags]'"
        )
    layout = BagLayout([path]) if of_photos else lay_out(path)
    files: list[BagFile] = []
    notes = list(layout.notes)
    try:
        for name in layout.files:
            try:
                files.append(_open_file(name))
            except DamagedFileError as error:
                notes.append(f"nothing can be read of {error}")
        chosen = _choose_topic(files, path, topic, notes)
        parts, place = [], 0
        for file in _with_images(files, chosen):
            times = file.index(chosen)
            parts.append(_Part(file, file.kinds[chosen], place, times))
            place += len(times)
        expected = layout.expected.get(chosen, sum(f.expected.get(chosen, 0) for f in files))
        bag = ImageBag(path, chosen, parts, expected, files)
    except BaseException:
        for file in files:
            file.close()
        raise
    bag.notes += notes + [note for file in files for note in file.notes]
    if not bag.count:
        bag.notes.append(f"no message is on {chosen}")
    if bag.missing:
        teller = METADATA if chosen in layout.expected else "the summary"
        bag.notes.append(
            f"{teller} says {expected} messages on {chosen}, {bag.count} are there: "
            f"{bag.missing} are lost"
        )
    bag.notes += describe_jumps(bag.log_times_ns)
    return bag


def describe_jumps(times_ns: npt.NDArray[np.int64]) -> list[str]:
    """Name where log times in the order of recording go back, or ahead by more than any pause."""
    steps = np.diff(times_ns)
    places = np.flatnonzero((steps < 0) | (steps > LONGEST_PAUSE_NS))
    named = [(_describe_step(int(steps[place])), place + 1) for place in places[:NAMED]]
    more = [f"log times jump {len(places)} times in all"] if len(places) > NAMED else []
    return [f"log times {step} at message {place}" for step, place in named] + more


def _describe_step(step_ns: int) -> str:
    way = "go back" if step_ns < 0 else "go ahead"
    return f"{way} by {abs(step_ns) / 1e9:.3f} s"


def _open_file(path: Path) -> BagFile:
    """Open a file by its first bytes, whatever its name, or a folder of photos."""
    if path.is_dir():
        return photos.PhotoFolder(path)
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        raise DamagedFileError(f"{path.name}: {error.strerror}") from error
    if head.startswith(compression.MAGIC):
        return compression.open_unpacked(path, _open_file)
    if head.startswith(mcap.MAGIC):
        return mcap.McapFile(path, DECODERS.keys())
    if head.startswith(ros1.MAGIC):
        return ros1.Ros1File(path, DECODERS.keys())
    if head.startswith(sqlite.MAGIC):
        return sqlite.SqliteFile(path)
    what = "is empty" if not head else "is neither SQLite, MCAP nor a bag of ROS 1"
    raise DamagedFileError(f"{path.name}: it {describe_pointer(head) or what}")


def _with_images(files: list[BagFile], topic: str) -> list[BagFile]:
    return [file for file in files if file.kinds.get(topic) in DECODERS]


def _choose_topic(files: list[BagFile], path: Path, topic: str, notes: list[str]) -> str:
    """The topic that is asked for, or the only one with images."""
    kinds = {pair for file in files for pair in file.kinds.items()}
    images = {name for name, kind in kinds if kind in DECODERS}
    if not images:
        others = sorted(f"{name} ({kind})" for name, kind in kinds)
        has = f", but {', '.join(others)[:_LONGEST_TEXT]}" if others else ""
        why = "; ".join(notes + [note for file in files for note in file.notes])
        why = f" ({why})" if why else ""
        raise SourceError(
            f"bag {path} holds no sensor_msgs Image and no CompressedImage{has}{why}"
        )
    if topic and topic not in images:
        type_there = next((f" ({kind})" for name, kind in kinds if name == topic), "")
        raise ConfigurationError(
            f"bag {path} has no images on {topic!r}{type_there}, but on {_list(images)}"
        )
    if topic or len(images) == 1:
        return topic or min(images)
    # A recorder writes down every topic that it subscribes to, and some publish nothing.
    filled = {
        name for name in images if any(len(f.index(name)) for f in _with_images(files, name))
    }
    if len(filled) > 1:
        raise ConfigurationError(
            f"bag {path} has images on {_list(filled)}: say which, for instance {min(filled)}"
        )
    return min(filled or images)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))[:_LONGEST_TEXT]
