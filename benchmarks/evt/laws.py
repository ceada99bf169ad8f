# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Laws of execution times whose quantiles are known, all around 10 ms.

`DEVELOPED_WITH` are those that the tests, thresholds and bounds of `lab.wcet` were tuned on.
`HELD_OUT` are of other families, and nothing was tuned on them, except `REACH`,
which the normal and Burr laws decided: whoever does moves that law
to the first list, and adds another here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, signal, special, stats

from jetson_dnn_rt.lab.wcet.extreme_value import Floats, grow

MS = 1e6
SLOW_SHARE = 0.005
UNSEEN_SHARE = 1 / 50_000
IID, MIXTURE, DEPENDENT, UNSEEN = "iid", "mixture", "dependent", "unseen"

Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Law:
    """Source of series in nanoseconds.

    A law drawn independently has a true `quantile` of an exceedance. Campaigns from mixtures and
    dependent series must not get a bound. A law with an `UNSEEN` slow mode has a quantile too, but
    most of its campaigns hold nothing of that mode: what such a bound is worth is shown.
    """

    name: str
    kind: str
    draw: Draw
    quantile: Callable[[float], float] | None = None


def draw_times(law: Law, random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Draw a campaign as from a timer: whole nanoseconds."""
    return np.round(law.draw(random, count)).astype(np.int64)


# -- drawn independently -------------------------------------------------------------------------


def _generalized_extreme(shape: float) -> Law:
    return Law(
        f"GEV, xi {shape:g}", IID,
        lambda random, n: 10 * MS + MS * grow(shape, -np.log(random.standard_exponential(n))),
        lambda p: 10 * MS + MS * float(grow(shape, -math.log(-math.log1p(-p)))),
    )  # fmt: skip


def _generalized_pareto(shape: float) -> Law:
    return Law(
        f"GPD, xi {shape:g}", IID,
        lambda random, n: 10 * MS + MS * grow(shape, random.standard_exponential(n)),
        lambda p: 10 * MS + MS * float(grow(shape, -math.log(p))),
    )  # fmt: skip


def _lognormal(sigma: float) -> Law:
    return Law(
        f"lognormal, sigma {sigma:g}", IID,
        lambda random, n: 10 * MS * np.exp(sigma * random.standard_normal(n)),
        lambda p: 10 * MS * math.exp(-sigma * NormalDist().inv_cdf(p)),
    )  # fmt: skip


def _above_10_ms(name: str, law: Any) -> Law:
    """Make a law of scipy's, in milliseconds above 10."""
    return Law(
        name, IID,
        lambda random, n: 10 * MS + MS * law.rvs(n, random_state=random),
        lambda p: 10 * MS + MS * float(law.isf(p)),
    )  # fmt: skip


# -- mixtures ------------------------------------------------------------------------------------


def _draw_mixture(
    fast: Draw, slow: Draw, share: float, random: np.random.Generator, count: int
) -> Floats:
    is_slow = random.random(count) < share
    return np.asarray(np.where(is_slow, slow(random, count), fast(random, count)))


def _mixture(name: str, fast: Draw, slow: Draw, share: float = SLOW_SHARE) -> Law:
    return Law(name, MIXTURE, partial(_draw_mixture, fast, slow, share))


def _unseen(name: str, fast: Any, slow: Any) -> Law:
    """Make a mixture of two laws of scipy's, in ms, whose slow mode hardly ever comes."""

    def find_quantile(exceedance: float) -> float:
        def miss(time_ms: float) -> float:
            above = UNSEEN_SHARE * slow.sf(time_ms) + (1.0 - UNSEEN_SHARE) * fast.sf(time_ms)
            return float(above - exceedance)

        return MS * float(optimize.brentq(miss, fast.median(), slow.isf(1e-12)))

    def draw(law: Any, random: np.random.Generator, count: int) -> Floats:
        return np.asarray(MS * law.rvs(count, random_state=random))

    fast_or_slow = partial(_draw_mixture, partial(draw, fast), partial(draw, slow), UNSEEN_SHARE)
    return Law(name, UNSEEN, fast_or_slow, find_quantile)


def _normal(mean_ms: float, sigma_ms: float) -> Draw:
    return lambda random, count: random.normal(mean_ms * MS, sigma_ms * MS, count)


def _gamma(shift_ms: float, shape: float, scale_ms: float) -> Draw:
    return lambda random, count: shift_ms * MS + random.gamma(shape, scale_ms * MS, count)


def _exponential(random: np.random.Generator, count: int) -> Floats:
    return 10 * MS + MS * random.standard_exponential(count)


def _log_around(median_ms: float, sigma: float) -> Draw:
    return lambda random, n: median_ms * MS * np.exp(sigma * random.standard_normal(n))


def _three_modes(random: np.random.Generator, count: int) -> Floats:
    """Cache hits, misses, and one in a hundred that also waits for another core."""
    mode = random.choice(3, count, p=(0.79, 0.2, 0.01))
    return np.asarray((10.0 + 0.8 * mode) * MS + random.gamma(4.0, 0.1 * MS, count))


# -- dependent series ----------------------------------------------------------------------------


def _gumbel(normal: Floats) -> Floats:
    """Map a normal series to Gumbel times, so that only the dependence differs."""
    share = np.clip(special.ndtr(normal), 1e-300, 1 - 1e-16)
    return np.asarray(10 * MS - MS * np.log(-np.log(share)))


def _autoregressive(coefficient: float) -> Law:
    def draw(random: np.random.Generator, count: int) -> Floats:
        noise = random.standard_normal(count + 500)
        scale = math.sqrt(1.0 - coefficient**2)
        return _gumbel(signal.lfilter([scale], [1.0, -coefficient], noise)[500:])

    return Law(f"AR(1), {coefficient:g}", DEPENDENT, draw)


def _moving_maxima(random: np.random.Generator, count: int) -> Floats:
    """Maximum of a Fréchet value and its neighbour: extremal index 1/2 (Coles 2001, 5.2)."""
    frechet = 1.0 / random.standard_exponential(count + 1)
    return 10 * MS + MS * np.log1p(np.maximum(frechet[1:], frechet[:-1]))


def _volatile(random: np.random.Generator, count: int) -> Floats:
    """Uncorrelated values with volatile and calm stretches: a GARCH(1,1) series."""
    noise = random.standard_normal(count)
    times = np.empty(count)
    variance = 1.0
    for place, one in enumerate(noise):
        times[place] = math.sqrt(variance) * one
        variance = 0.1 + 0.2 * float(times[place]) ** 2 + 0.7 * variance
    return 20 * MS + MS * times


def _switch(
    random: np.random.Generator, count: int, begins: float, ends: float
) -> npt.NDArray[np.bool_]:
    """Draw a state that begins and ends with these probabilities a frame."""
    states = np.empty(count, bool)
    is_on = False
    for place, one in enumerate(random.random(count)):
        is_on = bool(one < begins) if not is_on else bool(one >= ends)
        states[place] = is_on
    return states


def _throttling(random: np.random.Generator, count: int) -> Floats:
    """Board that throttles occasionally: 5 % slower for some 200 frames in 2,000."""
    base = 10 * MS * (1.0 + 0.05 * _switch(random, count, 1 / 2000, 1 / 200))
    return np.asarray(base + 0.2 * MS * random.standard_exponential(count))


def _co_runner(random: np.random.Generator, count: int) -> Floats:
    """Another network runs beside it for some 5 frames in 100, which take 10 % longer."""
    base = 10 * MS * (1.0 + 0.1 * _switch(random, count, 1 / 95, 1 / 5))
    return np.asarray(base + random.gamma(4.0, 0.2 * MS, count))


def _periodic(random: np.random.Generator, count: int) -> Floats:
    """Every 30th frame takes half a millisecond longer."""
    times = _exponential(random, count) * 0.1 + 9 * MS
    return np.asarray(times + 0.5 * MS * (np.arange(count) % 30 == 0))


def _beating(random: np.random.Generator, count: int) -> Floats:
    """Two clocks that beat: a sine of 70 frames, a third of the spread."""
    sine = np.sin(2.0 * np.pi * np.arange(count) / 70.0)
    return np.asarray(10 * MS + 0.3 * MS * (random.gamma(4.0, 0.5, count) + sine / 3.0))


def _warming(random: np.random.Generator, count: int) -> Floats:
    """1 % slower at the end than at the beginning, with a spread of 3 %."""
    return 10 * MS * (1.0 + 0.01 * np.arange(count) / count) + random.normal(0, 0.3 * MS, count)


def _updated(random: np.random.Generator, count: int) -> Floats:
    """From two thirds on everything takes 2 % longer."""
    later = np.arange(count) >= 2 * count // 3
    return np.asarray(10 * MS * (1.0 + 0.02 * later) + random.gamma(4.0, 0.2 * MS, count))


def _averaged(random: np.random.Generator, count: int) -> Floats:
    """Averages of five values: a frame resembles the four before it."""
    noise = random.standard_normal(count + 4)
    return _gumbel(np.convolve(noise, np.full(5, 5.0**-0.5), "valid"))


def _bursts(random: np.random.Generator, count: int) -> Floats:
    """Collections of garbage: one frame in 500 begins a burst of four that take 1 ms longer."""
    begins = (random.random(count) < 1 / 500).astype(float)
    burst = np.convolve(begins, np.ones(4))[:count] > 0.0
    return np.asarray(10 * MS + MS * burst + random.gamma(4.0, 0.2 * MS, count))


def _wandering(random: np.random.Generator, count: int) -> Floats:
    """Spread that wanders slowly, while the median stays: stochastic volatility."""
    level = signal.lfilter([0.1], [1.0, -0.98], random.standard_normal(count + 500))[500:]
    return np.asarray(10 * MS + 0.3 * MS * np.exp(level) * random.gamma(4.0, 0.5, count))


DEVELOPED_WITH = (
    *(_generalized_extreme(shape) for shape in (-0.3, 0.0, 0.2)),
    *(_generalized_pareto(shape) for shape in (-0.3, 0.0, 0.2)),
    *(_lognormal(sigma) for sigma in (0.25, 0.5)),
    _mixture("slow mode apart", _normal(10, 0.3), _normal(15, 0.3)),
    _mixture("slow mode at the edge", _normal(10, 0.3), _normal(11.5, 0.3)),
    _mixture("slow mode in the tail", _exponential, _normal(20, 1.0)),
    _autoregressive(0.2),
    _autoregressive(0.6),
    Law("moving maxima", DEPENDENT, _moving_maxima),
    Law("volatile", DEPENDENT, _volatile),
    Law("throttling", DEPENDENT, _throttling),
    Law("periodic", DEPENDENT, _periodic),
    Law("warming", DEPENDENT, _warming),
)

HELD_OUT = (
    _above_10_ms("normal", stats.norm()),
    _above_10_ms("skew normal, 4", stats.skewnorm(4.0)),
    _above_10_ms("Weibull, 0.8", stats.weibull_min(0.8)),
    _above_10_ms("Weibull, 1.5", stats.weibull_min(1.5)),
    _above_10_ms("gamma, 3", stats.gamma(3.0)),
    _above_10_ms("inverse Gaussian, 0.5", stats.invgauss(0.5)),
    _above_10_ms("ex-Gaussian, 2", stats.exponnorm(2.0)),
    _above_10_ms("beta, 2 and 4", stats.beta(2.0, 4.0, scale=3.0)),
    _above_10_ms("Burr XII, 2.5 and 4", stats.burr12(2.5, 4.0)),
    _above_10_ms("log-logistic, 6", stats.fisk(6.0)),
    _mixture("two gammas, 1 %", _gamma(10, 4.0, 0.1), _gamma(11, 4.0, 0.1), 0.01),
    _mixture("two lognormals", _log_around(10, 0.05), _log_around(13, 0.05)),
    Law("three modes", MIXTURE, _three_modes),
    Law("averages of five", DEPENDENT, _averaged),
    Law("co-runner", DEPENDENT, _co_runner),
    Law("beating", DEPENDENT, _beating),
    Law("updated", DEPENDENT, _updated),
    Law("bursts", DEPENDENT, _bursts),
    Law("wandering spread", DEPENDENT, _wandering),
    _unseen("slow mode of 1 in 50,000", stats.norm(10.0, 0.3), stats.norm(15.0, 0.3)),
)

LAWS = (*DEVELOPED_WITH, *HELD_OUT)
