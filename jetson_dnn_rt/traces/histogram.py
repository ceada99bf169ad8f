# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Histograms of times in fixed memory: every value to three digits, plain or exponentially aged.

Buckets are those of HdrHistogram (Tene, 2012): within each power of two of the value the same
number of equal buckets, so that the relative error is bounded and recording is a few shifts. Two
histograms merge by adding counts, hence merged parts equal the whole.
"""

from __future__ import annotations

import math
from array import array

import numpy as np
import numpy.typing as npt

SUB_BUCKET_BITS = 10
"""1024 buckets per power of two: a value is known to 1/1024, a tenth of a percent."""

LARGEST_BITS = 40
"""Up to 2^40 ns = 18 minutes; longer times are clipped."""

_SUB_BUCKETS = 1 << SUB_BUCKET_BITS
BUCKETS = (LARGEST_BITS - SUB_BUCKET_BITS + 1) * _SUB_BUCKETS
"""Number of buckets of a histogram: 31 rows of 1024."""

_LARGEST = (1 << LARGEST_BITS) - 1

HALF_LIFE = 2048
"""Values after which one has half its weight; all together then weigh 2955, three beyond p99.9."""

_RESCALE_AT = 1e12

_FORGOTTEN = 1e-9
"""Share of the weight below which values are forgotten: 30 half-lives of a single value."""


def bucket_of(value: int) -> int:
    """Number of the bucket of a value, which is clipped to [0, 2^40 - 1]."""
    if value < 2 * _SUB_BUCKETS:
        return max(value, 0)
    value = min(value, _LARGEST)
    # Above the first 2^(bits + 1) values the row implies the leading bit.
    shift = value.bit_length() - SUB_BUCKET_BITS - 1
    return (shift << SUB_BUCKET_BITS) + (value >> shift)


def bucket_top(bucket: int) -> int:
    """The largest value of a bucket."""
    row, column = divmod(bucket, _SUB_BUCKETS)
    if row == 0:
        return bucket
    shift = row - 1
    return ((column + _SUB_BUCKETS + 1) << shift) - 1


class Histogram:
    """Counts of times in nanoseconds, in 250 kB.

    Not thread-safe. Percentiles are upper edges of buckets: at most 1/1024 above the sample, never
    below it. The lowest and highest values are exact.
    """

    __slots__ = ("_counts", "best_ns", "count", "hwm_ns", "total_ns")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * BUCKETS
        self.count = 0
        self.total_ns = 0
        self.best_ns = 0
        self.hwm_ns = 0

    def record(self, value_ns: int) -> int:
        """Add one more value in under a microsecond; returns its bucket."""
        self.best_ns = value_ns if self.count == 0 or value_ns < self.best_ns else self.best_ns
        if value_ns > self.hwm_ns:
            self.hwm_ns = value_ns
        self.count += 1
        self.total_ns += value_ns
        bucket = bucket_of(value_ns)
        self._counts[bucket] += 1
        return bucket

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram."""
        if other.count:
            best = other.best_ns if self.count == 0 else min(self.best_ns, other.best_ns)
            self.best_ns, self.hwm_ns = best, max(self.hwm_ns, other.hwm_ns)
        self.count += other.count
        self.total_ns += other.total_ns
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]

    @property
    def mean_ns(self) -> float:
        """Exact mean; NaN without a sample."""
        return self.total_ns / self.count if self.count else math.nan

    def percentile_ns(self, percent: float) -> int:
        """Smallest bucket edge that covers `percent`, in (0, 100]; 0 without any value."""
        if not 0.0 < percent <= 100.0:
            raise ValueError(f"percent must be in (0, 100]: {percent}")
        left = math.ceil(percent / 100.0 * self.count)
        for bucket, count in enumerate(self._counts):
            left -= count
            if left <= 0:
                return min(bucket_top(bucket), self.hwm_ns) if self.count else 0
        return self.hwm_ns

    def count_above(self, value_ns: int) -> int:
        """Number of values in buckets above that of a value."""
        return sum(self._counts[bucket_of(value_ns) + 1 :])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


class AgedHistogram:
    """Weighted counts of times in nanoseconds, in 250 kB; not thread-safe.

    A value has half its weight after `half_life` further values. With an infinite half-life
    percentiles are those of `Histogram`. Forward decay (Cormode, Shkapenyuk, Srivastava & Xu,
    "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009): instead of
    shrinking all earlier weights at each new value, the new value gets a larger weight. Weights
    are rescaled to 1 before they overflow, which happens once in tens of half-lives.
    """

    __slots__ = ("_bottom", "_growth", "_top", "_weight", "_weights", "half_life")

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        if not half_life > 0.0:
            raise ValueError(f"half_life must be > 0: {half_life}")
        self.half_life = half_life
        self._growth = 2.0 ** (1.0 / half_life)
        self._weight = 1.0
        # The buckets in use: times of one task lie in a few rows.
        self._bottom, self._top = BUCKETS - 1, 0
        self._weights = array("d", bytes(8 * BUCKETS))

    def record(self, value_ns: int) -> None:
        """Add one more value in under a microsecond."""
        self.add(bucket_of(value_ns))

    def add(self, bucket: int) -> None:
        """Add one more value by its bucket."""
        weight = self._weight
        self._weights[bucket] += weight
        if bucket > self._top:
            self._top = bucket
        if bucket < self._bottom:
            self._bottom = bucket
        self._weight = weight = weight * self._growth
        if weight > _RESCALE_AT:
            view = self._view()
            view *= 1.0 / weight
            self._weight = 1.0

    def merge(self, other: AgedHistogram) -> None:
        """Add another's values with their ages; ValueError when its half-life differs."""
        if other.half_life != self.half_life:
            raise ValueError(f"half_life must be {self.half_life}: {other.half_life}")
        self._view()[:] += other._view() * (self._weight / other._weight)
        self._bottom = min(self._bottom, other._bottom)
        self._top = max(self._top, other._top)

    def percentiles_ns(self, *percents: float) -> tuple[int, ...]:
        """Smallest bucket edges that cover each of `percents`, in (0, 100], of the weight.

        0 without any value.
        """
        for percent in percents:
            if not 0.0 < percent <= 100.0:
                raise ValueError(f"percent must be in (0, 100]: {percent}")
        if self._bottom > self._top:
            return (0,) * len(percents)
        covered = np.cumsum(self._view()[self._bottom : self._top + 1])
        total = float(covered[-1])
        # Neither rounding nor the remaining weight of an old value may select one value more.
        shares = [percent / 100.0 * (1.0 - _FORGOTTEN) * total for percent in percents]
        found = np.searchsorted(covered, shares)
        return tuple(bucket_top(self._bottom + int(bucket)) for bucket in found)

    def effective_count(self, count: int) -> int:
        """How many values the weight of `count` is worth, where the newest weighs 1."""
        if math.isinf(self.half_life):
            return count
        kept = 1.0 / self._growth
        return int((1.0 - kept**count) / (1.0 - kept))

    @property
    def weight(self) -> float:
        """Total weight, where the next value weighs 1: effective sample size of percentiles."""
        return math.fsum(self._view()) / self._weight

    def _view(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self._weights, np.float64)
