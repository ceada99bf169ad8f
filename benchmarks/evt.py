# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bounds of the worst case against laws whose quantiles are known.

Campaigns are drawn from known laws and judged like measured ones. For laws drawn
independently, the upper bound at --exceedance should cover the true quantile in 93 % of the
campaigns that got a bound (95 % is promised; 200 trials scatter by 1.5 points), and be at most 1.3
times as large in the median. False alarms, campaigns of such laws that were flagged, are counted
and may be at most 5 %. Mixtures with a slow mode of 0.5 % and dependent series must be flagged in
90 %.

Each bounded campaign is also validated on a second one: exceedances of its bound, counted over
claimed. Fits are compared with scipy's and pyextremes' on the same data: scales
and quantiles within 1 %, shapes within 0.01.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.options import CORES, Options, echo
from benchmarks.harness.tables import Report, say, say_verdict, tabulate
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.wcet.comparison import validate
from jetson_dnn_rt.lab.wcet.evt import fit_block_maxima, judge
from jetson_dnn_rt.lab.wcet.extreme_value import Floats, MaximaLaw, ParetoTail, grow
from jetson_dnn_rt.lab.wcet.goodness import TailFit, fit_above
from jetson_dnn_rt.safety.children import safe_spawning

COVERAGE_BAR = 0.93
TIGHTNESS_BAR = 1.3
FLAGGED_BAR = 0.9
FALSE_ALARM_BAR = 0.05
AGREEMENT_BAR = 0.01
TAIL_SHARE = 0.1
_CHUNK = 10

MS = 1e6
SLOW_SHARE = 0.005
IID, MIXTURE, DEPENDENT = "iid", "mixture", "dependent"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--trials", 200, "of each law", least=1, metavar="N")
    add("--count", 10_000, "times of a campaign", least=1, metavar="N")
    add("--exceedance", 1e-4, "of the bounds", above=0, most=0.5, metavar="P")
    add("--laws", "", "only laws with this text in their names", metavar="TEXT")
    add("--workers", CORES, "processes (default: all cores)", least=1)
    add("--seed", 0, "of the campaigns")


# -- laws ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Law:
    """Source of series in nanoseconds, all around 10 ms.

    A law drawn independently has a true `quantile` of an exceedance; campaigns from mixtures and
    dependent series must not get a bound.
    """

    name: str
    kind: str
    draw: Callable[[np.random.Generator, int], Floats]
    quantile: Callable[[float], float] | None = None


def draw_times(law: Law, random: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Draw a campaign as from a timer: whole nanoseconds."""
    return np.round(law.draw(random, count)).astype(np.int64)


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
    """Map a normal series to Gumbel times, so that only the dependence differs."""
    from scipy.special import ndtr

    share = np.clip(ndtr(normal), 1e-300, 1 - 1e-16)
    return np.asarray(10 * MS - MS * np.log(-np.log(share)))


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
    """Uncorrelated values with volatile and calm stretches: a GARCH(1,1) series."""
    noise = random.standard_normal(count)
    times = np.empty(count)
    variance = 1.0
    for place, one in enumerate(noise):
        times[place] = math.sqrt(variance) * one
        variance = 0.1 + 0.2 * float(times[place]) ** 2 + 0.7 * variance
    return 20 * MS + MS * times


def _throttling(random: np.random.Generator, count: int) -> Floats:
    """Board that throttles occasionally: 5 % slower for some 200 frames in 2,000."""
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


# -- trials --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """Judged campaign: the tests that flagged it, and upper bound / true quantile.

    `ratio` is NaN if one of them is missing; exceedances are `counted` in a second campaign, and
    `claimed` by the bound.
    """

    failed: tuple[str, ...]
    ratio: float
    counted: int
    claimed: float
    taken_s: float


def try_law(place: int, number: int, count: int, exceedance: float, seed: int) -> Trial:
    """Draw a campaign of a law, judge it, and compare the bound with the truth."""
    law = LAWS[place]
    random = np.random.default_rng([seed, number, *law.name.encode()])
    times = draw_times(law, random, count)
    begin = time.perf_counter()
    campaign = judge(times, title=law.name, exceedances=(exceedance,), seed=number)
    taken_s = time.perf_counter() - begin
    failed = tuple(test.name for test in campaign.tests if not test.passed)
    if failed or law.quantile is None:
        return Trial(failed, float("nan"), 0, 0.0, taken_s)
    ratio = campaign.bounds[0].upper_ns / law.quantile(exceedance)
    second = validate(campaign, draw_times(law, random, count))
    counted, claimed = sum(one.counted for one in second), sum(one.claimed for one in second)
    return Trial(failed, ratio, counted, claimed, taken_s)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Draw, judge and count; `ConfigurationError` when no law has such a name."""
    places = [place for place, law in enumerate(LAWS) if args.laws in law.name]
    if not places:
        names = ", ".join(law.name for law in LAWS)
        raise ConfigurationError(f"no law has {args.laws!r} in its name: {names}")
    try_once = partial(try_law, count=args.count, exceedance=args.exceedance, seed=args.seed)
    rows: list[dict[str, Any]] = []
    taken_s: list[float] = []
    with ExitStack() as stack:
        run_all: Callable[..., Iterator[Trial]] = map
        if args.workers > 1:
            context = multiprocessing.get_context("spawn")
            stack.enter_context(safe_spawning())
            pool = ProcessPoolExecutor(args.workers, mp_context=context)
            run_all = partial(stack.enter_context(pool).map, chunksize=_CHUNK)
        pairs = product(places, range(args.trials))
        trials = run_all(try_once, *zip(*pairs, strict=True))
        for place in places:
            some = list(islice(trials, args.trials))
            rows.append(_summarize(LAWS[place], some))
            taken_s += [trial.taken_s for trial in some]
            say(f"evt: {LAWS[place].name} done, {len(rows)} of {len(places)}")
    agreement = measure_agreement(args.seed, args.count, args.exceedance)
    agrees = all(one["largest"] <= AGREEMENT_BAR for one in agreement)
    return {
        **echo(args, "trials count exceedance"),
        "laws": rows,
        "agreement": agreement,
        "judge_ms_p50": float(np.median(taken_s) * 1e3),
        "bars": {
            "coverage": COVERAGE_BAR,
            "tightness": TIGHTNESS_BAR,
            "flagged": FLAGGED_BAR,
            "false_alarms": FALSE_ALARM_BAR,
            "agreement": AGREEMENT_BAR,
        },
        "passed": agrees and all(row["passed"] for row in rows),
    }


def _summarize(law: Law, trials: Sequence[Trial]) -> dict[str, Any]:
    flagged = sum(bool(trial.failed) for trial in trials) / len(trials)
    row: dict[str, Any] = {
        "law": law.name,
        "kind": law.kind,
        "flagged": flagged,
        "by": dict(Counter(name for trial in trials for name in trial.failed).most_common()),
    }
    ratios = np.array([trial.ratio for trial in trials if not np.isnan(trial.ratio)])
    if law.kind != IID:
        return {**row, "passed": flagged >= FLAGGED_BAR}
    coverage = float((ratios >= 1.0).mean()) if len(ratios) else 0.0
    tightness = float(np.median(ratios)) if len(ratios) else None
    counted = sum(trial.counted for trial in trials)
    claimed = sum(trial.claimed for trial in trials)
    covered = coverage >= COVERAGE_BAR and flagged <= FALSE_ALARM_BAR
    return {
        **row,
        "bounded": len(ratios),
        "coverage": coverage,
        "tightness": tightness,
        "tightness_p95": float(np.quantile(ratios, 0.95)) if len(ratios) else None,
        "exceeded_to_claimed": counted / claimed if claimed else None,
        "passed": covered and tightness is not None and tightness <= TIGHTNESS_BAR,
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of the laws, then of the agreement with other libraries."""
    bars = result["bars"]
    return [
        f"{result['trials']} campaigns of {result['count']} times each, upper 95 % bounds at "
        f"{result['exceedance']:g}; judge takes {result['judge_ms_p50']:.0f} ms",
        tabulate(
            result["laws"],
            "law, flagged:.1%, covered=coverage:.1%, tight=tightness:.3f, p95=tightness_p95:.3f",
            "exceeded=exceeded_to_claimed:.2f, passed",
        ),
        "largest difference to other libraries, same data",
        tabulate(result["agreement"], "law, fit, library, difference=largest:.4%"),
        f"bars: covered >= {bars['coverage']:.0%}, tight (bound / truth, median) <= "
        f"{bars['tightness']}, flagged >= {bars['flagged']:.0%} of mixtures and dependent series, "
        f"<= {bars['false_alarms']:.0%} of the others, libraries within {bars['agreement']:.0%}: "
        f"{say_verdict(result['passed'])}",
    ]


# -- other libraries -----------------------------------------------------------------------------


def measure_agreement(seed: int, count: int, exceedance: float) -> list[dict[str, Any]]:
    """Fit a campaign of every iid law as GPD and GEV with each library that is installed.

    ``largest`` is the largest of the relative differences of scale and quantile and the absolute
    difference of shape.
    """
    rows = []
    for place, law in enumerate(LAWS):
        if law.kind != IID:
            continue
        values = law.draw(np.random.default_rng([seed, place]), count)
        tail = fit_above(np.sort(values), int(TAIL_SHARE * count))
        maxima_law, maxima = fit_block_maxima(values)
        for library, (pareto, extreme) in _fit_others(tail, maxima_law, maxima).items():
            pairs: dict[str, tuple[Any, Any]] = {
                "GPD": (tail.tail, pareto), "GEV": (maxima_law, extreme)
            }  # fmt: skip
            for fit, (ours, theirs) in pairs.items():
                largest = max(
                    abs(theirs.scale / ours.scale - 1.0),
                    abs(theirs.quantile(exceedance) / ours.quantile(exceedance) - 1.0),
                    abs(theirs.shape - ours.shape),
                )
                row = {"law": law.name, "fit": fit, "library": library, "largest": largest}
                rows.append(row)
    return rows


def _fit_others(
    fit: TailFit, law: MaximaLaw, maxima: Floats
) -> dict[str, tuple[ParetoTail, MaximaLaw]]:
    from scipy import stats

    tail = fit.tail
    # Milliseconds: their searches begin at scales of about 1.
    excesses, heights = fit.excesses / MS, maxima / MS
    shape, _, scale = stats.genpareto.fit(excesses, floc=0.0)
    fits = {"scipy": ((shape, scale), stats.genextreme.fit(heights))}
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        import pandas as pd  # type: ignore[import-untyped]
        from pyextremes.models import MLE

        warnings.simplefilter("ignore")
        days = pd.date_range("2000-01-01", periods=max(len(excesses), len(heights)), freq="D")
        above = pd.Series(excesses, index=days[: len(excesses)])
        gpd = MLE(above, "genpareto", {"floc": 0.0}).fit_parameters
        gev = MLE(pd.Series(heights, index=days[: len(heights)]), "genextreme").fit_parameters
        fits["pyextremes"] = (gpd["c"], gpd["scale"]), (gev["c"], gev["loc"], gev["scale"])
    return {
        library: (
            ParetoTail(tail.threshold, float(scale) * MS, float(shape), tail.share, tail.count),
            MaximaLaw(location * MS, spread * MS, -float(minus), law.block, law.count),
        )
        for library, ((shape, scale), (minus, location, spread)) in fits.items()
    }
