"""How much slower a task runs than its profile says: the part of the world no table knows."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import ceil

FRAMES = 64


class SlowdownWindow:
    """Observed over expected execution time of the last frames of one task.

    1.0 = as profiled at the clocks that were in effect. Whatever else slows the machine shows
    here: other stages running side by side, a co-runner, a throttling board.

    Parameters
    ----------
    frames : int
        Number of frames remembered.
    """

    __slots__ = ("_recent", "_sorted", "_sum")

    def __init__(self, frames: int = FRAMES) -> None:
        self._recent: deque[float] = deque(maxlen=frames)
        self._sorted: list[float] = []
        self._sum = 0.0

    def __len__(self) -> int:
        return len(self._sorted)

    def observe(self, ratio: float) -> None:
        """Take the ratio of one frame."""
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._sum -= oldest
        self._recent.append(ratio)
        insort(self._sorted, ratio)
        self._sum += ratio

    @property
    def mean(self) -> float:
        """Mean over the window; 1 before anything was seen."""
        return self._sum / len(self._sorted) if self._sorted else 1.0

    @property
    def latest(self) -> float:
        """Of the last frame; 1 before anything was seen."""
        return self._recent[-1] if self._recent else 1.0

    @property
    def maximum(self) -> float:
        """Largest in the window; 1 before anything was seen."""
        return self._sorted[-1] if self._sorted else 1.0

    def quantile(self, share: float) -> float:
        """Smallest ratio that covers this share of the window; 1 before anything was seen."""
        if not self._sorted:
            return 1.0
        return self._sorted[max(0, ceil(share * len(self._sorted)) - 1)]
