# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Upper bounds of quantiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from jetson_dnn_rt.lab.wcet.bounds import (
    bound_by_order,
    bound_by_resamples,
    bound_maxima_by_profile,
    bound_tail_by_profile,
    resample_maxima,
    resample_tail,
    rule_of_three,
)
from jetson_dnn_rt.lab.wcet.extreme_value import fit_maxima, fit_pareto


@given(count=st.integers(50, 3000), exceedance=st.floats(0.002, 0.3))
def test_order_statistics_cover_by_the_binomial(count, exceedance):
    assert rule_of_three(10_000, 0.95) == pytest.approx(3.0 / 10_000, rel=0.002)
    ordered = np.arange(1.0, count + 1.0)
    upper = bound_by_order(ordered, exceedance, 0.95)
    if exceedance < rule_of_three(count, 0.95):
        assert math.isnan(upper)
        return
    above = count - int(upper) + 1
    # It is below the quantile where less than `above` times exceed that; the next value would
    # be so with more than 5 %.
    assert stats.binom.cdf(above - 1, count, exceedance) <= 0.05
    assert stats.binom.cdf(above, count, exceedance) > 0.05


def likelihood_of_pareto(excesses, reach, ratio):
    shapes = np.linspace(-0.6, 1.0, 3201) + 1e-7
    scales = reach * shapes / np.expm1(shapes * math.log(ratio))
    rows = stats.genpareto.logpdf(excesses, shapes[:, None], scale=scales[:, None]).sum(axis=1)
    return float(rows.max())


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.2])
def test_profile_of_the_tail_has_fallen_by_half_the_chi_square(shape):
    excesses = np.sort(stats.genpareto.rvs(shape, size=300, random_state=3))
    tail = fit_pareto(excesses, 0.0, 0.05)
    upper = bound_tail_by_profile(tail, excesses, 1e-4, 0.95)
    lower, higher = (bound_tail_by_profile(tail, excesses, 1e-4, c) for c in (0.6, 0.99))
    assert tail.quantile(1e-4) < lower < upper < higher
    normal = stats.norm.ppf(0.95)
    estimate = tail.quantile(1e-4)
    by_share = normal * tail.scale * 500.0**tail.shape / math.sqrt(300)
    reach = estimate + math.sqrt((upper - estimate) ** 2 - by_share**2)
    best = stats.genpareto.logpdf(excesses, tail.shape, scale=tail.scale).sum()
    fall = best - likelihood_of_pareto(excesses, reach, 500.0)
    assert fall == pytest.approx(0.5 * normal**2, rel=0.02)


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.2])
def test_profile_of_maxima_has_fallen_by_half_the_chi_square(shape):
    maxima = stats.genextreme.rvs(-shape, size=200, random_state=3) * 2.0 + 10.0
    law = fit_maxima(maxima, 20)
    upper = bound_maxima_by_profile(law, maxima, 1e-4, 0.95)
    best = stats.genextreme.logpdf(maxima, -law.shape, law.location, law.scale).sum()
    reduced = -math.log(-20 * math.log1p(-1e-4))

    def misfit(two):
        scale = math.exp(two[0])
        location = upper - scale * math.expm1(two[1] * reduced) / two[1]
        return -float(stats.genextreme.logpdf(maxima, -two[1], location, scale).sum())

    start = [math.log(law.scale), law.shape + 0.1]
    found = optimize.minimize(misfit, start, method="Nelder-Mead", options={"xatol": 1e-6})
    assert best + found.fun == pytest.approx(0.5 * stats.norm.ppf(0.95) ** 2, rel=0.01)


def test_resampled_tails_scatter_as_theory_says():
    """Standard deviation of the quantile by the delta method (Coles 2001, section 4.3.3)."""
    random = np.random.default_rng(0)
    values = random.standard_exponential(10_000)
    order = np.argsort(values)
    threshold = float(values[order[9499:9501]].mean())
    places = order[9500:]
    excesses = values[places] - threshold
    tail = fit_pareto(excesses, threshold, 0.05)
    found = resample_tail(tail, excesses, places, 10_000, np.array([1e-4]), random)[:, 0]
    # At xi = 0, y = log(500): gradient (y^2 / 2, y) over (shape, scale), covariance
    # ((1, -1), (-1, 2)) / 500.
    y = math.log(500.0)
    deviation = math.sqrt((y**4 / 4.0 - y**3 + 2.0 * y**2) / 500.0)
    assert found.std() == pytest.approx(deviation, rel=0.25)
    assert np.median(found) == pytest.approx(tail.quantile(1e-4), rel=0.05)


def test_resampled_maxima_scatter_around_the_fit():
    maxima = stats.genextreme.rvs(0.0, size=500, random_state=2)
    law = fit_maxima(maxima, 20)
    found = resample_maxima(maxima, 20, np.array([1e-3, 1e-4]), np.random.default_rng(0))
    assert found.shape == (400, 2)
    assert (found[:, 1] > found[:, 0]).all()
    assert np.median(found[:, 1]) == pytest.approx(law.quantile(1e-4), rel=0.1)


def test_percentiles_are_corrected_for_bias():
    quantiles = np.linspace(0.0, 1.0, 401)
    assert bound_by_resamples(quantiles, 0.5, 0.95) == pytest.approx(0.95, abs=0.01)
    # Refits that mostly lie below the estimate are shifted up.
    assert bound_by_resamples(quantiles, 0.7, 0.95) > 0.98
    assert bound_by_resamples(quantiles, 0.3, 0.95) < 0.8
