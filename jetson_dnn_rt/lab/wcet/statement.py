"""Statement about the worst case of one campaign: never a number without its verdict."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any


class Support(str, enum.Enum):
    """How far a bound is backed by the sample."""

    SUPPORTED = "supported"
    """The sample itself reaches down to this exceedance: n * p >= a few."""
    EXTRAPOLATED = "extrapolated"
    """The tests passed, but the bound lies beyond what was seen: it rests on the fitted tail."""
    UNPROVEN = "unproven"
    """A test failed or the sample is too small: there is no bound, only what was seen."""


@dataclass(frozen=True)
class TestResult:
    """Result of a test of a condition that the bound rests on (``KPSS``, ``Ljung-Box``, ...).

    Statistic and p value are NaN where the test has none; `meaning` is the result in plain words.
    """

    __test__ = False  # pytest: this is no test class

    name: str
    statistic: float
    p_value: float
    passed: bool
    meaning: str


@dataclass(frozen=True)
class Bound:
    """A quantile of the execution time at one exceedance probability per frame.

    Estimate and upper bound (at the confidence of the campaign) are NaN where it is unproven.
    The method is ``order statistics``, ``GPD`` or ``GEV``: of two fits the one with the larger
    upper bound.
    """

    exceedance: float
    support: Support
    estimate_ns: float
    upper_ns: float
    method: str


@dataclass(frozen=True)
class Campaign:
    """Findings about the N times of one (model, variant, clocks, cohort), without warm-up."""

    title: str
    count: int
    best_ns: float
    mean_ns: float
    p50_ns: float
    p99_ns: float
    hwm_ns: float
    """High-water mark; never called WCET."""
    support: Support
    """`UNPROVEN` as soon as one test failed, else the weakest of the bounds that were given."""
    smallest_supported: float
    """Least exceedance that the sample supports without extrapolation; NaN for none."""
    confidence: float
    bounds: tuple[Bound, ...]
    """By falling exceedance."""
    tests: tuple[TestResult, ...]
    extremal_index: float
    """1 = exceedances come singly; 1 / it = mean length of their clusters."""
    longest_burst: int
    """Longest run of consecutive jobs above the 99 % quantile."""
    rule_of_three: float
    """Without any model: nothing above the high-water mark in N runs, so the probability of it is
    below this at the confidence (3 / N at 95 %)."""
    statement: str
    """One sentence: x ms at p per frame, confidence, N, tests, platform; or why there is none."""
    advice: tuple[str, ...]
    """What to do next, most useful first."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: times in milliseconds, None for NaN."""
        return {
            "title": self.title,
            "verdict": self.support.value,
            "statement": self.statement,
            "count": self.count,
            "best_ms": self.best_ns / 1e6,
            "mean_ms": self.mean_ns / 1e6,
            "p50_ms": self.p50_ns / 1e6,
            "p99_ms": self.p99_ns / 1e6,
            "high_water_mark_ms": self.hwm_ns / 1e6,
            "confidence": self.confidence,
            "smallest_supported": drop_nan(self.smallest_supported),
            "bounds": [
                {
                    "exceedance": bound.exceedance,
                    "verdict": bound.support.value,
                    "estimate_ms": drop_nan(bound.estimate_ns / 1e6),
                    "upper_ms": drop_nan(bound.upper_ns / 1e6),
                    "method": bound.method,
                }
                for bound in self.bounds
            ],
            "tests": [
                {
                    "name": test.name,
                    "statistic": drop_nan(test.statistic),
                    "p_value": drop_nan(test.p_value),
                    "passed": test.passed,
                    "meaning": test.meaning,
                }
                for test in self.tests
            ],
            "extremal_index": drop_nan(self.extremal_index),
            "longest_burst": self.longest_burst,
            "rule_of_three": self.rule_of_three,
            "advice": list(self.advice),
        }


def drop_nan(value: float) -> float | None:
    """Replace NaN, which JSON lacks, by None."""
    return None if math.isnan(value) else value
