# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Probabilistic worst-case execution time of a campaign, with the confidence it deserves.

Procedure (`docs/wcet.md`): ties of the timer are spread; stationarity and independence are tested;
excesses get a generalised Pareto law and block maxima a generalised extreme-value law, both with a
free shape; the fit is tested. Only if all tests pass are there bounds: by order statistics as far
as the sample itself reaches, otherwise the larger of the upper bounds by the two laws.
After Cucu-Grosjean et al. 2012 (ECRTS), Santinelli et al. 2014 (WCET), and Coles 2001.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.wcet.bounds import (
    bound_by_order,
    bound_by_resamples,
    bound_maxima_by_profile,
    bound_tail_by_profile,
    check_confidence,
    resample_maxima,
    resample_tail,
    rule_of_three,
)
from jetson_dnn_rt.lab.wcet.conditions import CONDITIONS, check_conditions
from jetson_dnn_rt.lab.wcet.extreme_value import Floats, MaximaLaw, fit_maxima
from jetson_dnn_rt.lab.wcet.goodness import TailFit, fit_tail
from jetson_dnn_rt.lab.wcet.statement import Bound, Campaign, Support, TestResult
from jetson_dnn_rt.lab.wcet.stationarity import longest_run, spread_ties

EXCEEDANCES = (1e-3, 1e-4, 1e-6)
LEAST_COUNT = 1000
"""With fewer times the tests are too weak to be trusted: there is no bound."""
LEAST_DISTINCT = 50
"""With fewer different times there is no law to fit."""
TAIL_COUNT = 10_000
"""From here on a slow mode of 0.5 % that does not overlap the fast one is found in at least 90 %
of campaigns (`benchmarks evt`)."""
REACH = 1.0
"""Extrapolation ends where this many exceedances are expected in the campaign. With 0.01, which is
1e-6 from 10,000 frames, bounds of two held-out laws of ten (normal, Burr) covered the quantile in
78 % of the campaigns, not in 95 % (``benchmarks/results/evt_far.json``): it is refused."""
MARGIN = 0.2
"""Margin on the high-water mark if there is no bound: a rule of thumb, and called one."""

_COMPLETE = (
    "measure without deadlines that end frames: `jetson-dnn-rt profile`, or `evaluate` in"
    " sequential mode"
)
_COARSE = (
    f"measure with a finer timer: it takes {LEAST_DISTINCT} different times to see a law in them"
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
    """Judge the worst case of a campaign, and how well the sample supports it.

    `times_ns` are in the order of measurement, of one (model, variant, clocks, cohort), without
    warm-up. `exceedances` are probabilities per frame, `confidence` is that of the upper bounds.
    `seed` is that of the resamples, the held-out fifth and the spreading of ties: the result is
    reproducible. `platform` is the state of the machine, for the statement. `cut_off` counts the
    frames missing because they were aborted for being slow: then the sample has lost its tail, and
    the rest proves nothing.

    Raises
    ------
    ValueError
        When an argument is out of range, or there are no times.
    ConfigurationError
        When scipy is missing.
    """
    times = np.asarray(times_ns, dtype=np.float64)
    _check(times, exceedances, confidence)
    wanted = sorted({float(one) for one in exceedances}, reverse=True)
    random = np.random.default_rng(seed)
    values, _step = spread_ties(times, random)
    ordered = np.sort(values)
    distinct = len(np.unique(times))
    counted = f"{len(times)} frames, {distinct} different times"
    if len(times) < LEAST_COUNT:
        counted = f"{len(times)} frames are too few: a bound takes {LEAST_COUNT:,} at least"
    elif distinct < LEAST_DISTINCT:
        counted = f"only {distinct} different times: the timer is too coarse for them"
    enough = len(times) >= LEAST_COUNT and distinct >= LEAST_DISTINCT
    complete = (
        f"{cut_off} slow frames were ended before they had finished: their times are missing"
        if cut_off
        else "no frame was ended for being slow"
    )
    tests = [
        TestResult("Count", float(len(times)), math.nan, enough, counted),
        TestResult("Complete", float(cut_off), math.nan, cut_off == 0, complete),
    ]
    index = math.nan
    bounds = [_give_no_bound(one) for one in wanted]
    if enough:
        fit = fit_tail(ordered)
        more, index = check_conditions(values, ordered, fit, random)
        tests += more
        if all(test.passed for test in tests):
            bounds = _bound(values, ordered, fit, wanted, confidence, random)
    given = {bound.support for bound in bounds}
    weakest = (Support.EXTRAPOLATED, Support.SUPPORTED, Support.UNPROVEN)
    support = next(one for one in weakest if one in given)
    seen = np.sort(times)
    p50, p99 = (float(seen[math.ceil(share * len(seen)) - 1]) for share in (0.5, 0.99))
    three = rule_of_three(len(times), confidence)
    campaign = Campaign(
        title=title,
        count=len(times),
        best_ns=float(seen[0]),
        mean_ns=float(times.mean()),
        p50_ns=p50,
        p99_ns=p99,
        hwm_ns=float(seen[-1]),
        support=support,
        smallest_supported=three if all(test.passed for test in tests) else math.nan,
        confidence=confidence,
        bounds=tuple(bounds),
        tests=tuple(tests),
        extremal_index=index,
        longest_burst=longest_run(times > p99),
        rule_of_three=three,
        statement="",
        advice=(),
    )
    where = f", {platform}" if platform else ""
    return replace(campaign, statement=_state(campaign) + where, advice=_advise(campaign))


def _check(times: Floats, exceedances: Sequence[float], confidence: float) -> None:
    if times.ndim != 1 or not len(times) or not np.isfinite(times).all():
        raise ValueError("times_ns must be one row of at least one finite time")
    if not exceedances or not all(0.0 < one <= 0.5 for one in exceedances):
        raise ValueError(f"exceedances must be in (0, 0.5]: {tuple(exceedances)}")
    check_confidence(confidence)


def _give_no_bound(exceedance: float) -> Bound:
    return Bound(exceedance, Support.UNPROVEN, math.nan, math.nan, "none")


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
    # Half of the allowed error is reserved for the error that a fit cannot see: that the tail is
    # not yet quite in its limit. Without it the bounds cover 90 to 93 % (`benchmarks evt`).
    level = 1.0 - 0.5 * (1.0 - confidence)
    found = _extrapolate(values, fit, beyond, level, random) if len(beyond) else []
    extrapolated = {bound.exceedance: bound for bound in found}
    bounds: list[Bound] = []
    least = -math.inf
    for p in wanted:
        if p in extrapolated:
            bound = extrapolated[p]
        elif p < REACH / count:
            bound = _give_no_bound(p)
        else:
            estimate = float(ordered[count - 1 - int(count * p)])
            upper = bound_by_order(ordered, p, confidence)
            bound = Bound(p, Support.SUPPORTED, estimate, upper, "order statistics")
        if not math.isnan(bound.upper_ns):
            # A rarer time is not shorter: the sample's own bound may be above a fitted one.
            least = max(least, bound.upper_ns)
            bound = Bound(p, bound.support, bound.estimate_ns, least, bound.method)
        bounds.append(bound)
    return bounds


def _extrapolate(
    values: Floats,
    fit: TailFit,
    exceedances: Floats,
    confidence: float,
    random: np.random.Generator,
) -> list[Bound]:
    """Bound by both laws, by profile likelihood and by refits; the largest bound is used."""
    tail, excesses, count = fit.tail, fit.excesses, len(values)
    places = np.argsort(values, kind="stable").astype(np.int64)[count - tail.count :]
    law, maxima = fit_block_maxima(values)
    tail_refits = resample_tail(tail, excesses, places, count, exceedances, random)
    maxima_refits = resample_maxima(maxima, law.block, exceedances, random)
    bounds = []
    for place, p in enumerate(exceedances.tolist()):
        by_tail = bound_tail_by_profile(tail, excesses, p, confidence)
        by_maxima = bound_maxima_by_profile(law, maxima, p, confidence)
        found = []
        for method, estimate, by_profile, refits in (
            ("GPD", tail.quantile(p), by_tail, tail_refits),
            ("GEV", law.quantile(p), by_maxima, maxima_refits),
        ):
            upper = max(by_profile, bound_by_resamples(refits[:, place], estimate, confidence))
            found.append(Bound(p, Support.EXTRAPOLATED, estimate, upper, method))
        bounds.append(max(found, key=lambda bound: bound.upper_ns))
    return bounds


def fit_block_maxima(values: Floats) -> tuple[MaximaLaw, Floats]:
    """Fit the maxima of blocks of 20, or of shorter ones if there would be fewer than 50.

    The maxima are returned, too; values after the last whole block are left out.
    """
    block = max(2, min(_BLOCK, len(values) // _LEAST_MAXIMA))
    blocks = len(values) // block
    maxima = values[: blocks * block].reshape(blocks, block).max(axis=1)
    return fit_maxima(maxima, block), maxima


def _state(campaign: Campaign) -> str:
    count, hwm_ms = campaign.count, campaign.hwm_ns / 1e6
    failed = [test for test in campaign.tests if not test.passed]
    given = [bound for bound in campaign.bounds if not math.isnan(bound.upper_ns)]
    if failed:
        return (
            f"unproven: {failed[0].meaning}. No bound; high-water mark {hwm_ms:.3f} ms in"
            f" {count:,} frames, with {MARGIN:.0%} on it {hwm_ms * (1 + MARGIN):.3f} ms as a"
            " rule of thumb"
        )
    if not given:
        return (
            f"unproven: {count:,} frames do not reach to {campaign.bounds[0].exceedance:g} per"
            f" frame; high-water mark {hwm_ms:.3f} ms"
        )
    last, tests = given[-1], len(campaign.tests)
    return (
        f"{last.upper_ns / 1e6:.3f} ms at {last.exceedance:g} per frame,"
        f" {campaign.confidence:.0%} upper confidence, {count:,} frames, {tests} of {tests} tests"
        f" passed, {last.support.value}"
    )


def _advise(campaign: Campaign) -> tuple[str, ...]:
    count = campaign.count
    failed = [test.name for test in campaign.tests if not test.passed]
    if count < LEAST_COUNT:
        return (
            f"measure {LEAST_COUNT:,} frames for a bound, {TAIL_COUNT:,} for one that also knows"
            " a kind of slow frame as rare as 1 in 200",
        )
    if "Count" in failed:
        return (_COARSE,)
    if failed:
        advice = [_COMPLETE] if "Complete" in failed else []
        advice += [CONDITIONS[name].advice for name in failed if name in CONDITIONS]
        return tuple(dict.fromkeys(advice))
    advice = []
    for bound in campaign.bounds:
        needed = math.ceil(math.log1p(-campaign.confidence) / math.log1p(-bound.exceedance))
        if bound.support is Support.EXTRAPOLATED:
            advice.append(
                f"{needed:,} frames would support {bound.exceedance:g} without a fitted law"
            )
        elif bound.support is Support.UNPROVEN:
            least = math.ceil(REACH / bound.exceedance)
            advice.append(
                f"{bound.exceedance:g} is out of reach: it takes {least:,} frames to extrapolate"
                f" to it and {needed:,} to support it"
            )
    if count < TAIL_COUNT:
        advice.append(
            f"measure {TAIL_COUNT:,} frames: in {count:,} a slow kind of frame that is rare shows"
            " only where it stands far apart"
        )
    advice.append(
        "validate on a second campaign: `jetson-dnn-rt wcet FIRST --validate SECOND` counts what"
        " exceeds the bounds"
    )
    return tuple(advice)
