"""Statistics of execution times while they are measured, in bounded memory.

No distribution is fitted here. The bound on a high quantile comes from order statistics alone:
if the times are independent and identically distributed, the number of n samples that exceed the
(1 - p) quantile is binomial(n, p), so the (j + 1)-th largest sample is an upper bound of that
quantile with confidence 1 - P(binomial(n, p) <= j) (David & Nagaraja, Order Statistics, 3rd ed.,
2003, section 7.1). The sample is too small for any bound while (1 - p)^n > 1 - confidence.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

CONFIDENCE = 0.95
WINDOW = 1024
"""Samples behind p50 and p99: machines throttle, so these describe the last while."""

LARGEST = 64
"""Largest samples remembered since the start: enough for a bound from the 64th largest."""


def count_exceeding(count: int, exceedance: float, confidence: float = CONFIDENCE) -> int:
    """How many of the largest samples may lie above an upper bound of the (1 - p) quantile.

    Parameters
    ----------
    count : int
        Samples, >= 0.
    exceedance : float
        p, in (0, 1).
    confidence : float
        Least probability that the bound holds, in (0, 1).

    Returns
    -------
    int
        The largest j <= `LARGEST` - 1 for which the (j + 1)-th largest sample is such a bound;
        -1 where the sample is too small for any.
    """
    term = math.exp(count * math.log1p(-exceedance))
    odds = exceedance / (1.0 - exceedance)
    below, cumulated = -1, 0.0
    for index in range(min(LARGEST, count)):
        cumulated += term
        if cumulated > 1.0 - confidence:
            break
        below = index
        term *= (count - index) / (index + 1) * odds
    return below


class OnlineStatistics:
    """Count, best, mean, percentiles, high-water mark and quantile bound of one time.

    Not thread-safe. An observation costs about a microsecond; the percentiles are sorted when
    they are read.

    Parameters
    ----------
    exceedance : float
        p of the bounded quantile 1 - p, in (0, 1).
    """

    def __init__(self, exceedance: float = 1e-3) -> None:
        if not 0.0 < exceedance < 1.0:
            raise ValueError(f"exceedance must be in (0, 1): {exceedance}")
        self.exceedance = exceedance
        self.count = 0
        self.best_ns = 0
        self.hwm_ns = 0
        self._total_ns = 0
        self._recent: deque[int] = deque(maxlen=WINDOW)
        self._largest: list[int] = []

    def observe(self, time_ns: int) -> None:
        """Take one more time."""
        self.best_ns = time_ns if self.count == 0 else min(self.best_ns, time_ns)
        self.hwm_ns = max(self.hwm_ns, time_ns)
        self.count += 1
        self._total_ns += time_ns
        self._recent.append(time_ns)
        if len(self._largest) < LARGEST:
            heapq.heappush(self._largest, time_ns)
        elif time_ns > self._largest[0]:
            heapq.heapreplace(self._largest, time_ns)

    @property
    def mean_ns(self) -> float:
        """Mean since the start; NaN without a sample."""
        return self._total_ns / self.count if self.count else math.nan

    def percentile_ns(self, percent: float) -> int:
        """Smallest of the last `WINDOW` times that covers `percent` of them; 0 without any."""
        if not 0.0 < percent <= 100.0:
            raise ValueError(f"percent must be in (0, 100]: {percent}")
        if not self._recent:
            return 0
        return sorted(self._recent)[math.ceil(percent / 100.0 * len(self._recent)) - 1]

    def pwcet_ns(self) -> float:
        """Upper bound of the 1 - exceedance quantile at 95 % confidence; NaN if not known yet."""
        above = count_exceeding(self.count, self.exceedance)
        return math.nan if above < 0 else float(sorted(self._largest, reverse=True)[above])
