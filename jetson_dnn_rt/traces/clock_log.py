"""Which clocks held when: written by who sets the clocks, asked by who writes a trace."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

ENTRIES = 4096
"""Changes that are remembered. Clocks change once a frame at most: two minutes of it at 30 Hz,
and a trace asks for what is a second old."""

_BEGINNING = -(1 << 63)
_time_of = itemgetter(0)


class ClockLog:
    """Times and clock configurations, in fixed memory.

    One thread appends, any may ask: there is one list, and an entry is in it or is not.

    Parameters
    ----------
    configuration : str
        What holds from the beginning; empty = unknown.
    entries : int
        Changes that are remembered at least.
    """

    def __init__(self, configuration: str = "", entries: int = ENTRIES) -> None:
        if entries < 1:
            raise ValueError(f"entries must be >= 1: {entries}")
        self._most = 2 * entries
        self._entries = [(_BEGINNING, configuration)]

    def append(self, time_ns: int, configuration: str) -> None:
        """Note that from a time on other clocks hold.

        Parameters
        ----------
        time_ns : int
            On the steady clock: when they take effect, not when they were asked for. A change
            that overtakes the one before counts from that one's time.
        configuration : str
            In the platform's words, as read back (`platforms.clocks.format_clocks`).
        """
        last_ns, last = self._entries[-1]
        if configuration == last:
            return
        if len(self._entries) >= self._most:
            # A new list: who reads the old one is not disturbed.
            self._entries = self._entries[self._most // 2 :]
        self._entries.append((max(time_ns, last_ns), configuration))

    def at(self, time_ns: int) -> str:
        """Configuration that held at a time; of what is forgotten, the first that is not."""
        entries = self._entries
        return entries[max(0, bisect_right(entries, time_ns, key=_time_of) - 1)][1]

    @property
    def last(self) -> str:
        """What holds now."""
        return self._entries[-1][1]
