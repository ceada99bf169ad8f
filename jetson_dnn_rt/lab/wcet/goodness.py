# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Goodness of fit: whether a law fits the excesses of the times over a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from jetson_dnn_rt.lab.wcet.extreme_value import (
    Floats,
    ParetoTail,
    fit_pareto,
    grow,
    require_scipy,
)
from jetson_dnn_rt.lab.wcet.stationarity import anderson_survival, cramer_survival

SHARES = (0.1, 0.075, 0.05, 0.035, 0.025)
"""Thresholds to try, lowest first, as the share of the sample above them."""
LEAST_EXCESSES = 50
HELD_OUT = 0.2
HELD_OUT_TESTS = tuple(
    f"Held-out {name}" for name in ("Anderson-Darling", "Cramér-von Mises", "Kolmogorov-Smirnov")
)
_ACCEPTED = 0.1
_PARTS = (0.25, 0.1)
_DOUBT = 3.0

_PROBABILITIES = np.array([0.5, 0.25, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025, 0.001])
_SHAPES = np.array([-0.4, -0.2, 0.0, 0.2, 0.4])
_CRITICAL = np.array(
    [
        [0.443, 0.644, 0.925, 1.140, 1.370, 1.670, 2.000, 2.290, 2.750],
        [0.417, 0.602, 0.858, 1.065, 1.268, 1.539, 1.766, 1.993, 2.308],
        [0.393, 0.562, 0.787, 0.980, 1.176, 1.455, 1.620, 1.841, 2.094],
        [0.375, 0.535, 0.750, 0.919, 1.087, 1.310, 1.470, 1.650, 1.900],
        [0.372, 0.517, 0.716, 0.866, 1.032, 1.239, 1.400, 1.600, 1.850],
    ]
)


@dataclass(frozen=True)
class TailFit:
    """Ascending excesses over the threshold that was chosen, and their law.

    Statistic and p value are Anderson-Darling's of the law against the excesses that it was fitted
    to.
    """

    tail: ParetoTail
    excesses: Floats
    statistic: float
    p_value: float


def fit_tail(ordered: Floats) -> TailFit:
    """Find the lowest threshold above which the generalised Pareto law fits, or else the best one.

    Bader, Yan & Zhang 2018, Annals of Applied Statistics 12, choose it the same way: by a series
    of Anderson-Darling tests. A low threshold has many excesses and so a narrow bound, a high one
    follows the tail of laws that reach their limit late. Values are ascending, without ties, at
    least 10 x `LEAST_EXCESSES` of them.
    """
    best: TailFit | None = None
    for share in SHARES:
        count = int(share * len(ordered))
        if count < LEAST_EXCESSES and best is not None:
            break
        fit = fit_above(ordered, max(count, LEAST_EXCESSES))
        if best is None or fit.p_value > best.p_value:
            best = fit
        if fit.p_value >= _ACCEPTED:
            break
    assert best is not None
    return best


def fit_above(ordered: Floats, count: int) -> TailFit:
    """Fit the `count` greatest values; the threshold lies half-way to the next one."""
    first = len(ordered) - count
    threshold = 0.5 * float(ordered[first - 1] + ordered[first])
    excesses = ordered[first:] - threshold
    tail = fit_pareto(excesses, threshold, count / len(ordered))
    statistic = measure_anderson(tail.standardize(excesses))
    return TailFit(tail, excesses, statistic, fitted_survival(statistic, tail.shape))


def measure_anderson(standard: Floats) -> float:
    """Compute A^2 of ascending values that should be standard exponential."""
    count = len(standard)
    odd = 2.0 * np.arange(1, count + 1) - 1.0
    low = np.log(-np.expm1(-np.maximum(standard, 1e-12)))
    return float(-count - (odd * (low - standard[::-1])).mean())


def fitted_survival(statistic: float, shape: float) -> float:
    """Return the p value of A^2 if the law was fitted to the same excesses.

    Choulakian & Stephens 2001, Technometrics 43: the limit depends on the shape only. The table
    is simulated (400 excesses, 8,000 samples a shape; ``test_goodness.py`` checks it); beyond it
    the tail is assumed exponential.
    """
    critical = np.array([np.interp(shape, _SHAPES, column) for column in _CRITICAL.T])
    logs = np.log(_PROBABILITIES)
    if statistic <= critical[0]:
        return float(1.0 - 0.5 * max(statistic, 0.0) / critical[0])
    if statistic <= critical[-1]:
        return float(math.exp(np.interp(statistic, critical, logs)))
    slope = (logs[-1] - logs[-4]) / (critical[-1] - critical[-4])
    return float(math.exp(max(logs[-1] + slope * (statistic - critical[-1]), -700.0)))


def check_gap(ordered: Floats) -> tuple[float, float]:
    """Test for a gap between two values of the tail that its law would not leave.

    The i-th distance from the top, times i, is standard exponential after standardisation (Rényi
    1953). A separate slow mode, or a single time far away, leaves a gap. They would distort the
    law, so it is fitted to the others: a twentieth of the excesses is censored. As that law is
    extended further than it was fitted, its shape is made `_DOUBT` of its standard errors heavier.
    This finds nearly all tails with an end whose greatest time is doubled; the law of all excesses
    finds 6 %. The lowest threshold is used, whatever fits there: a high one leaves few values
    below the gap. The statistic is the greatest normalised distance.
    """
    fit = fit_above(ordered, max(int(SHARES[0] * len(ordered)), LEAST_EXCESSES))
    tail, count = fit.tail, len(fit.excesses)
    censored = max(count // 20, 5)
    law = fit_pareto(fit.excesses, tail.threshold, tail.share, censored=censored)
    shape = law.shape + _DOUBT * (1.0 + law.shape) / math.sqrt(count - censored)
    # As many excesses as before are above the point of censoring.
    log_ratio = math.log(count / censored)
    scale = law.scale * float(grow(law.shape, log_ratio) / grow(shape, log_ratio))
    standard = replace(law, scale=scale, shape=shape).standardize(fit.excesses)
    normalized = np.diff(standard) * np.arange(len(standard) - 1, 0, -1)
    widest = float(normalized.max())
    return widest, float(-math.expm1(len(normalized) * math.log1p(-math.exp(-max(widest, 1e-9)))))


def check_stability(ordered: Floats, fit: TailFit) -> tuple[float, float]:
    """Test whether one law applies to the slow values and to the very slowest.

    Above a higher threshold v the same law goes on with the scale sigma + xi (v - u) (Coles 2001,
    section 4.2.2). A likelihood ratio tests that against a law of its own, for a quarter and for a
    tenth of the excesses; divided by (1 - part), as the part is in the whole too, the ratio is
    chi-square with 2 degrees of freedom. The part that differs most counts (Bonferroni).
    """
    tail, whole = fit.tail, len(fit.excesses)
    parts = {max(int(whole * share), LEAST_EXCESSES) for share in _PARTS}
    ratios = [0.0]
    for part in sorted(one for one in parts if one < whole):
        own = fit_above(ordered, part)
        scale = tail.scale + tail.shape * (own.tail.threshold - tail.threshold)
        gain = _log_likelihood(own.excesses, own.tail.scale, own.tail.shape)
        gain -= _log_likelihood(own.excesses, scale, tail.shape)
        ratios.append(2.0 * gain / (1.0 - part / whole))
    worst = max(ratios)
    return worst, min(1.0, len(_PARTS) * math.exp(-0.5 * worst))


def _log_likelihood(excesses: Floats, scale: float, shape: float) -> float:
    count = len(excesses)
    standard = ParetoTail(0.0, scale, shape, 1.0, count).standardize(excesses)
    return -count * math.log(scale) - (1.0 + shape) * float(standard.sum())


def check_held_out(fit: TailFit, random: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Anderson-Darling, Cramér-von Mises and Kolmogorov-Smirnov on a fifth that was held out.

    The law is fitted to the other four fifths. Its own error adds at most (held out / fitted) to
    the variance of the deviations, by which the statistics are reduced.
    """
    count = len(fit.excesses)
    held = np.zeros(count, bool)
    held[random.permutation(count)[: max(int(HELD_OUT * count), 10)]] = True
    rest = fit_pareto(fit.excesses[~held], fit.tail.threshold, fit.tail.share)
    standard = rest.standardize(fit.excesses[held])
    number = len(standard)
    excess = 1.0 + number / (count - number)
    anderson = measure_anderson(standard) / excess
    probability = -np.expm1(-standard)
    place = np.arange(1, number + 1)
    middle = (2.0 * place - 1.0) / (2.0 * number)
    cramer = (float(((probability - middle) ** 2).sum()) + 1.0 / (12.0 * number)) / excess
    above = float(np.max(np.abs(place / number - probability)))
    below = float(np.max(np.abs(probability - (place - 1) / number)))
    kolmogorov = max(above, below) / math.sqrt(excess)
    survival = require_scipy().special.kolmogorov
    results = (
        (anderson, anderson_survival(anderson)),
        (cramer, cramer_survival(cramer)),
        (kolmogorov, float(survival(kolmogorov * math.sqrt(number)))),
    )
    return dict(zip(HELD_OUT_TESTS, results, strict=True))
