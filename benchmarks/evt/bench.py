"""Bounds of the worst case against laws whose quantiles are known.

Campaigns are drawn from laws (laws.py) and judged like measured ones. Of laws drawn
independently, the upper bound at --exceedance should cover the true quantile in 93 % of the
campaigns that got a bound (95 % is what is promised; 200 trials scatter by 1.5 points), and be at
most 1.3 times as large in the median. False alarms, campaigns of such laws that were flagged, are
counted and may be 5 % at most. Mixtures with a slow mode of 0.5 % and dependent series must be
flagged in 90 %.

Each bounded campaign is also validated on a second one: how often its bound was exceeded, over
how often it claims to be. Fits are compared with scipy's and pyextremes' on the same data: scales
and quantiles within 1 %, shapes within 0.01.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from benchmarks.evt.laws import IID, LAWS, Law, draw_times
from benchmarks.harness.options import Options, echo
from benchmarks.harness.tables import Report, say, say_verdict, tabulate
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.wcet.comparison import validate
from jetson_dnn_rt.lab.wcet.evt import fit_block_maxima, judge
from jetson_dnn_rt.lab.wcet.extreme_value import Floats, MaximaLaw, ParetoTail
from jetson_dnn_rt.lab.wcet.goodness import TailFit, fit_above
from jetson_dnn_rt.safety.children import safe_spawning

COVERAGE_BAR = 0.93
TIGHTNESS_BAR = 1.3
FLAGGED_BAR = 0.9
FALSE_ALARM_BAR = 0.05
AGREEMENT_BAR = 0.01
TAIL_SHARE = 0.1
_CHUNK = 10


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--trials", 200, "of each law", least=1, metavar="N")
    add("--count", 10_000, "times of a campaign", least=1, metavar="N")
    add("--exceedance", 1e-4, "of the bounds", above=0, most=0.5, metavar="P")
    add("--laws", "", "only laws with this text in their names", metavar="TEXT")
    add("--workers", len(os.sched_getaffinity(0)), "processes (default: all cores)", least=1)
    add("--seed", 0, "of the campaigns")


@dataclass(frozen=True)
class Trial:
    """One campaign, judged: the tests that flagged it, and upper bound / true quantile.

    `ratio` is NaN where there is one of them only; exceedances are those `counted` in a second
    campaign, and as many as the bound claims.
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
    """Draw, judge, count; `ConfigurationError` when no law has such a name."""
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
    passed = coverage >= COVERAGE_BAR and flagged <= FALSE_ALARM_BAR
    return {
        **row,
        "bounded": len(ratios),
        "coverage": coverage,
        "tightness": tightness,
        "tightness_p95": float(np.quantile(ratios, 0.95)) if len(ratios) else None,
        "exceeded_to_claimed": counted / claimed if claimed else None,
        "passed": passed and tightness is not None and tightness <= TIGHTNESS_BAR,
    }


def report(result: Mapping[str, Any]) -> Report:
    """The laws, then the agreement with other libraries."""
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
            for fit, ours, theirs in (("GPD", tail.tail, pareto), ("GEV", maxima_law, extreme)):
                rows.append(
                    {
                        "law": law.name,
                        "fit": fit,
                        "library": library,
                        "largest": _differ(ours, theirs, exceedance),
                    }
                )
    return rows


def _differ(
    ours: ParetoTail | MaximaLaw, theirs: ParetoTail | MaximaLaw, exceedance: float
) -> float:
    quantile = ours.quantile(exceedance)
    return max(
        abs(theirs.scale / ours.scale - 1.0),
        abs(theirs.quantile(exceedance) / quantile - 1.0),
        abs(theirs.shape - ours.shape),
    )


def _fit_others(
    fit: TailFit, law: MaximaLaw, maxima: Floats
) -> dict[str, tuple[ParetoTail, MaximaLaw]]:
    from scipy import stats

    tail = fit.tail

    def pareto(shape: float, scale: float) -> ParetoTail:
        return ParetoTail(tail.threshold, scale, shape, tail.share, tail.count)

    # Milliseconds: their searches begin at scales of about 1.
    excesses, heights = fit.excesses / 1e6, maxima / 1e6
    shape, _, scale = stats.genpareto.fit(excesses, floc=0.0)
    minus, location, spread = stats.genextreme.fit(heights)
    found = {
        "scipy": (
            pareto(float(shape), float(scale) * 1e6),
            MaximaLaw(location * 1e6, spread * 1e6, -float(minus), law.block, law.count),
        )
    }
    try:
        import pandas as pd  # type: ignore[import-untyped]
        from pyextremes.models import MLE
    except ImportError:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        days = pd.date_range("2000-01-01", periods=max(len(excesses), len(heights)), freq="D")
        above = pd.Series(excesses, index=days[: len(excesses)])
        gpd = MLE(above, "genpareto", {"floc": 0.0}).fit_parameters
        gev = MLE(pd.Series(heights, index=days[: len(heights)]), "genextreme").fit_parameters
    found["pyextremes"] = (
        pareto(float(gpd["c"]), float(gpd["scale"]) * 1e6),
        MaximaLaw(gev["loc"] * 1e6, gev["scale"] * 1e6, -float(gev["c"]), law.block, law.count),
    )
    return found
