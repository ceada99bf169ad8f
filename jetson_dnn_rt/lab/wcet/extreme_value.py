# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Extreme-value laws: generalised extreme values of maxima, generalised Pareto of excesses.

The shape is xi in both (heavy tail > 0, exponential = 0, finite end < 0), as in Coles, *An
Introduction to Statistical Modeling of Extreme Values*, 2001, chapters 3 and 4; scipy calls -xi
``c`` in ``genextreme`` and xi ``c`` in ``genpareto``. The shape is always free: forcing a Gumbel
law is unsafe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError

Floats = npt.NDArray[np.float64]

LEAST_SHAPE = -0.5
"""Below it maximum likelihood is not regular (Smith 1985, Biometrika 72), and no observed tail of
execution times ends so abruptly."""
GREATEST_SHAPE = 1.0
"""Above it not even the mean exists."""

_EXPONENTIAL = 1e-6
_GRID = 120


def require_scipy() -> Any:
    """Import scipy with the modules used here; ConfigurationError when it is missing."""
    try:
        import scipy
        import scipy.optimize
        import scipy.special
    except ImportError as error:
        raise ConfigurationError(
            "statistics of the worst case need scipy: pip install 'jetson_dnn_rt[wcet]'"
        ) from error
    return scipy


@dataclass(frozen=True)
class ParetoTail:
    """Generalised Pareto law of `count` excesses over the threshold u: sigma > 0 and xi.

    `share` is zeta: that of the sample above the threshold.
    """

    threshold: float
    scale: float
    shape: float
    share: float
    count: int

    def quantile(self, exceedance: float) -> float:
        """Return x_p = u + sigma / xi ((zeta / p)^xi - 1); Coles 2001, equation 4.12."""
        ratio = self.share / exceedance
        return self.threshold + self.scale * float(grow(self.shape, math.log(ratio)))

    def standardize(self, excesses: Floats) -> Floats:
        """Transform excesses to a standard exponential law."""
        if abs(self.shape) < _EXPONENTIAL:
            return excesses / self.scale
        inner = np.maximum(1.0 + self.shape * excesses / self.scale, 1e-12)
        return np.asarray(np.log(inner) / self.shape)


@dataclass(frozen=True)
class MaximaLaw:
    """Generalised extreme-value law of the maxima of `count` blocks of `block`: mu, sigma, xi."""

    location: float
    scale: float
    shape: float
    block: int
    count: int

    def quantile(self, exceedance: float) -> float:
        """Return x_p = mu + sigma / xi ((-B ln(1 - p))^-xi - 1); Coles 2001, equation 3.4."""
        reduced = -math.log(-self.block * math.log1p(-exceedance))
        return self.location + self.scale * float(grow(self.shape, reduced))


def grow(shape: npt.ArrayLike, log_ratio: npt.ArrayLike) -> Floats:
    """Return (e^(xi y) - 1) / xi, and y where xi is 0."""
    shapes = np.asarray(shape, float)
    safe = np.where(np.abs(shapes) < _EXPONENTIAL, 1.0, shapes)
    curved = np.expm1(safe * log_ratio) / safe
    return np.where(np.abs(shapes) < _EXPONENTIAL, log_ratio, curved)


def fit_pareto(
    excesses: Floats, threshold: float, share: float, *, censored: int = 0
) -> ParetoTail:
    """Fit by maximum likelihood, on the profile over theta = xi / sigma.

    For a given theta the best shape is mean(log(1 + theta x)), which leaves one dimension
    (Grimshaw 1993, Technometrics 35). It is searched on a grid and then refined. Excesses are
    positive and not all the same. The greatest `censored` ones only count as being above the
    others, so they cannot distort the law of the others; excesses must then be ascending.
    """
    count = len(excesses)
    if censored:
        excesses = np.minimum(excesses, excesses[count - censored])
    # Censored excesses add to the sum of logarithms, but their density has no scale factor.
    seen = count - censored
    mean = float(excesses.sum()) / seen
    grid = _theta_grid(excesses)
    center = int(np.argmax(_profile(grid, excesses, seen)))
    low, high = grid[max(center - 1, 0)], grid[min(center + 1, len(grid) - 1)]
    for _ in range(4):
        fine = np.linspace(low, high, 21)
        best = int(np.argmax(_profile(fine, excesses, seen)))
        low, high = fine[max(best - 1, 0)], fine[min(best + 1, 20)]
    theta = float(fine[best])
    shape = float(np.log1p(theta * excesses).sum()) / seen
    shape = min(max(shape, LEAST_SHAPE), GREATEST_SHAPE)
    scale = shape / theta if abs(theta * mean) > _EXPONENTIAL else mean
    return ParetoTail(threshold, scale, shape, share, count)


def _theta_grid(excesses: Floats) -> Floats:
    # Evenly spaced in log(1 + theta max): near the end of the support for negative shapes.
    greatest, mean = float(excesses.max()), float(excesses.mean())
    steps = np.linspace(math.log(1e-3), math.log1p(4.0 * greatest / mean), _GRID)
    return np.asarray(np.expm1(steps) / greatest)


def _profile(theta: Floats, excesses: Floats, seen: int) -> Floats:
    """Log-likelihood per excess that is seen, at the best shape and scale.

    -log scale - S / (seen xi) - (sum of the seen logarithms) / seen; S / seen is the shape.
    """
    logs = np.log1p(theta[:, np.newaxis] * excesses)
    shapes = logs.sum(axis=1) / seen
    density = logs[:, :seen].sum(axis=1) / seen
    return np.asarray(_profile_of(theta, shapes, excesses.sum() / seen) + shapes - density)


def _profile_of(theta: Floats, shapes: Floats, mean: float | Floats) -> Floats:
    """Log-likelihood per excess at its best scale; -inf where the shape is out of its range."""
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = -np.log(_scale_of(theta, shapes, mean)) - shapes - 1.0
    outside = (shapes < LEAST_SHAPE) | (shapes > GREATEST_SHAPE)
    return np.where(outside, -np.inf, likelihood)


def _scale_of(theta: Floats, shapes: Floats, mean: float | Floats) -> Floats:
    near_zero = np.abs(theta * mean) < _EXPONENTIAL
    return np.where(near_zero, mean, shapes / np.where(near_zero, 1.0, theta))


def refit_pareto(excesses: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Fit many resamples [R, K] of the same excesses [K] at once; return scales and shapes, [R].

    A weight is how often a resample contains an excess, so all profiles over theta are one matrix
    product. The maximum on the grid is refined by a parabola. The end of a finite support is never
    set below the greatest excess of the whole sample, whether or not a resample contains it.
    """
    grid = _theta_grid(excesses)
    logs = np.log1p(grid[:, np.newaxis] * excesses)
    counts = weights.sum(axis=1, keepdims=True)
    shapes = weights @ logs.T / counts
    means = weights @ excesses[:, np.newaxis] / counts
    profiles = _profile_of(grid, shapes, means)
    best = np.clip(np.argmax(profiles, axis=1), 1, _GRID - 2)
    rows = np.arange(len(weights))
    left, middle, right = (profiles[rows, best + side] for side in (-1, 0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = 0.5 * (left - right) / (left - 2.0 * middle + right)
    shift = np.where(np.isfinite(shift), np.clip(shift, -1.0, 1.0), 0.0)
    to = best + np.where(shift >= 0, 1, -1)
    part = np.abs(shift)
    scales = _scale_of(grid, shapes, means)
    shape = (1.0 - part) * shapes[rows, best] + part * shapes[rows, to]
    scale = (1.0 - part) * scales[rows, best] + part * scales[rows, to]
    return scale, np.clip(shape, LEAST_SHAPE, GREATEST_SHAPE)


def fit_maxima(maxima: Floats, block: int) -> MaximaLaw:
    """Fit by maximum likelihood, starting from probability-weighted moments.

    There is one maximum per block of that length; they are not all the same.
    """
    minimize = require_scipy().optimize.minimize
    location, scale, shape = (float(one[0]) for one in estimate_maxima(maxima[np.newaxis]))
    # In units of the start, which gives the simplex the right size.
    standard = (maxima - location) / scale
    start = [0.0, 0.0, float(np.clip(shape, -0.45, 0.9))]
    while not math.isfinite(measure_misfit(start, standard)):
        start[2] *= 0.5
    simplex = np.array(start) + np.vstack([np.zeros(3), 0.1 * np.eye(3)])
    found = minimize(
        measure_misfit,
        start,
        args=(standard,),
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 1e-5, "fatol": 1e-7},
    ).x
    return MaximaLaw(
        location + scale * float(found[0]),
        scale * math.exp(float(found[1])),
        float(found[2]),
        block,
        len(maxima),
    )


def measure_misfit(parameters: Sequence[float], maxima: Floats) -> float:
    """Return the negative log-likelihood per maximum of (location, log scale, shape), or inf."""
    location, log_scale, shape = (float(one) for one in parameters)
    if not LEAST_SHAPE <= shape <= GREATEST_SHAPE:
        return math.inf
    standard = (maxima - location) * math.exp(-log_scale)
    if abs(shape) < _EXPONENTIAL:
        reduced = standard
    else:
        inner = 1.0 + shape * standard
        if inner.min() <= 0.0:
            return math.inf
        reduced = np.log(inner) / shape
    return float(log_scale + ((1.0 + shape) * reduced + np.exp(-reduced)).mean())


def estimate_maxima(maxima: Floats) -> tuple[Floats, Floats, Floats]:
    """Fit samples [R, M] by probability-weighted moments; return location, scale, shape, [R] each.

    Hosking, Wallis & Wood 1985, Technometrics 27, equations 12 to 14.
    """
    gamma = require_scipy().special.gamma
    ordered = np.sort(maxima, axis=1)
    count = ordered.shape[1]
    rank = np.arange(count)
    first = ordered.mean(axis=1)
    second = ordered @ (rank / (count - 1.0)) / count
    third = ordered @ (rank * (rank - 1.0) / ((count - 1.0) * (count - 2.0))) / count
    ratio = (2.0 * second - first) / (3.0 * third - first)
    bend = ratio - math.log(2.0) / math.log(3.0)
    minus_shape = np.clip(7.8590 * bend + 2.9554 * bend**2, -0.9, 5.0)
    minus_shape = np.where(np.abs(minus_shape) < _EXPONENTIAL, _EXPONENTIAL, minus_shape)
    factor = gamma(1.0 + minus_shape)
    scale = (2.0 * second - first) * minus_shape / (factor * -np.expm1(-minus_shape * math.log(2)))
    location = first + scale * (factor - 1.0) / minus_shape
    return location, scale, -minus_shape
