"""Fits of tails against those of scipy and pyextremes on the same data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.known_laws import IID, LAWS
from jetson_dnn_rt.lab.wcet.evt import fit_block_maxima
from jetson_dnn_rt.lab.wcet.extreme_value import Floats, MaximaLaw, ParetoTail
from jetson_dnn_rt.lab.wcet.goodness import TailFit, fit_above

TAIL_SHARE = 0.1


def measure_agreement(seed: int, count: int, exceedance: float) -> list[dict[str, Any]]:
    """Fit a campaign of every iid law with each library that is there.

    Returns
    -------
    list of dict
        ``law``, ``fit`` (GPD or GEV), ``library``, and ``largest``: the largest of the relative
        differences of scale and quantile and the absolute difference of shape.
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
