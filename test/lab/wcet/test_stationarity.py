# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tests of stationarity, independence and clusters, against scipy and statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.sandbox.stats.runs import runstest_1samp
from statsmodels.stats.diagnostic import acorr_ljungbox
from statsmodels.tsa.stattools import kpss

from jetson_dnn_rt.lab.wcet.stationarity import (
    anderson_survival,
    check_clusters,
    check_correlation,
    check_level,
    check_runs,
    check_same_law,
    correlate,
    cramer_survival,
    estimate_extremal_index,
    longest_run,
    rank,
    spread_ties,
)


def exceed(values, share=0.05):
    return np.flatnonzero(values > np.quantile(values, 1.0 - share))


CHECKS = {
    "level": check_level,
    "runs": check_runs,
    "correlation": lambda values: check_correlation(rank(values), 20),
    "halves": lambda values: check_same_law(values[:500], values[500:]),
    "clusters": lambda values: check_clusters(exceed(values), len(values)),
}


def draw_normal(seed, count=1000):
    return np.random.default_rng(seed).standard_normal(count)


@pytest.mark.filterwarnings("ignore")
def test_statistics_are_those_of_statsmodels_and_scipy():
    values = draw_normal(0, 2000)
    assert check_level(values)[0] == pytest.approx(kpss(values, nlags=int(4.0 * 20.0**0.25))[0])
    ljung_box = acorr_ljungbox(values, [20]).iloc[0]
    assert check_correlation(values, 20) == pytest.approx(tuple(ljung_box))
    runs = runstest_1samp(values, "median", correction=False)
    assert check_runs(values) == pytest.approx(tuple(runs))
    assert check_runs(np.ones(10)) == (0.0, 1.0)
    # scipy gives (A^2 - 1) / deviation, so the p values are compared.
    first, second = draw_normal(3, 300), draw_normal(4, 200) + 0.2
    p_value = stats.anderson_ksamp([first, second]).pvalue
    assert check_same_law(first, second)[1] == pytest.approx(p_value, rel=0.1)


def test_published_critical_values():
    # Kwiatkowski et al. 1992, table 1.
    found = [cramer_survival(critical) for critical in (0.347, 0.463, 0.574, 0.739)]
    assert found == pytest.approx([0.1, 0.05, 0.025, 0.01], rel=0.05)
    # D'Agostino & Stephens 1986, table 4.2, case 0.
    found = [anderson_survival(critical) for critical in (1.933, 2.492, 3.857)]
    assert found == pytest.approx([0.1, 0.05, 0.01], rel=0.03)
    assert anderson_survival(0.0) == cramer_survival(0.0) == 1.0


def test_cramer_is_scipys_limit():
    one = stats.cramervonmises(stats.uniform.ppf((np.arange(4000) + 0.2) / 4000), "uniform")
    assert cramer_survival(one.statistic) == pytest.approx(one.pvalue, abs=1e-3)


@pytest.mark.parametrize("survival", [anderson_survival, cramer_survival])
def test_survivals_fall(survival):
    found = np.array([survival(statistic) for statistic in np.geomspace(0.01, 40.0, 500)])
    assert (np.diff(found) <= 1e-5).all()
    assert (found[0], found[-1]) == (pytest.approx(1.0, abs=1e-4), pytest.approx(0.0, abs=1e-9))


@pytest.mark.parametrize("name", CHECKS)
def test_independent_values_fail_as_often_as_they_should(name):
    p_values = np.array([CHECKS[name](draw_normal(seed))[1] for seed in range(400)])
    # Binomial with 400 trials: 20 +- 4.4 at 5 %, 200 +- 10 at 50 %.
    assert 4 <= (p_values < 0.05).sum() <= 38
    assert 155 <= (p_values < 0.5).sum() <= 245


def test_each_fault_is_found():
    values = draw_normal(5)
    assert check_level(values + np.linspace(0.0, 1.0, 1000))[1] < 1e-3
    assert check_same_law(values[:500], 1.5 * values[500:])[1] < 1e-3
    smooth = np.convolve(values, [0.5, 0.5], "same")
    assert check_correlation(smooth, 20)[1] < 1e-6
    assert check_runs(smooth)[1] < 1e-6


def test_correlations_and_ranks_by_hand():
    # Deviations 1, -1, 1, -1: products -3 of 4 at lag 1, +2 of 4 at lag 2.
    assert correlate(np.array([1.0, -1.0, 1.0, -1.0]), 2) == pytest.approx([-0.75, 0.5])
    assert rank(np.array([0.3, 0.1, 0.2])).tolist() == [3.0, 1.0, 2.0]


@given(
    values=st.lists(st.integers(1, 40), min_size=2, max_size=60),
    step=st.sampled_from([1, 7, 1000]),
)
def test_spread_times_differ_and_stay_in_their_step(values, step):
    times = np.array(values, float) * step
    spread, found = spread_ties(times, np.random.default_rng(0))
    if len(set(values)) == 1:
        assert found == 0.0
        assert spread == pytest.approx(times)
        return
    assert found >= step
    assert np.abs(spread - times).max() <= 0.5 * found
    assert len(np.unique(spread)) == len(spread)


def test_a_timer_with_uneven_steps_is_recognised():
    # 31.25 ns in whole nanoseconds: steps of 31 and 32 have no common divisor but 1.
    ticks = np.random.default_rng(0).integers(0, 500, 10_000)
    times = np.round(ticks * 31.25)
    assert spread_ties(times, np.random.default_rng(0))[1] == pytest.approx(31.0, abs=1.0)


def test_independent_exceedances_come_singly():
    values = np.random.default_rng(0).standard_normal(20_000)
    index, p_value = check_clusters(exceed(values), 20_000)
    assert index == pytest.approx(1.0, abs=0.06)
    assert p_value > 0.01


@pytest.mark.parametrize("length", [2, 4])
def test_moving_maxima_have_their_known_index(length):
    # Coles 2001, section 5.2: the maximum over `length` neighbours has the index 1 / length.
    noise = 1.0 / np.random.default_rng(1).standard_exponential(40_000)
    windows = np.lib.stride_tricks.sliding_window_view(noise, length)
    values = windows.max(axis=1)
    index, p_value = check_clusters(exceed(values, 0.02), len(values))
    assert index == pytest.approx(1.0 / length, rel=0.2)
    assert p_value < 1e-9


def test_intervals_by_hand():
    # Gaps 1, 1, 8: max > 2, so 2 (0 + 0 + 7)^2 / (3 x 7 x 6) = 0.78.
    assert estimate_extremal_index(np.array([0, 1, 2, 10])) == pytest.approx(98.0 / 126.0)
    # Gaps 1, 2: max <= 2, so 2 x 3^2 / (2 x 5) = 1.8, capped.
    assert estimate_extremal_index(np.array([0, 1, 3])) == 1.0
    assert math.isnan(estimate_extremal_index(np.array([5])))
    # A handful proves nothing.
    assert check_clusters(np.arange(5), 1000)[1] == 1.0


def test_longest_run():
    runs = [np.array([*map(int, text)], bool) for text in ("", "000", "1", "0110111", "1101")]
    assert [longest_run(above) for above in runs] == [0, 0, 1, 3, 2]
