"""Series of times whose law is known, to check bounds of the worst case.

All are in nanoseconds around 10 ms. Those of one law, drawn independently, have a true quantile;
mixtures and dependent series are what a campaign must not be bounded by when it looks like that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.extreme_value import Floats, grow

MS = 1e6
SLOW_SHARE = 0.005

IID, MIXTURE, DEPENDENT = "iid", "mixture", "dependent"


@dataclass(frozen=True)
class Law:
    """A source of series in nanoseconds; `quantile` of an exceedance is that of the iid laws."""

    name: str
    kind: str
    draw: Callable[[np.random.Generator, int], Floats]
    quantile: Callable[[float], float] | None = None


def draw_times(law: Law, random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """A campaign as a timer would give it: whole nanoseconds."""
    return np.round(law.draw(random, count)).astype(np.int64)


def _generalized_extreme(shape: float) -> Law:
    def draw(random: np.random.Generator, count: int) -> Floats:
        return 10 * MS + MS * grow(shape, -np.log(random.standard_exponential(count)))

    def quantile(exceedance: float) -> float:
        reduced = -math.log(-math.log1p(-exceedance))
        return 10 * MS + MS * float(grow(shape, reduced))

    return Law(f"GEV, xi {shape:g}", IID, draw, quantile)


def _generalized_pareto(shape: float) -> Law:
    def draw(random: np.random.Generator, count: int) -> Floats:
        return 10 * MS + MS * grow(shape, random.standard_exponential(count))

    def quantile(exceedance: float) -> float:
        return 10 * MS + MS * float(grow(shape, -math.log(exceedance)))

    return Law(f"GPD, xi {shape:g}", IID, draw, quantile)


def _lognormal(sigma: float) -> Law:
    def draw(random: np.random.Generator, count: int) -> Floats:
        return 10 * MS * np.exp(sigma * random.standard_normal(count))

    def quantile(exceedance: float) -> float:
        from scipy.special import ndtri

        return 10 * MS * math.exp(-sigma * float(ndtri(exceedance)))

    return Law(f"lognormal, sigma {sigma:g}", IID, draw, quantile)


def _mixture(name: str, fast: Callable[..., Floats], slow: Callable[..., Floats]) -> Law:
    def draw(random: np.random.Generator, count: int) -> Floats:
        is_slow = random.random(count) < SLOW_SHARE
        return np.asarray(np.where(is_slow, slow(random, count), fast(random, count)))

    return Law(name, MIXTURE, draw)


def _normal(mean_ms: float, sigma_ms: float) -> Callable[..., Floats]:
    return lambda random, count: random.normal(mean_ms * MS, sigma_ms * MS, count)


def _exponential(random: np.random.Generator, count: int) -> Floats:
    return 10 * MS + MS * random.standard_exponential(count)


def _gumbel(normal: Floats) -> Floats:
    """A normal series mapped to Gumbel times, so that only the dependence differs."""
    from scipy.special import ndtr

    return np.asarray(10 * MS - MS * np.log(-np.log(np.clip(ndtr(normal), 1e-300, 1 - 1e-16))))


def _autoregressive(coefficient: float) -> Law:
    def draw(random: np.random.Generator, count: int) -> Floats:
        from scipy.signal import lfilter

        noise = random.standard_normal(count + 500)
        series = lfilter([math.sqrt(1.0 - coefficient**2)], [1.0, -coefficient], noise)
        return _gumbel(series[500:])

    return Law(f"AR(1), {coefficient:g}", DEPENDENT, draw)


def _moving_maxima(random: np.random.Generator, count: int) -> Floats:
    """Maximum of a Fréchet value and its neighbour: extremal index 1/2 (Coles 2001, 5.2)."""
    frechet = 1.0 / random.standard_exponential(count + 1)
    return 10 * MS + MS * np.log1p(np.maximum(frechet[1:], frechet[:-1]))


def _volatile(random: np.random.Generator, count: int) -> Floats:
    """No correlation of values, but slow and calm stretches: a GARCH(1,1) series."""
    noise = random.standard_normal(count)
    times = np.empty(count)
    variance = 1.0
    for place, one in enumerate(noise):
        times[place] = math.sqrt(variance) * one
        variance = 0.1 + 0.2 * float(times[place]) ** 2 + 0.7 * variance
    return 20 * MS + MS * times


def _throttling(random: np.random.Generator, count: int) -> Floats:
    """A board that throttles now and then: 5 % slower for some 200 frames in 2,000."""
    states = np.empty(count, bool)
    throttled = False
    for place, one in enumerate(random.random(count)):
        throttled = bool(one < 1 / 2000) if not throttled else bool(one >= 1 / 200)
        states[place] = throttled
    base = 10 * MS * (1.0 + 0.05 * states)
    return np.asarray(base + 0.2 * MS * random.standard_exponential(count))


def _periodic(random: np.random.Generator, count: int) -> Floats:
    """Every 30th frame takes half a millisecond longer."""
    times = _exponential(random, count) * 0.1 + 9 * MS
    return np.asarray(times + 0.5 * MS * (np.arange(count) % 30 == 0))


def _warming(random: np.random.Generator, count: int) -> Floats:
    """1 % slower at the end than at the beginning, with a spread of 3 %."""
    return 10 * MS * (1.0 + 0.01 * np.arange(count) / count) + random.normal(0, 0.3 * MS, count)


LAWS = (
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
"""All of them."""
