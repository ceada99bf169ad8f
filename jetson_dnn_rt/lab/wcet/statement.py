# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Statement about the worst case of one campaign: never a number without its verdict."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


class Support(str, enum.Enum):
    """Support of a bound by the sample."""

    SUPPORTED = "supported"
    """The sample itself reaches this exceedance: n * p >= a few."""
    EXTRAPOLATED = "extrapolated"
    """The tests passed, but the bound lies beyond what was seen: it rests on the fitted tail."""
    UNPROVEN = "unproven"
    """A test failed or the sample is too small: there is no bound, only the observed times."""


@dataclass(frozen=True)
class TestResult:
    """Result of a test of a condition that the bound rests on (``KPSS``, ``Ljung-Box``, ...).

    Statistic and p value are NaN if the test has none; `meaning` is the result in plain words.
    """

    __test__ = False  # pytest: this is not a test class

    name: str
    statistic: float
    p_value: float
    passed: bool
    meaning: str


@dataclass(frozen=True)
class Bound:
    """A quantile of the execution time at one exceedance probability per frame.

    Estimate and upper bound (at the confidence of the campaign) are NaN if it is unproven.
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
    """`UNPROVEN` if a test failed, otherwise the support of the weakest bound."""
    smallest_supported: float
    """Least exceedance that the sample supports without extrapolation; NaN for none."""
    confidence: float
    bounds: tuple[Bound, ...]
    """Bounds by descending exceedance."""
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
    """Advice on what to do next, most useful first."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: times in milliseconds, None for NaN."""
        found = to_json(self)
        found["verdict"] = found.pop("support")
        found["high_water_mark_ms"] = found.pop("hwm_ms")
        for bound in found["bounds"]:
            bound["verdict"] = bound.pop("support")
        return dict(found)


def to_json(value: Any) -> Any:
    """Convert to JSON types: times in milliseconds (``p99_ns`` is ``p99_ms``), None for NaN."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [to_json(one) for one in value]
    if not is_dataclass(value):
        return None if isinstance(value, float) and math.isnan(value) else value
    found = {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    for name in [name for name in found if name.endswith("_ns")]:
        time_ns = found.pop(name)
        found[f"{name[:-3]}_ms"] = None if time_ns is None else time_ns / 1e6
    return found
