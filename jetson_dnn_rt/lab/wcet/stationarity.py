# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Distribution-free tests of a series of times: identically distributed, independent, unclustered.

Every ``check_`` function takes values in the order of measurement (`check_clusters` the positions
of the slow ones) and returns a statistic and its p value.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.extreme_value import Floats, require_scipy


def rank(values: Floats) -> Floats:
    """Rank values from 1; ties must have been spread before (`spread_ties`)."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def spread_ties(values: Floats, random: np.random.Generator) -> tuple[Floats, float]:
    """Undo the rounding of a timer: each value is moved at random within its step.

    Tests and fits of continuous laws reject rounded times for being rounded. The step is the
    greatest common divisor of all differences, or, where more than a tenth of the values are still
    ties, the median distance of neighbouring distinct values. The step is returned, too.
    """
    distinct = np.unique(values)
    if len(distinct) < 2:
        return values.astype(float), 0.0
    gaps = np.diff(distinct)
    whole = np.all(distinct == np.round(distinct))
    step = float(np.gcd.reduce(gaps.astype(np.int64))) if whole else 0.0
    if len(distinct) < 0.9 * len(values):
        step = max(step, float(np.median(gaps)))
    return values + random.uniform(-0.5, 0.5, len(values)) * step, step


def check_level(values: Floats) -> tuple[float, float]:
    """KPSS: whether the level is constant, or drifts or wanders.

    Kwiatkowski, Phillips, Schmidt & Shin 1992, Journal of Econometrics 54, with their lag
    4 (N / 100)^(1/4). The statistic has the limit of Cramér-von Mises, so the p value is exact
    where tables end at 0.01.
    """
    count = len(values)
    residual = values - values.mean()
    lags = int(4.0 * (count / 100.0) ** 0.25)
    variance = residual @ residual / count
    for lag in range(1, lags + 1):
        weight = 1.0 - lag / (lags + 1.0)
        variance += 2.0 * weight * float(residual[lag:] @ residual[:-lag]) / count
    total = np.cumsum(residual)
    statistic = float(total @ total / (count**2 * max(variance, 1e-300)))
    return statistic, cramer_survival(statistic)


def cramer_survival(statistic: float) -> float:
    """Return P(omega^2 > x) of the Cramér-von Mises limit; Csörgő & Faraway 1996, equation 1.3."""
    if statistic <= 0.0:
        return 1.0
    special = require_scipy().special
    total = 0.0
    for term in range(40):
        odd = 4 * term + 1
        argument = odd**2 / (16.0 * statistic)
        factor = math.exp(special.gammaln(term + 0.5) - special.gammaln(term + 1.0))
        # kve(x) = kv(x) e^x, so that large arguments do not underflow one by one.
        part = factor * math.sqrt(odd) * math.exp(-2.0 * argument) * special.kve(0.25, argument)
        total += part
        if part < 1e-12:
            break
    # The series alternates in sign with (-1)^j inside binomial(-1/2, j): all terms are positive.
    probability = total / (math.pi**1.5 * math.sqrt(statistic))
    return float(min(max(1.0 - probability, 0.0), 1.0))


def correlate(values: Floats, lags: int) -> Floats:
    """Compute autocorrelations at lags 1 to `lags`, by the fast Fourier transform."""
    residual = values - values.mean()
    size = 1 << (len(values) + lags).bit_length()
    spectrum = np.fft.rfft(residual, size)
    products = np.fft.irfft(spectrum * spectrum.conj(), size)
    return np.asarray(products[1 : lags + 1] / max(products[0], 1e-300))


def check_correlation(values: Floats, lags: int) -> tuple[float, float]:
    """Ljung-Box: whether a value predicts the next ones.

    Ljung & Box 1978, Biometrika 65. On ranks it does not depend on the law.
    """
    count = len(values)
    correlations = correlate(values, lags)
    weights = 1.0 / (count - np.arange(1, lags + 1))
    statistic = float(count * (count + 2.0) * (weights @ correlations**2))
    return statistic, float(require_scipy().special.chdtrc(lags, statistic))


def check_runs(values: Floats) -> tuple[float, float]:
    """Wald-Wolfowitz (1940): runs above and below the median, two-sided, by the normal limit."""
    above = values > np.median(values)
    count, high = len(values), int(above.sum())
    low = count - high
    if not high or not low:
        return 0.0, 1.0
    runs = 1 + int(np.count_nonzero(above[1:] != above[:-1]))
    product = 2.0 * high * low
    mean = 1.0 + product / count
    variance = product * (product - count) / (count**2 * (count - 1.0))
    statistic = (runs - mean) / math.sqrt(variance)
    return statistic, float(2.0 * require_scipy().special.ndtr(-abs(statistic)))


def check_same_law(first: Floats, second: Floats) -> tuple[float, float]:
    """Two-sample Anderson-Darling: whether both were drawn from one law.

    Pettitt 1976, Biometrika 63; the limit is that of one sample, for which Marsaglia & Marsaglia
    2004, Journal of Statistical Software 9(2), give a formula that also holds far in the tail.
    """
    few, many = len(first), len(first) + len(second)
    order = np.argsort(np.concatenate([first, second]), kind="stable")
    seen = np.cumsum(order < few)[:-1]
    place = np.arange(1, many)
    terms = (seen * float(many) - few * place) ** 2 / (place * (many - place).astype(float))
    statistic = float(terms.sum() / (few * float(many - few)))
    return statistic, anderson_survival(statistic)


def anderson_survival(statistic: float) -> float:
    """Return P(A^2 > z) for many values of a known law (Marsaglia & Marsaglia 2004)."""
    z = statistic
    if z <= 0.0:
        return 1.0
    if z < 2.0:
        inner = 0.0347962 - (0.011672 - 0.00168691 * z) * z
        inner = 2.00012 + (0.247105 - (0.0649821 - inner * z) * z) * z
        return float(1.0 - math.exp(-1.2337141 / z) / math.sqrt(z) * inner)
    # Beyond 10 the polynomial has left its range; the tail is exponential.
    edge = min(z, 10.0)
    inner = 0.082433 - (0.008056 - 0.0003146 * edge) * edge
    power = 1.0776 - (2.30695 - (0.43424 - inner * edge) * edge) * edge
    return float(-math.expm1(-math.exp(power)) * math.exp(-1.0 * (z - edge)))


def estimate_extremal_index(positions: npt.NDArray[np.int64]) -> float:
    """Estimate the extremal index from the times between exceedances at ascending positions.

    It needs no choice of a run length: Ferro & Segers 2003, Journal of the Royal Statistical
    Society B 65, equations 5 and 6. In (0, 1]: 1 = singly, 1 / it = mean size of a cluster; NaN
    with fewer than two.
    """
    if len(positions) < 2:
        return float("nan")
    gaps = np.diff(positions).astype(float)
    if gaps.max() <= 2.0:
        return float(min(1.0, 2.0 * gaps.sum() ** 2 / (len(gaps) * (gaps**2).sum())))
    square = max(float(((gaps - 1.0) * (gaps - 2.0)).sum()), 1e-300)
    return float(min(1.0, 2.0 * (gaps - 1.0).sum() ** 2 / (len(gaps) * square)))


def check_clusters(positions: npt.NDArray[np.int64], count: int) -> tuple[float, float]:
    """Test whether exceedances are closer together than independent ones would be.

    `positions` are their ascending places in a series of `count` values. Between independent
    exceedances of probability q the times are geometric, so the number of those that are at most w
    long is binomial; w is a quarter of the mean time. The statistic is the extremal index, the
    p value is one-sided.
    """
    index = estimate_extremal_index(positions)
    if len(positions) < 10:
        return index, 1.0
    share = len(positions) / count
    window = max(1, round(0.25 / share))
    gaps = np.diff(positions)
    near = int(np.count_nonzero(gaps <= window))
    expected = 1.0 - (1.0 - share) ** window
    survival = require_scipy().special.bdtrc
    return index, float(survival(near - 1, len(gaps), expected)) if near else 1.0


def longest_run(above: npt.NDArray[np.bool_]) -> int:
    """Return the greatest number of consecutive True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], above, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max()) if len(edges) else 0
