# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which frames of two results are the same: by photo, stamp or number, checked by the picture.

`run` names no stream and stamps the frames of a video when they are played; `evaluate` names the
bag and has its stamps. So neither alone tells that two frames are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.lab.agree.result_files import FrameResult, TaskResults

SAME_LEVELS = 3
"""Grey levels by which thumbnails of one picture may differ.

JPEG of quality 90 changed them by 3 at most; from one frame to the next the largest change was 4
at least, 20 usually (three videos).
"""

Key = tuple[str, str | int | None]
"""A frame: the stream, empty where there is one; its file, stamp or number."""

Frames = dict[Key, FrameResult]


@dataclass(eq=False)
class Matching:
    """Frames of A and of B, in which those that are the same have the same key."""

    a: Frames
    b: Frames
    by: str  # file, stamp or number
    left_out: int = 0  # frames of one key that are different pictures, in neither `a` nor `b`
    first: str = ""  # of them, and what differs
    unchecked: int = 0  # frames with results in both, one of them without a thumbnail
    nothing: str = ""  # why `a` and `b` have no key in common; empty if they have one


def match_frames(a: TaskResults, b: TaskResults) -> Matching:
    """Match the frames of a task in two results.

    A stream's name counts where a result has several: two copies of a bag have different ones.
    Photos go by their file if all have one. Other frames go by their stamps if A and B share any,
    and no stamp comes twice; else by their number.
    """
    streams = _list_streams(a), _list_streams(b)
    apart = max(map(len, streams)) > 1
    by, first, second = _choose_key(list(a.frames.values()), list(b.frames.values()), apart)
    found = Matching(first, second, by)
    common = [key for key in first if key in second]
    if not common:
        found.nothing = _explain_nothing(found, *streams)
    for key in common:
        one, other = first[key], second[key]
        if not (one.is_there and other.is_there):
            continue
        if not (one.thumbnail and other.thumbnail):
            found.unchecked += 1
        elif why := describe_difference(one, other):
            found.first = found.first or f"frame {one.name}: {why}"
            found.left_out += 1
            del first[key], second[key]
    return found


def describe_difference(a: FrameResult, b: FrameResult) -> str:
    """What differs between the pictures of two frames; empty where they are the same."""
    if a.size != b.size:
        in_a, in_b = (f"{width}x{height}" for width, height in (a.size, b.size))
        return f"{in_a} pixels in A, {in_b} in B"
    levels = [np.frombuffer(one.thumbnail, np.uint8).astype(np.int64) for one in (a, b)]
    most = int(np.abs(levels[0] - levels[1]).max())
    return f"the thumbnails differ by {most} of 255 grey levels" if most > SAME_LEVELS else ""


def _list_streams(results: TaskResults) -> list[str]:
    return list(dict.fromkeys(frame.stream for frame in results.frames.values()))


_IDENTITIES: dict[str, Callable[[FrameResult], str | int | None]] = {
    "file": lambda frame: frame.file or None,
    "stamp": lambda frame: frame.stamp_ns,
    "number": lambda frame: frame.frame,
}


def _choose_key(
    a: Sequence[FrameResult], b: Sequence[FrameResult], apart: bool
) -> tuple[str, Frames, Frames]:
    """Choose what the frames go by, and key them by it, `apart` by their streams, too."""
    for by, identify in _IDENTITIES.items():
        first, second = (
            {(one.stream if apart else "", identify(one)): one for one in side} for side in (a, b)
        )
        unique = len(first) == len(a) and len(second) == len(b)
        complete = all(identity is not None for _, identity in (*first, *second))
        shared = by == "file" or first.keys() & second.keys()
        if by == "number" or (unique and complete and shared):
            break
    return by, first, second


def _explain_nothing(found: Matching, in_a: Sequence[str], in_b: Sequence[str]) -> str:
    """Say why no frame of A is in B."""
    if not {*in_a} & {*in_b} and max(len(in_a), len(in_b)) > 1:
        named = (", ".join(name or "one without a name" for name in side) for side in (in_a, in_b))
        return (
            "the streams are {} in A, {} in B: compare results of one stream, or of the same ones"
        ).format(*named)
    ends = []
    for side, frames in (("A", found.a), ("B", found.b)):
        first, *_, last = [*frames.values()] * 2
        ends.append(f"{side} has {first.name} to {last.name}")
    return f"no frame of A is in B, by {found.by}: {', '.join(ends)}"
