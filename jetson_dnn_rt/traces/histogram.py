"""Histogram of times in fixed memory: every value to three digits, merged without loss.

Buckets are those of HdrHistogram (Tene, 2012): within each power of two of the value the same
number of equal buckets, so that the relative error is bounded and recording is a few shifts. Two
histograms merge by adding counts, hence merged parts equal the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

SUB_BUCKET_BITS = 10
"""1024 buckets per power of two: a value is known to 1/1024, a tenth of a percent."""

LARGEST_BITS = 40
"""Up to 2^40 ns = 18 minutes; longer times count as that."""

_SUB_BUCKETS = 1 << SUB_BUCKET_BITS
BUCKETS = (LARGEST_BITS - SUB_BUCKET_BITS + 1) * _SUB_BUCKETS
"""Of a histogram: 31 rows of 1024."""

_LARGEST = (1 << LARGEST_BITS) - 1


def bucket_of(value: int) -> int:
    """Number of the bucket of a value, which is clipped to [0, 2^40 - 1]."""
    if value < 2 * _SUB_BUCKETS:
        return max(value, 0)
    value = min(value, _LARGEST)
    # Above the first 2^(bits + 1) values the leading bit is known from the row.
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
    below it. Best and highest are kept exactly.
    """

    __slots__ = ("_counts", "best_ns", "count", "hwm_ns", "total_ns")

    def __init__(self) -> None:
        self._counts: list[int] = [0] * BUCKETS
        self.count = 0
        self.total_ns = 0
        self.best_ns = 0
        self.hwm_ns = 0

    def record(self, value_ns: int) -> int:
        """Take one more value, under a microsecond; returns its bucket."""
        self.best_ns = value_ns if self.count == 0 or value_ns < self.best_ns else self.best_ns
        if value_ns > self.hwm_ns:
            self.hwm_ns = value_ns
        self.count += 1
        self.total_ns += value_ns
        bucket = bucket_of(value_ns)
        self._counts[bucket] += 1
        return bucket

    def merge(self, other: Histogram) -> None:
        """Add what another has seen."""
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
        """How many values lie in buckets above that of a value."""
        return sum(self._counts[bucket_of(value_ns) + 1 :])

    def to_dict(self) -> dict[str, object]:
        """For JSON: only buckets that are not empty."""
        return {
            "count": self.count,
            "total_ns": self.total_ns,
            "best_ns": self.best_ns,
            "hwm_ns": self.hwm_ns,
            "buckets": {str(i): c for i, c in enumerate(self._counts) if c},
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Histogram:
        """Read what `to_dict` wrote; ValueError when it is no histogram or does not add up."""
        made = cls()
        try:
            buckets: Mapping[str, int] = fields["buckets"]  # type: ignore[assignment]
            for bucket, count in buckets.items():
                if count < 0 or int(bucket) < 0:
                    raise ValueError(f"bucket {bucket}: {count}")
                made._counts[int(bucket)] = int(count)
            for name in ("count", "total_ns", "best_ns", "hwm_ns"):
                setattr(made, name, int(fields[name]))  # type: ignore[call-overload]
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a histogram: {error}") from error
        if sum(made._counts) != made.count:
            raise ValueError(f"not a histogram: {made.count} values, but other counts")
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def merge_histograms(parts: Iterable[Histogram]) -> Histogram:
    """All of them in one."""
    whole = Histogram()
    for part in parts:
        whole.merge(part)
    return whole


def histogram_of(times_ns: npt.ArrayLike) -> Histogram:
    """Histogram of an array of times in nanoseconds, [N]."""
    made = Histogram()
    for time_ns in np.asarray(times_ns, dtype=np.int64).tolist():
        made.record(time_ns)
    return made
