# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Log of clock configurations: filled by the code that sets clocks, queried by trace writers."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

ENTRIES = 4096
"""Number of changes kept. Clocks change at most once per frame: this is two minutes at 30 Hz, and
a trace queries entries that are about a second old."""

_BEGINNING = -(1 << 63)
_time_of = itemgetter(0)


class ClockLog:
    """Times and clock configurations, in fixed memory: the last `entries` changes at least.

    One thread appends, any may query. `configuration` applies from the beginning; empty = unknown.
    """

    def __init__(self, configuration: str = "", entries: int = ENTRIES) -> None:
        if entries < 1:
            raise ValueError(f"entries must be >= 1: {entries}")
        self._most = 2 * entries
        self._entries = [(_BEGINNING, configuration)]

    def append(self, time_ns: int, configuration: str) -> None:
        """Append a configuration, as read back, and the steady time when it takes effect.

        A change earlier than the previous one counts from that one's time.
        """
        last_ns, last = self._entries[-1]
        if configuration == last:
            return
        if len(self._entries) >= self._most:
            # A new list, so that readers of the old one are not affected.
            self._entries = self._entries[self._most // 2 :]
        self._entries.append((max(time_ns, last_ns), configuration))

    def at(self, time_ns: int) -> str:
        """Configuration at a time; the oldest known one for times before it."""
        entries = self._entries
        return entries[max(0, bisect_right(entries, time_ns, key=_time_of) - 1)][1]

    @property
    def last(self) -> str:
        """The present configuration."""
        return self._entries[-1][1]
