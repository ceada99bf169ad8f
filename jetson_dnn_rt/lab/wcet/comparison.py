# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Comparison of two campaigns: change of the tail, and validity of bounds in the second one."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.bounds import check_confidence
from jetson_dnn_rt.lab.wcet.extreme_value import Floats, require_scipy
from jetson_dnn_rt.lab.wcet.statement import Campaign, TestResult, to_json
from jetson_dnn_rt.lab.wcet.stationarity import check_same_law, spread_ties

QUANTILES = (0.5, 0.9, 0.99, 0.999)
TAIL = 0.9
"""Quantiles from here on decide; lower ones are shown."""
LEAST_ABOVE = 10
"""Values that both samples must have above a quantile; with fewer it is mostly chance."""
REFUTED = 0.01
"""A bound is refuted if its exceedances are less probable than this, were it true."""

_RESAMPLES = 400
_DIFFERENT = 0.01


class Change(str, enum.Enum):
    """Verdict on the change of the tail."""

    WORSE = "worse"
    """By more than the tolerance, at the confidence."""
    NO_WORSE = "no worse"
    """Not by more than the tolerance, at the confidence."""
    UNDECIDED = "undecided"
    """Both are possible: measure more."""


@dataclass(frozen=True)
class Difference:
    """One quantile before and after, from order statistics of the samples.

    `change` is after / before - 1; its one-sided bounds are each at the confidence.
    """

    quantile: float
    before_ns: float
    after_ns: float
    change: float
    change_lower: float
    change_upper: float
    verdict: Change


@dataclass(frozen=True)
class Comparison:
    """Comparison of two campaigns, and the verdict."""

    title: str
    before_count: int
    after_count: int
    before_hwm_ns: float
    after_hwm_ns: float
    """High-water marks grow with the samples, so nothing is concluded from them."""
    test: TestResult
    """Anderson-Darling: whether both appear drawn from one law; passed = they do."""
    differences: tuple[Difference, ...]
    tolerance: float
    confidence: float
    verdict: Change
    """Worse as soon as one tail quantile is; undecided where none is but one may be."""
    statement: str

    @property
    def worse(self) -> bool:
        """Whether the tail became worse by more than the tolerance."""
        return self.verdict is Change.WORSE

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: times in milliseconds, changes as shares."""
        found = to_json(self)
        for name in ("before", "after"):
            hwm_ms = found.pop(f"{name}_hwm_ms")
            found[name] = {"count": found.pop(f"{name}_count"), "high_water_mark_ms": hwm_ms}
        test = found.pop("test")
        names = ("statistic", "p_value", "meaning")
        found["anderson_darling"] = {name: test[name] for name in names}
        found["anderson_darling"]["same_law"] = test["passed"]
        found["quantiles"] = found.pop("differences")
        return dict(found)


def compare(
    before_ns: npt.ArrayLike,
    after_ns: npt.ArrayLike,
    *,
    title: str = "",
    quantiles: Sequence[float] = QUANTILES,
    confidence: float = 0.95,
    tolerance: float = 0.05,
    seed: int = 0,
) -> Comparison:
    """Compare the tails of two campaigns.

    Times are in the order of measurement, without warm-up. Confidence bounds come from resampled
    blocks of both series, so consecutive frames may resemble each other. Tail quantiles (at least
    one from `TAIL` on) are decided together: each gets its share of 1 - confidence. Those that the
    samples do not reach are left out. `tolerance` is the share by which a tail
    quantile may grow.

    Raises
    ------
    ValueError
        When an argument is out of range, or a sample has fewer than 100 times.
    ConfigurationError
        When scipy is missing.
    """
    before, after = (np.asarray(one, dtype=np.float64) for one in (before_ns, after_ns))
    for name, times in (("before_ns", before), ("after_ns", after)):
        if times.ndim != 1 or len(times) < 100:
            raise ValueError(f"{name} must be one row of 100 times at least: {times.size}")
        if not (np.isfinite(times).all() and (times > 0.0).all()):
            raise ValueError(f"{name} must be positive and finite")
    if not all(0.0 < one < 1.0 for one in quantiles):
        raise ValueError(f"quantiles must be in (0, 1): {tuple(quantiles)}")
    check_confidence(confidence)
    if tolerance < 0.0:
        raise ValueError(f"tolerance must be 0 or more: {tolerance}")
    random = np.random.default_rng(seed)
    least = min(len(before), len(after))
    kept = sorted(one for one in set(quantiles) if least * (1.0 - one) >= LEAST_ABOVE - 1e-9)
    if not kept or kept[-1] < TAIL:
        raise ValueError(
            f"{least} times do not reach a quantile from {TAIL} on: {LEAST_ABOVE} must be above it"
        )
    share = (1.0 - confidence) / sum(one >= TAIL for one in kept)
    # Resampled quantiles beyond the last few are noise, so the tails of the resamples hold 4.
    count = max(_RESAMPLES, math.ceil(4.0 / share))
    levels = np.array(kept)
    first, second = (_resample(one, levels, count, random) for one in (before, after))
    ratios = second / first - 1.0
    differences = []
    for place, quantile in enumerate(kept):
        pair = _percentile(before, quantile), _percentile(after, quantile)
        lower, upper = np.quantile(ratios[:, place], [share, 1.0 - share])
        verdict = Change.NO_WORSE if upper <= tolerance else Change.UNDECIDED
        if lower > tolerance:
            verdict = Change.WORSE
        change = pair[1] / pair[0] - 1.0
        differences.append(
            Difference(quantile, *pair, change, float(lower), float(upper), verdict)
        )
    test = _test(before, after, random)
    verdict, statement = _conclude(differences, tolerance, confidence)
    return Comparison(
        title=title,
        before_count=len(before),
        after_count=len(after),
        before_hwm_ns=float(before.max()),
        after_hwm_ns=float(after.max()),
        test=test,
        differences=tuple(differences),
        tolerance=tolerance,
        confidence=confidence,
        verdict=verdict,
        statement=statement,
    )


def _percentile(times: Floats, quantile: float) -> float:
    place = math.ceil(quantile * len(times)) - 1
    return float(np.partition(times, place)[place])


def _resample(times: Floats, quantiles: Floats, count: int, random: np.random.Generator) -> Floats:
    """Return quantiles [R, Q] of resampled blocks: how often each block is drawn."""
    total = len(times)
    length = max(1, round(total ** (1.0 / 3.0)))
    blocks = -(-total // length)
    order = np.argsort(times, kind="stable")
    ordered, owner = times[order], order // length
    found = np.empty((count, len(quantiles)))
    for row in range(count):
        drawn = np.bincount(random.integers(0, blocks, blocks), minlength=blocks)
        passed = np.cumsum(drawn[owner])
        found[row] = ordered[np.searchsorted(passed, np.ceil(quantiles * passed[-1]))]
    return found


def _test(before: Floats, after: Floats, random: np.random.Generator) -> TestResult:
    both, _step = spread_ties(np.concatenate([before, after]), random)
    statistic, p_value = check_same_law(both[: len(before)], both[len(before) :])
    meaning = "both campaigns look drawn from one law"
    if p_value < _DIFFERENT:
        meaning = "the campaigns differ somewhere (in dependent series also by chance)"
    return TestResult("Anderson-Darling", statistic, p_value, p_value >= _DIFFERENT, meaning)


def _conclude(
    differences: list[Difference], tolerance: float, confidence: float
) -> tuple[Change, str]:
    tail = [one for one in differences if one.quantile >= TAIL]
    asked = f"at {confidence:.0%} confidence"
    for verdict in (Change.WORSE, Change.UNDECIDED):
        which = [one for one in tail if one.verdict is verdict]
        if not which:
            continue
        one = max(which, key=lambda each: each.change_lower)
        text = (
            f"{verdict.value}: p{100.0 * one.quantile:g} {one.before_ns / 1e6:.3f} ->"
            f" {one.after_ns / 1e6:.3f} ms ({one.change:+.1%}"
        )
        if verdict is Change.WORSE:
            return verdict, f"{text}, by {one.change_lower:.1%} at least {asked})"
        return verdict, (
            f"{text}, between {one.change_lower:+.1%} and {one.change_upper:+.1%} {asked});"
            f" tolerance {tolerance:.1%}: measure more"
        )
    worst = max(one.change_upper for one in tail)
    return Change.NO_WORSE, (
        f"no worse: no tail quantile grew by more than {worst:.1%} {asked},"
        f" tolerance {tolerance:.1%}"
    )


@dataclass(frozen=True)
class Validation:
    """Exceedances of one bound, claimed (p times the number of times) and counted.

    The p value is the probability of as many or more if the bound were true (binomial).
    """

    exceedance: float
    upper_ns: float
    claimed: float
    counted: int
    p_value: float

    @property
    def refuted(self) -> bool:
        """Whether the bound cannot hold for these times."""
        return self.p_value < REFUTED


def validate(campaign: Campaign, times_ns: npt.ArrayLike) -> list[Validation]:
    """Count the times, measured apart from a campaign, that exceed its bounds.

    Raises
    ------
    ValueError
        When there are no times.
    """
    times = np.asarray(times_ns, dtype=np.float64)
    if times.ndim != 1 or not len(times):
        raise ValueError("times_ns must be one row of at least one time")
    found = []
    for bound in campaign.bounds:
        if math.isnan(bound.upper_ns):
            continue
        counted = int(np.count_nonzero(times > bound.upper_ns))
        p_value = 1.0
        if counted:
            survival = require_scipy().special.bdtrc
            p_value = float(survival(counted - 1, len(times), bound.exceedance))
        claimed = bound.exceedance * len(times)
        found.append(Validation(bound.exceedance, bound.upper_ns, claimed, counted, p_value))
    return found
