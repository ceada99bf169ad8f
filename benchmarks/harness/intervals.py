# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Judging by paired rounds: an interval of the median round, and what it says of a bar.

In every round all sides are measured anew, in an order that changes (`timing.take_turns`). A round
gives one value for a bar: the ratio of two sides, or their difference, so that what the machine
does for minutes is in both. Of these values there is a two-sided 95 % interval of their median. A
bar is *passed* where the interval is wholly on its good side, *NOT passed* where it is wholly on
its bad side, and otherwise *not decided*.

The interval is that of the sign test: its ends are the k-th least and the k-th largest round, with
k from the binomial distribution (of 10 rounds the 2nd and the 9th, which cover the median with
97.9 %). It assumes that rounds are independent, and nothing else. Ratios of tail times and of
small counts are skewed, which rules out Wilcoxon's narrower interval: that one assumes symmetry.
A bootstrap covers too little with ten rounds. And a ratio may be infinite, where the other side
delivered nothing: order statistics do not mind.

The verdict of a benchmark with many bars is strict on passing, for every bar has to pass by
itself; of 40 bars that hold exactly, one is NOT passed by chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.tables import UNDECIDED, Verdict

CONFIDENCE = 0.95  # 1 - 2 / 40
LEAST_ROUNDS = 10
"""Fewer rounds decide nothing, even where all of them agree."""


@dataclass(frozen=True)
class Interval:
    """Median of the rounds' values, and the ends of its interval.

    The ends are infinite where there are too few rounds for any.
    """

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Interval:
        """Find the interval of at least one value; `ValueError` for none, or a NaN."""
        ordered = sorted(values)
        if not ordered or any(map(math.isnan, ordered)):
            raise ValueError(f"an interval needs values that are numbers: {ordered}")
        rank = find_rank(len(ordered))
        low, high = (ordered[rank - 1], ordered[-rank]) if rank else (-math.inf, math.inf)
        return cls(statistics.median(ordered), low, high, len(ordered))

    def judge(self, *, least: float = -math.inf, most: float = math.inf) -> Verdict:
        """Compare the interval with a bar, `least` or `most`; a value equal to the bar is good."""
        if self.rounds < LEAST_ROUNDS:
            return UNDECIDED
        if least <= self.low and self.high <= most:
            return True
        return False if self.high < least or self.low > most else UNDECIDED

    def to_dict(self) -> dict[str, float | None]:
        """The interval for JSON; an infinite end is None."""
        ends = {"median": self.median, "low": self.low, "high": self.high}
        return {
            **{name: value if math.isfinite(value) else None for name, value in ends.items()},
            "rounds": self.rounds,
        }


def find_rank(rounds: int) -> int:
    """Find the rank of the interval's ends among the ordered rounds; 0 = there are too few rounds.

    Exact integers in place of `scipy.stats.quantile_test`, with which a test compares it: a run of
    hours must not end for want of a library that it does not need otherwise.
    """
    rank = outside = 0
    # So many or fewer are on one side of the median with at most 2.5 %, as heads of a fair coin.
    while (outside := outside + math.comb(rounds, rank)) * 40 <= 1 << rounds:
        rank += 1
    return rank


def divide(one: float, other: float) -> float:
    """Find the ratio of two figures of a round, neither below 0; both 0 or infinite = the same."""
    if one == other:
        return 1.0
    if other == 0.0 or one == math.inf:
        return math.inf
    return one / other


def compare(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Find the interval of the ratio of two sides, round by round."""
    return Interval.of(divide(*pair) for pair in zip(one, other, strict=True))


def show_interval(found: Mapping[str, Any] | None, style: str = ".2f") -> str | None:
    """Format an interval of a result file as ``1.02 (0.98 to 1.05)``; None if it has none."""
    if found is None:
        return None
    median, low, high = (_show(found[name], style) for name in ("median", "low", "high"))
    return f"{median} ({low} to {high})"


def _show(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)
