"""Histogram with exponential decay: a value weighs half after `half_life` further values.

Forward decay (Cormode, Shkapenyuk, Srivastava & Xu, "Forward Decay: A Practical Time Decay Model
for Streaming Systems", ICDE 2009): instead of shrinking everything that was seen at each new
value, the new value gets a larger weight. Weights are brought back to 1 before they overflow,
which happens once in tens of half-lives. Buckets are those of `jetson_dnn_rt.traces.histogram`.
"""

from __future__ import annotations

import math
from array import array

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.traces.histogram import BUCKETS, bucket_of, bucket_top

HALF_LIFE = 2048
"""Values after which one counts half; all together they then weigh 2955, three beyond p99.9."""

_RESCALE_AT = 1e12

_FORGOTTEN = 1e-9
"""A share of the weight below which nothing is remembered: 30 half-lives of a single value."""


class AgedHistogram:
    """Weighted counts of times in nanoseconds, in 250 kB.

    Not thread-safe. Percentiles are upper edges of buckets; with an infinite `half_life` they
    equal those of `Histogram`.
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
        """Take one more value; under a microsecond."""
        self.add(bucket_of(value_ns))

    def add(self, bucket: int) -> None:
        """Take one more value, of which the bucket is known."""
        weight = self._weight
        self._weights[bucket] += weight
        if bucket > self._top:
            self._top = bucket
        if bucket < self._bottom:
            self._bottom = bucket
        self._weight = weight = weight * self._growth
        if weight > _RESCALE_AT:
            self._rescale(1.0 / weight)
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
        # Rounding must not ask for one value more, nor the last trace of one long ago for it.
        shares = [percent / 100.0 * (1.0 - _FORGOTTEN) * total for percent in percents]
        found = np.searchsorted(covered, shares)
        return tuple(bucket_top(self._bottom + int(bucket)) for bucket in found)

    @property
    def weight(self) -> float:
        """Total weight, where the next value weighs 1: how many are behind the percentiles."""
        return math.fsum(self._view()) / self._weight

    def _view(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self._weights, np.float64)

    def _rescale(self, factor: float) -> None:
        view = self._view()
        view *= factor
