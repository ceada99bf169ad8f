# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Upper confidence bounds of a quantile of the times, with and without a law of the tail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.extreme_value import (
    GREATEST_SHAPE,
    LEAST_SHAPE,
    Floats,
    MaximaLaw,
    ParetoTail,
    estimate_maxima,
    grow,
    measure_misfit,
    refit_pareto,
    require_scipy,
)

RESAMPLES = 400
_PROFILED = 40
_STEPS = 30


def rule_of_three(count: int, confidence: float) -> float:
    """Return the greatest probability with which `count` runs all stay below; 3 / N at 95 %."""
    return -math.expm1(math.log1p(-confidence) / count)


def check_confidence(confidence: float) -> None:
    """Raise a ValueError for a confidence outside [0.5, 1)."""
    if not 0.5 <= confidence < 1.0:
        raise ValueError(f"confidence must be in [0.5, 1): {confidence}")


def bound_by_order(ordered: Floats, exceedance: float, confidence: float) -> float:
    """Bound a quantile without any law, by the least order statistic that is above it.

    The number of values above the quantile is binomial (David & Nagaraja 2003, *Order
    Statistics*, section 7.1). NaN if the sample does not reach that far: then even its greatest
    value is above the quantile with less than the confidence.
    """
    count = len(ordered)
    if exceedance < rule_of_three(count, confidence):
        return math.nan
    # The j-th greatest value is above x_p where at least j values are: P(binomial >= j).
    places = np.arange(1, min(count, int(count * exceedance) + 2) + 1)
    reached = require_scipy().special.bdtrc(places - 1, count, exceedance) >= confidence
    greatest = int(places[reached].max())
    return float(ordered[count - greatest])


def bound_tail_by_profile(
    tail: ParetoTail, excesses: Floats, exceedance: float, confidence: float
) -> float:
    """Bound a quantile by the profile likelihood of the generalised Pareto law.

    Coles 2001, section 4.3.3: the likelihood is written in (x_p, xi) and maximised over xi; the
    bound is where it has fallen by half the chi-square quantile. The error of the share above the
    threshold is added in quadrature.
    """
    normal = float(require_scipy().special.ndtri(confidence))
    log_ratio = math.log(tail.share / exceedance)
    count = len(excesses)
    around = 6.0 * (1.0 + tail.shape) / math.sqrt(count)
    shapes = tail.shape + np.linspace(-around, around, _PROFILED)
    shapes = shapes[(shapes > LEAST_SHAPE) & (shapes < GREATEST_SHAPE) & (shapes != 0.0)]
    reaches = grow(shapes, log_ratio)
    best = -count * (math.log(tail.scale) + tail.shape + 1.0)

    def fall(reach: float) -> float:
        scales = reach / reaches
        slopes = (shapes / scales)[:, np.newaxis]
        inside = 1.0 + slopes[:, 0] * excesses[-1] > 1e-9
        logs = np.log1p(slopes[inside] * excesses).sum(axis=1)
        likelihood = -count * np.log(scales[inside]) - (1.0 + 1.0 / shapes[inside]) * logs
        return best - _peak(likelihood)

    estimate = tail.quantile(exceedance) - tail.threshold
    upper = _find_fall(fall, estimate, normal)
    by_share = normal * tail.scale * math.exp(tail.shape * log_ratio) / math.sqrt(count)
    return tail.threshold + estimate + math.hypot(upper - estimate, by_share)


def _peak(values: Floats) -> float:
    """Return the maximum of a curve on an even grid, by a parabola through its top three points.

    For a given quantile the shape is known to a third of its own error, about a step of the grid.
    """
    best = int(np.argmax(values))
    if not 0 < best < len(values) - 1:
        return float(values[best])
    left, middle, right = (float(values[best + side]) for side in (-1, 0, 1))
    bend = left - 2.0 * middle + right
    return middle if bend >= 0.0 else middle - (left - right) ** 2 / (8.0 * bend)


def bound_maxima_by_profile(
    law: MaximaLaw, maxima: Floats, exceedance: float, confidence: float
) -> float:
    """Bound a quantile by the profile likelihood of the generalised extreme-value law.

    Coles 2001, section 3.3.4: the location is written as a function of x_p, and the likelihood
    is maximised over scale and shape.
    """
    scipy = require_scipy()
    normal = float(scipy.special.ndtri(confidence))
    reduced = -math.log(-law.block * math.log1p(-exceedance))
    standard = (maxima - law.location) / law.scale
    best = measure_misfit((0.0, 0.0, law.shape), standard)
    start = np.array([0.0, law.shape])
    around = np.array([[0.0, 0.0], [0.05, 0.0], [0.0, 0.05]])

    def fall(reach: float) -> float:
        nonlocal start

        def misfit(two: Floats) -> float:
            log_scale, shape = float(two[0]), float(two[1])
            location = reach - math.exp(log_scale) * float(grow(shape, reduced))
            return min(measure_misfit((location, log_scale, shape), standard), 1e6)

        found = scipy.optimize.minimize(
            misfit,
            start,
            method="Nelder-Mead",
            options={"initial_simplex": start + around, "xatol": 1e-3, "fatol": 1e-6},
        )
        start = found.x
        return float(len(maxima) * (found.fun - best))

    estimate = (law.quantile(exceedance) - law.location) / law.scale
    return law.location + law.scale * _find_fall(fall, estimate, normal)


def _find_fall(fall: Callable[[float], float], estimate: float, normal: float) -> float:
    """Find where above the estimate (> 0) a log-likelihood has fallen by normal^2 / 2.

    The root of the fall is nearly linear in the logarithm of the quantile.
    """
    step = 0.1
    for _ in range(_STEPS):
        root = math.sqrt(max(2.0 * fall(estimate * math.exp(step)), 1e-4))
        factor = min(max(normal / root, 0.3), 3.0)
        step *= factor
        if abs(factor - 1.0) < 2e-3:
            break
    return estimate * math.exp(step)


def resample_tail(
    tail: ParetoTail,
    excesses: Floats,
    places: npt.NDArray[np.int64],
    count: int,
    exceedances: Floats,
    random: np.random.Generator,
) -> Floats:
    """Refit resampled blocks of the series (Carlstein 1986); return their quantiles [R, P].

    `places` [K] are the positions of the excesses [K] in the series of `count` values. The
    threshold is kept.
    """
    length = max(1, round(count ** (1.0 / 3.0)))
    blocks = -(-count // length)
    drawn = random.multinomial(blocks, np.full(blocks, 1.0 / blocks), size=RESAMPLES)
    weights = drawn[:, places // length].astype(float)
    scales, shapes = refit_pareto(excesses, weights)
    log_ratios = np.log(weights.sum(axis=1)[:, np.newaxis] / count / exceedances)
    return tail.threshold + scales[:, np.newaxis] * grow(shapes[:, np.newaxis], log_ratios)


def resample_maxima(
    maxima: Floats, block: int, exceedances: Floats, random: np.random.Generator
) -> Floats:
    """Refit resampled maxima; return their quantiles by refit and exceedance [R, P].

    The blocks are those of the maxima. Refits are by probability-weighted moments, which need no
    search.
    """
    drawn = maxima[random.integers(0, len(maxima), (RESAMPLES, len(maxima)))]
    location, scale, shape = (one[:, np.newaxis] for one in estimate_maxima(drawn))
    reduced = -np.log(-block * np.log1p(-exceedances))
    return np.asarray(location + scale * grow(shape, reduced))


def bound_by_resamples(quantiles: Floats, estimate: float, confidence: float) -> float:
    """Return the bias-corrected percentile of the refits' quantiles [R] (Efron 1981)."""
    special = require_scipy().special
    below = float(np.clip((quantiles < estimate).mean(), 0.05, 0.95))
    level = float(special.ndtr(2.0 * special.ndtri(below) + special.ndtri(confidence)))
    return float(np.quantile(quantiles, min(level, 0.995)))
