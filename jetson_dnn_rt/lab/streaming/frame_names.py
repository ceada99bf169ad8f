# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which label belongs to which frame: by a photo's file, else by the number in its stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.agree.result_files import Key

T = TypeVar("T")


class FrameName(NamedTuple):
    """A frame that will be judged."""

    stream: str  # named after its folder, its bag and its topic: drives/monday#/image_raw
    number: int
    file: str = ""  # of a photo

    @property
    def path(self) -> PurePath:
        """A photo's file with its folders, as far as the stream's name has them."""
        return PurePath(self.stream.rpartition("#")[0], self.file)

    def __str__(self) -> str:
        return str(self.path) if self.file else f"{self.number} of {self.stream}"


def match_files(
    frames: Iterable[FrameName], labels: Sequence[PurePath], *, endings: bool = True
) -> dict[Key, int]:
    """Match photos to labels, given as places in `labels`.

    Files of one name are told apart by their folders; `endings`: .jpg is another file than .png.
    `ConfigurationError` when that leaves several labels of a photo, or several photos of a label.
    """

    def turn(path: PurePath) -> tuple[str, ...]:
        return (path if endings else path.with_suffix("")).parts[::-1]

    by_name = defaultdict(list)
    for place, label in enumerate(labels):
        if label.name:
            by_name[turn(label)[0]].append(place)
    claims = defaultdict(list)
    for frame in (frame for frame in frames if frame.file):
        name = turn(frame.path)
        found = [(_count_equal(name, turn(labels[at])), at) for at in by_name.get(name[0], ())]
        if found:
            equal, nearest = _find_nearest(frame, found, lambda at: labels[at])
            claims[nearest].append((equal, frame))
    matched = {}
    for place, claim in claims.items():
        _, frame = _find_nearest(labels[place], claim, str)
        matched[frame.stream, frame.number] = place
    return matched


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _find_nearest(
    name: object, found: Sequence[tuple[int, T]], show: Callable[[T], object]
) -> tuple[int, T]:
    """Find what has the most equal parts of its path."""
    most = max(equal for equal, _ in found)
    nearest = [one for equal, one in found if equal == most]
    if len(nearest) > 1:
        first, second = (show(one) for one in nearest[:2])
        raise ConfigurationError(
            f"{name} belongs to {first} or {second}: it is not clear which; fix: put the labels "
            "into folders of the same names as those of the photos"
        )
    return most, nearest[0]


def match_numbers(
    frames: Iterable[FrameName], labels: Mapping[Key, T], name: Callable[[str], str]
) -> dict[Key, T]:
    """Match frames to labels by their sequence, which `name` makes of a stream, and number.

    A single sequence may have another name. `ConfigurationError` when it could be that of several
    streams.
    """
    frames = list(frames)
    streams = sorted({frame.stream for frame in frames})
    sequences = {sequence for sequence, _ in labels}
    if len(sequences) == 1 and sequences.isdisjoint(map(name, streams)):
        if len(streams) > 1:
            raise ConfigurationError(
                f"labels of one stream, but there are {streams[0]} and {streams[1]}: it is not "
                "clear which is meant; fix: name it in the labels, or evaluate one bag at a time"
            )
        name = dict.fromkeys(streams, next(iter(sequences))).__getitem__
    pairs = ((frame, labels.get((name(frame.stream), frame.number))) for frame in frames)
    return {(at.stream, at.number): label for at, label in pairs if label is not None}
