"""Probabilistic worst-case execution time of a campaign, with the confidence it deserves.

The procedure (`docs/wcet.md`): ties of the timer are spread; stationarity and independence are
tested; excesses get a generalised Pareto law and block maxima a generalised extreme-value law,
both with a free shape; the fit is tested. Only when everything passed there are bounds: by order
statistics as far as the sample itself reaches, else the larger of the upper bounds by the two
laws.
After Cucu-Grosjean et al. 2012 (ECRTS), Santinelli et al. 2014 (WCET), and Coles 2001.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.bounds import (
    bound_by_order,
    bound_by_resamples,
    bound_maxima_by_profile,
    bound_tail_by_profile,
    resample_maxima,
    resample_tail,
    rule_of_three,
)
from jetson_dnn_rt.lab.wcet.clusters import longest_run
from jetson_dnn_rt.lab.wcet.conditions import CONDITIONS, check_conditions
from jetson_dnn_rt.lab.wcet.extreme_value import Floats, MaximaLaw, fit_maxima
from jetson_dnn_rt.lab.wcet.goodness import TailFit, fit_tail
from jetson_dnn_rt.lab.wcet.statement import Bound, Campaign, Support, TestResult
from jetson_dnn_rt.lab.wcet.stationarity import spread_ties

EXCEEDANCES = (1e-3, 1e-4, 1e-6)
LEAST_COUNT = 1000
"""Below it the tests see too little to trust what they pass."""
TAIL_COUNT = 10_000
"""From here on a slow mode of 0.5 % is found in 90 % of the campaigns and more (`bench evt`)."""
REACH = 0.01
"""Extrapolation ends where this many exceedances are expected in the campaign: two orders of
magnitude beyond the high-water mark. Nothing in N frames contradicts a claim further out."""
MARGIN = 0.2
"""On the high-water mark, where there is no bound: a rule of thumb, and said to be one."""

_COMPLETE = (
    "measure without deadlines that end frames: `jetson-dnn-rt profile`, or `evaluate` in"
    " sequential mode"
)
_BLOCK = 20
_LEAST_MAXIMA = 50


def judge(
    times_ns: npt.ArrayLike,
    *,
    title: str,
    exceedances: Sequence[float] = EXCEEDANCES,
    confidence: float = 0.95,
    seed: int = 0,
    platform: str = "",
    cut_off: int = 0,
) -> Campaign:
    """Say what the worst case of a campaign is, and how far that is backed.

    Parameters
    ----------
    times_ns : array of int or float [N]
        In the order of measurement, of one (model, variant, clocks, cohort), without warm-up.
    title : str
        What was measured.
    exceedances : sequence of float
        Probabilities per frame, each in (0, 0.5].
    confidence : float
        Of the upper bounds, in [0.5, 1).
    seed : int
        Of the resamples, the held-out fifth and the spreading of ties: the same answer again.
    platform : str
        State of the machine, for the statement.
    cut_off : int
        Frames that are missing because they were ended for being slow: with them the sample has
        lost its tail, and nothing is proven by the rest.

    Raises
    ------
    ValueError
        When an argument is out of its range, or there is no time.
    ConfigurationError
        When scipy is missing.
    """
    times = np.asarray(times_ns, dtype=np.float64)
    _check(times, exceedances, confidence)
    wanted = sorted({float(one) for one in exceedances}, reverse=True)
    random = np.random.default_rng(seed)
    values, _step = spread_ties(times, random)
    ordered = np.sort(values)
    tests = [_test_count(times), _test_complete(cut_off)]
    index = math.nan
    bounds = [Bound(one, Support.UNPROVEN, math.nan, math.nan, "none") for one in wanted]
    if tests[0].passed:
        fit = fit_tail(ordered)
        more, index = check_conditions(values, ordered, fit, random)
        tests += more
        if all(test.passed for test in tests):
            bounds = _bound(values, ordered, fit, wanted, confidence, random)
    return _describe(times, bounds, tests, index, confidence, title, platform)


def _check(times: Floats, exceedances: Sequence[float], confidence: float) -> None:
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all():
        raise ValueError("times_ns must be one row of at least one finite time")
    if not exceedances or not all(0.0 < one <= 0.5 for one in exceedances):
        raise ValueError(f"exceedances must be in (0, 0.5]: {tuple(exceedances)}")
    if not 0.5 <= confidence < 1.0:
        raise ValueError(f"confidence must be in [0.5, 1): {confidence}")


def _test_count(times: Floats) -> TestResult:
    distinct = len(np.unique(times))
    enough = len(times) >= LEAST_COUNT
    meaning = f"{len(times)} frames, {distinct} different times"
    if not enough:
        meaning = f"{len(times)} frames are too few: a tail shows from {LEAST_COUNT:,} on"
    elif distinct < 50:
        meaning = f"only {distinct} different times: the timer is too coarse for them"
    return TestResult("Count", float(len(times)), math.nan, enough and distinct >= 50, meaning)


def _test_complete(cut_off: int) -> TestResult:
    meaning = (
        f"{cut_off} slow frames were ended before they had finished: their times are missing"
        if cut_off
        else "no frame was ended for being slow"
    )
    return TestResult("Complete", float(cut_off), math.nan, cut_off == 0, meaning)


def _bound(
    values: Floats,
    ordered: Floats,
    fit: TailFit,
    wanted: list[float],
    confidence: float,
    random: np.random.Generator,
) -> list[Bound]:
    count = len(values)
    beyond = np.array([p for p in wanted if REACH / count <= p < rule_of_three(count, confidence)])
    extrapolated = {}
    if len(beyond):
        # Half of what may go wrong is kept for what a fit does not know of itself: that the tail
        # is not yet quite in its limit. Without it the bounds cover 90 to 93 % (`bench evt`).
        level = 1.0 - 0.5 * (1.0 - confidence)
        by_tail = _bound_by_tail(values, fit, beyond, level, random)
        by_maxima = _bound_by_maxima(values, beyond, level, random)
        for p, *both in zip(beyond, by_tail, by_maxima, strict=True):
            extrapolated[float(p)] = max(both, key=lambda bound: bound.upper_ns)
    bounds: list[Bound] = []
    least = -math.inf
    for p in wanted:
        if p in extrapolated:
            bound = extrapolated[p]
        elif p < REACH / count:
            bound = Bound(p, Support.UNPROVEN, math.nan, math.nan, "none")
        else:
            estimate = float(ordered[count - 1 - int(count * p)])
            upper = bound_by_order(ordered, p, confidence)
            bound = Bound(p, Support.SUPPORTED, estimate, upper, "order statistics")
        if not math.isnan(bound.upper_ns):
            # A rarer time is no shorter: the sample's own bound may stand above a fitted one.
            least = max(least, bound.upper_ns)
            bound = Bound(p, bound.support, bound.estimate_ns, least, bound.method)
        bounds.append(bound)
    return bounds


def _bound_by_tail(
    values: Floats,
    fit: TailFit,
    exceedances: Floats,
    confidence: float,
    random: np.random.Generator,
) -> list[Bound]:
    tail = fit.tail
    order = np.argsort(values, kind="stable").astype(np.int64)
    places = order[len(values) - tail.count :]
    refits = resample_tail(tail, fit.excesses, places, len(values), exceedances, random)
    bounds = []
    for p, quantiles in zip(exceedances, refits.T, strict=True):
        estimate = tail.quantile(float(p))
        upper = max(
            bound_tail_by_profile(tail, fit.excesses, float(p), confidence),
            bound_by_resamples(quantiles, estimate, confidence),
        )
        bounds.append(Bound(float(p), Support.EXTRAPOLATED, estimate, upper, "GPD"))
    return bounds


def fit_block_maxima(values: Floats) -> tuple[MaximaLaw, Floats]:
    """Fit the maxima of blocks of 20, shorter where there would be less than 50 of them.

    Returns
    -------
    law : MaximaLaw
        By maximum likelihood.
    maxima : float64 [M]
        What it was fitted to; values behind the last whole block are left out.
    """
    block = max(2, min(_BLOCK, len(values) // _LEAST_MAXIMA))
    blocks = len(values) // block
    maxima = values[: blocks * block].reshape(blocks, block).max(axis=1)
    return fit_maxima(maxima, block), maxima


def _bound_by_maxima(
    values: Floats, exceedances: Floats, confidence: float, random: np.random.Generator
) -> list[Bound]:
    law, maxima = fit_block_maxima(values)
    refits = resample_maxima(maxima, law.block, exceedances, random)
    bounds = []
    for p, quantiles in zip(exceedances, refits.T, strict=True):
        estimate = law.quantile(float(p))
        upper = max(
            bound_maxima_by_profile(law, maxima, float(p), confidence),
            bound_by_resamples(quantiles, estimate, confidence),
        )
        bounds.append(Bound(float(p), Support.EXTRAPOLATED, estimate, upper, "GEV"))
    return bounds


def _describe(
    times: Floats,
    bounds: list[Bound],
    tests: list[TestResult],
    index: float,
    confidence: float,
    title: str,
    platform: str,
) -> Campaign:
    ordered = np.sort(times)
    count = len(times)

    def percentile(share: float) -> float:
        return float(ordered[math.ceil(share * count) - 1])

    passed = all(test.passed for test in tests)
    given = [bound.support for bound in bounds if bound.support is not Support.UNPROVEN]
    support = Support.UNPROVEN
    if passed and given:
        support = Support.EXTRAPOLATED if Support.EXTRAPOLATED in given else Support.SUPPORTED
    three = rule_of_three(count, confidence)
    hwm = float(ordered[-1])
    return Campaign(
        title=title,
        count=count,
        best_ns=float(ordered[0]),
        mean_ns=float(times.mean()),
        p50_ns=percentile(0.5),
        p99_ns=percentile(0.99),
        hwm_ns=hwm,
        support=support,
        smallest_supported=three if passed else math.nan,
        confidence=confidence,
        bounds=tuple(bounds),
        tests=tuple(tests),
        extremal_index=index,
        longest_burst=longest_run(times > percentile(0.99)),
        rule_of_three=three,
        statement=_state(bounds, tests, hwm, count, confidence, platform),
        advice=_advise(bounds, tests, count, confidence),
    )


def _state(
    bounds: list[Bound],
    tests: list[TestResult],
    hwm: float,
    count: int,
    confidence: float,
    platform: str,
) -> str:
    where = f", {platform}" if platform else ""
    failed = [test for test in tests if not test.passed]
    given = [bound for bound in bounds if not math.isnan(bound.upper_ns)]
    if failed:
        return (
            f"unproven: {failed[0].meaning}. No bound; high-water mark {hwm / 1e6:.3f} ms in"
            f" {count:,} frames, with {MARGIN:.0%} on it {hwm * (1 + MARGIN) / 1e6:.3f} ms as a"
            f" rule of thumb{where}"
        )
    if not given:
        return (
            f"unproven: {count:,} frames do not reach to {max(b.exceedance for b in bounds):g} per"
            f" frame; high-water mark {hwm / 1e6:.3f} ms{where}"
        )
    last = given[-1]
    return (
        f"{last.upper_ns / 1e6:.3f} ms at {last.exceedance:g} per frame, {confidence:.0%} upper"
        f" confidence, {count:,} frames, {len(tests)} of {len(tests)} tests passed,"
        f" {last.support.value}{where}"
    )


def _advise(
    bounds: list[Bound], tests: list[TestResult], count: int, confidence: float
) -> tuple[str, ...]:
    failed = [test.name for test in tests if not test.passed]
    if "Count" in failed:
        return (f"measure {max(TAIL_COUNT - count, 0):,} frames more: a tail needs so many",)
    advice = [_COMPLETE] if "Complete" in failed else []
    advice += [CONDITIONS[name].advice for name in failed if name in CONDITIONS]
    if failed:
        return tuple(dict.fromkeys(advice))
    further = []
    for bound in bounds:
        needed = math.ceil(math.log1p(-confidence) / math.log1p(-bound.exceedance))
        if bound.support is Support.EXTRAPOLATED:
            further.append(
                f"{needed:,} frames would support {bound.exceedance:g} without a fitted law"
            )
        elif bound.support is Support.UNPROVEN:
            least = math.ceil(REACH / bound.exceedance)
            further.append(
                f"{bound.exceedance:g} is out of reach: it takes {least:,} frames to extrapolate"
                f" to it and {needed:,} to support it"
            )
    if count < TAIL_COUNT:
        further.append(
            f"measure {TAIL_COUNT:,} frames: in {count:,} a slow kind of frame that is rare shows"
            " only where it stands far apart"
        )
    further.append(
        "validate on a second campaign: `jetson-dnn-rt wcet FIRST --validate SECOND` counts what"
        " exceeds the bounds"
    )
    return tuple(further)
