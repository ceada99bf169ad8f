# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Conditions that a bound of the worst case rests on, tested and described in plain words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.lab.wcet.extreme_value import Floats
from jetson_dnn_rt.lab.wcet.goodness import (
    HELD_OUT_TESTS,
    TailFit,
    check_gap,
    check_held_out,
    check_stability,
)
from jetson_dnn_rt.lab.wcet.statement import TestResult
from jetson_dnn_rt.lab.wcet.stationarity import (
    check_clusters,
    check_correlation,
    check_level,
    check_runs,
    check_same_law,
    rank,
)

FALSE_ALARM = 0.01
"""Probability with which good times fail at least one of the tests: the level of all of them
together (Bonferroni: each gets its share)."""

_VALUE_LAGS = 20
_LONG_LAGS = 100


class Condition(NamedTuple):
    """Meaning of a test that passes and of one that fails, and the remedy."""

    holds: str
    fails: str
    advice: str


_DRIFT = (
    "let the board reach its temperature, fix the clocks and the power mode (`jetson-dnn-rt"
    " doctor` says how), keep other load the same, mark the first frames as warm-up; judge"
    " different clocks apart (--by task,variant,clocks)"
)
_DEPENDENT = (
    "find what slows frames in a row or at a rhythm (clock governor, another process, one core"
    " shared, scenes that stay alike) and remove it, or measure frames further apart or in random"
    " order, so that each says something new"
)
_MODES = (
    "frames of two kinds are mixed: find what the slow ones have in common (a variant, a stage,"
    " a first use, paging, another task) in `jetson-dnn-rt export --format perfetto`, then remove"
    " it or judge both kinds apart"
)
_LAW = "measure more frames (10,000 at least), or separate what is mixed (--by stage)"

CONDITIONS = {
    "KPSS": Condition(
        "times keep their level over the campaign",
        "times drift or wander over the campaign: early frames say little about late ones",
        _DRIFT,
    ),
    "KPSS, exceedances": Condition(
        "slow frames are as frequent at the end as at the beginning",
        "slow frames become more or less frequent over the campaign",
        _DRIFT,
    ),
    "Anderson-Darling, halves": Condition(
        "the first and the second half of the campaign look alike",
        "the first and the second half of the campaign differ",
        _DRIFT,
    ),
    "Runs": Condition(
        "fast and slow frames alternate as chance would have it",
        "fast and slow frames do not alternate by chance, but keep together or swing",
        _DEPENDENT,
    ),
    "Ljung-Box": Condition(
        "a frame's time says nothing about the next ones",
        "a frame's time says something about the next ones",
        _DEPENDENT,
    ),
    "Ljung-Box, exceedances": Condition(
        "slow frames come without a rhythm",
        "slow frames come in groups or at a rhythm",
        _DEPENDENT,
    ),
    "Clusters": Condition(
        "slow frames come singly",
        "slow frames follow each other: one miss makes the next one likely",
        _DEPENDENT,
    ),
    "Anderson-Darling, tail": Condition(
        "the slowest frames follow one tail law",
        "the slowest frames do not follow one tail law, whatever threshold is taken",
        _MODES,
    ),
    "Gap": Condition(
        "no hole between the slow frames",
        "a hole between slow frames: some belong to another, rare kind",
        _MODES,
    ),
    "Threshold stability": Condition(
        "the tail law stays the same for the very slowest frames",
        "the very slowest frames follow another law than the slow ones",
        _MODES,
    ),
    **dict.fromkeys(
        HELD_OUT_TESTS,
        Condition(
            "the tail law predicts frames that it was not fitted to",
            "the tail law does not predict frames that it was not fitted to",
            _LAW,
        ),
    ),
}
"""Conditions by name, in the order in which they are tested and advice is given."""


def make_indicators(ordered: Floats, values: Floats) -> Floats:
    """Return 1 where a value is among the slow ones: 5 % of them, more where that is below 200."""
    count = len(values)
    share = min(0.2, max(0.05, 200.0 / count))
    return np.asarray(values > ordered[count - int(share * count) - 1], float)


def check_conditions(
    values: Floats, ordered: Floats, fit: TailFit, random: np.random.Generator
) -> tuple[list[TestResult], float]:
    """Run all tests on values in the order of measurement (ties spread) and their tail fit.

    Returns
    -------
    tests : list of TestResult
        In the order of `CONDITIONS`.
    extremal_index : float
        Of the slow frames.
    """
    half = len(values) // 2
    slow = make_indicators(ordered, values)
    clusters = check_clusters(np.flatnonzero(slow), len(values))
    found = {
        "KPSS": check_level(values),
        "KPSS, exceedances": check_level(slow),
        "Anderson-Darling, halves": check_same_law(values[:half], values[half:]),
        "Runs": check_runs(values),
        "Ljung-Box": check_correlation(rank(values), _VALUE_LAGS),
        "Ljung-Box, exceedances": check_correlation(slow, _LONG_LAGS),
        "Clusters": clusters,
        "Anderson-Darling, tail": (fit.statistic, fit.p_value),
        "Gap": check_gap(ordered),
        "Threshold stability": check_stability(ordered, fit),
        **check_held_out(fit, random),
    }
    level = FALSE_ALARM / len(CONDITIONS)
    tests = []
    for name, condition in CONDITIONS.items():
        statistic, p_value = found[name]
        passed = p_value >= level
        meaning = condition.holds if passed else condition.fails
        tests.append(TestResult(name, statistic, p_value, passed, meaning))
    return tests, clusters[0]
