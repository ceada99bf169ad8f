# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detects drift of execution times from their profile: a CUSUM chart of p99 exceedances.

Of independent times with the profiled distribution, one in a hundred exceeds the p99. The chart
(Page 1954; for proportions Reynolds & Stoumbos, "A CUSUM Chart for Monitoring a Proportion When
Inspecting Continuously", Journal of Quality Technology 31(1), 1999) adds the log-likelihood ratio
of "three times as many" against "as many as the profile allows", and alarms at a limit that such
times reach once in a million frames. With the ratio's two steps rounded to a whole proportion it
runs on integers: down one for a time within the p99, up for one above.

The p99 of a profile of n times is uncertain: "as many as the profile allows" is the upper 95 %
bound of the exceedance of its order statistic, 1.7 % for n = 1,000. Misses come in bursts: where
times are dependent, false alarms are more frequent than designed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.traces.summary import order_statistic

PROFILED_QUANTILE = 0.99
LEAST_TIMES = 100
"""Least number of times of a profile: the p99 of fewer would be their maximum."""

LEARNED_TIMES = 1000
"""First times, used as the profile where none is given: half a minute at 30 Hz."""

RATIO = 3.0
"""Factor above the allowed share of exceedances that the chart detects."""

FRAMES_PER_FALSE_ALARM = 1_000_000
"""Mean frames per false alarm, for independent times: nine hours at 30 Hz."""

CONFIDENCE = 0.95
_RECENT = 512.0
"""Number of frames in the share of recent exceedances."""


@dataclass(frozen=True)
class TimeProfile:
    """The p99 with which times are compared, and the number of profiled times it is based on."""

    p99_ns: int
    count: int

    @classmethod
    def of(cls, times_ns: Sequence[int]) -> TimeProfile:
        """Profile of at least `LEAST_TIMES` times in nanoseconds, in any order."""
        if len(times_ns) < LEAST_TIMES:
            raise ValueError(f"times_ns must hold at least {LEAST_TIMES} times: {len(times_ns)}")
        return cls(order_statistic(sorted(times_ns), PROFILED_QUANTILE), len(times_ns))

    @property
    def exceedance(self) -> float:
        """Largest share of times above `p99_ns` that is compatible with the profile."""
        return bound_exceedance(self.count)


@dataclass(frozen=True)
class Chart:
    """An integer CUSUM: down 1, but not below 0, or up by `up`; alarm from `limit` on."""

    up: int
    limit: int


@functools.lru_cache(maxsize=64)
def bound_exceedance(count: int) -> float:
    """Upper 95 % bound of the exceedance of the p99 of `count` independent times.

    The p for which so few exceedances as the order statistic leaves above it would be a 5 %
    chance: P(binomial(count, p) <= above) = 0.05 (Clopper & Pearson 1934).
    """
    above = count - math.ceil(PROFILED_QUANTILE * count)
    index = np.arange(1, above + 1)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log((count - index + 1) / index))])
    exceeding = np.arange(above + 1)
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        p = (low + high) / 2
        terms = log_choose + exceeding * math.log(p) + (count - exceeding) * math.log1p(-p)
        if np.exp(terms).sum() > 1.0 - CONFIDENCE:
            low = p
        else:
            high = p
    return high


def run_length(chart: Chart, share: float) -> float:
    """Mean number of independent times until the alarm, from a sum of 0; exact (Markov chain).

    `share` of the times exceed the p99.
    """
    size = chart.limit
    equations = np.eye(size)
    for state in range(size):
        equations[state, max(state - 1, 0)] -= 1.0 - share
        if state + chart.up < size:
            equations[state, state + chart.up] -= share
    return float(np.linalg.solve(equations, np.ones(size))[0])


@functools.lru_cache(maxsize=64)
def design_chart(exceedance: float, frames: float = FRAMES_PER_FALSE_ALARM) -> Chart:
    """Design a chart that separates `RATIO` x `exceedance`, below 1, from `exceedance`.

    `frames` is the least mean number of frames between two false alarms.
    """
    if not 0.0 < exceedance * RATIO < 1.0:
        raise ValueError(f"exceedance must be in (0, {1.0 / RATIO:.3f}): {exceedance}")
    p0, p1 = exceedance, RATIO * exceedance
    within = math.log((1.0 - p0) / (1.0 - p1))
    above = math.log(p1 / p0)
    up = max(1, round(above / within))
    # Once the sum is large, the run length grows with it geometrically: double, then bisect.
    high = up
    while run_length(Chart(up, high), p0) < frames:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if run_length(Chart(up, middle), p0) < frames:
            low = middle
        else:
            high = middle
    return Chart(up, high)


class DriftMonitor:
    """Compares times, one by one, with a profile; a microsecond each. Not thread-safe.

    Without a profile the first `LEARNED_TIMES` times become it. The alarm starts when the sum
    reaches the chart's limit and ends when it is back at 0: after at most two limits' worth of
    frames within the p99, some 20 s at 30 Hz.
    """

    __slots__ = ("_chart", "_first", "_share", "_sum", "alarm", "alarms", "judged", "profile")

    def __init__(self, profile: TimeProfile | None = None) -> None:
        self.profile = profile
        # Designed before the first time arrives: it takes some milliseconds.
        self._chart = design_chart(
            bound_exceedance(LEARNED_TIMES) if profile is None else profile.exceedance
        )
        self._first: list[int] = []
        self._sum = 0
        self.alarm = False
        self.alarms = 0
        self.judged = 0
        self._share = 0.0

    @property
    def learned(self) -> int:
        """Number of times collected for a profile that is not complete yet."""
        return len(self._first)

    @property
    def recent(self) -> float:
        """Share of the last frames that exceeded the p99, exponentially aged; NaN before any."""
        seen = 1.0 - (1.0 - 1.0 / _RECENT) ** self.judged
        return self._share / seen if self.judged else math.nan

    @property
    def level(self) -> float:
        """Ratio of the sum to its limit: 1 starts an alarm, 0 ends it. NaN while learning."""
        return math.nan if self.profile is None else self._sum / self._chart.limit

    def observe(self, time_ns: int) -> None:
        """Add one more time."""
        profile, chart = self.profile, self._chart
        if profile is None:
            self._learn(time_ns)
            return
        self.judged += 1
        if time_ns > profile.p99_ns:
            # Bounded, or hours of drift would take hours to clear.
            self._sum = min(self._sum + chart.up, 2 * chart.limit)
            self._share += (1.0 - self._share) / _RECENT
            if self._sum >= chart.limit and not self.alarm:
                self.alarm = True
                self.alarms += 1
        else:
            self._share -= self._share / _RECENT
            if self._sum > 0:
                self._sum -= 1
            if self._sum == 0:
                self.alarm = False

    def _learn(self, time_ns: int) -> None:
        self._first.append(time_ns)
        if len(self._first) == LEARNED_TIMES:
            self.profile = TimeProfile.of(self._first)
            self._first = []
