"""Execution-time budgets: a high quantile of what was observed lately."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

WINDOW = 256


class BudgetEstimator:
    """Quantile of the last `window` execution times of one stage in one variant.

    A window, because machines throttle, warm up and get other neighbours; a quantile and not the
    mean, because a budget that half of the frames overrun keeps no deadline. Kept sorted: an
    observation costs about a microsecond, reading nothing.

    Parameters
    ----------
    quantile : float
        In (0, 1]; the budget is the smallest observed time that covers this share.
    window : int
        Number of observations remembered.
    """

    __slots__ = ("_recent", "_sorted", "budget_ns", "median_ns", "quantile")

    def __init__(self, quantile: float, window: int = WINDOW) -> None:
        self.quantile = quantile
        self._recent: deque[int] = deque(maxlen=window)
        self._sorted: list[int] = []
        self.budget_ns = 0
        self.median_ns = 0

    def __len__(self) -> int:
        return len(self._sorted)

    def observe(self, execution_time_ns: int) -> None:
        """Take one more execution time; the oldest goes when the window is full."""
        if len(self._recent) == self._recent.maxlen:
            del self._sorted[bisect_left(self._sorted, self._recent[0])]
        self._recent.append(execution_time_ns)
        insort(self._sorted, execution_time_ns)
        count = len(self._sorted)
        self.budget_ns = self._sorted[math.ceil(self.quantile * count) - 1]
        self.median_ns = self._sorted[(count - 1) // 2]

    def reset(self, execution_times_ns: Iterable[int]) -> None:
        """Forget everything but these: what was seen before no longer describes the machine."""
        self._recent.clear()
        self._sorted.clear()
        self.budget_ns = self.median_ns = 0
        for time_ns in execution_times_ns:
            self.observe(time_ns)
