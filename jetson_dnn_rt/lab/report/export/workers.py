# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tracks on which the stages of all tasks are shown; which worker ran one is not traced."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

_REMEMBERED = 256
"""Stages remembered on each worker's track: jobs are traced in the order of completion, so one may
begin before others that are already placed."""


class Workers:
    """Tracks, numbered from 1, on none of which two stages overlap."""

    def __init__(self) -> None:
        self._tracks: list[list[tuple[int, int]]] = []

    @property
    def count(self) -> int:
        """Number of tracks so far."""
        return len(self._tracks)

    def place(self, start_ns: int, end_ns: int) -> int:
        """Take this time on the first track where it is free; return its number."""
        for number, track in enumerate(self._tracks, 1):
            if _take(track, start_ns, end_ns):
                return number
        self._tracks.append([(start_ns, end_ns)])
        return len(self._tracks)


def _take(track: list[tuple[int, int]], start_ns: int, end_ns: int) -> bool:
    """Place a stage if its time is free; return whether it was placed."""
    index = bisect_right(track, start_ns, key=itemgetter(0))
    if index and track[index - 1][1] > start_ns:
        return False
    if index < len(track) and track[index][0] < end_ns:
        return False
    track.insert(index, (start_ns, end_ns))
    del track[:-_REMEMBERED]
    return True
