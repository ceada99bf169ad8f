# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Fits of the laws of extremes, against scipy on the same data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from jetson_dnn_rt.lab.wcet.extreme_value import (
    MaximaLaw,
    ParetoTail,
    estimate_maxima,
    fit_maxima,
    fit_pareto,
    grow,
    refit_pareto,
)

SHAPES = (-0.3, 0.0, 0.2)


def draw_excesses(shape, count=500, seed=0):
    return np.asarray(stats.genpareto.rvs(shape, size=count, random_state=seed), float)


def draw_maxima(shape, count=300, seed=0):
    return np.asarray(stats.genextreme.rvs(-shape, size=count, random_state=seed), float)


@pytest.mark.parametrize("shape", SHAPES)
def test_fits_agree_with_those_of_scipy(shape):
    """`benchmarks evt` compares with those of pyextremes, too."""
    excesses, maxima = draw_excesses(shape), 10.0 + draw_maxima(shape)
    c, _, scale = stats.genpareto.fit(excesses, floc=0.0)
    minus, location, spread = stats.genextreme.fit(maxima)
    for ours, theirs in (
        (fit_pareto(excesses, 0.0, 1.0), ParetoTail(0.0, scale, c, 1.0, len(excesses))),
        (fit_maxima(maxima, 20), MaximaLaw(location, spread, -minus, 20, len(maxima))),
    ):
        assert ours.shape == pytest.approx(theirs.shape, abs=0.002)
        assert ours.scale == pytest.approx(theirs.scale, rel=0.01)
        assert ours.quantile(1e-4) == pytest.approx(theirs.quantile(1e-4), rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_refits_of_resamples_are_the_fits_of_what_they_hold(shape):
    excesses = np.sort(draw_excesses(shape, seed=2))
    weights = np.random.default_rng(0).multinomial(500, np.full(500, 0.002), size=30)
    # The end of the support is kept beyond the greatest excess: other resamples differ.
    weights = weights[weights[:, -1] > 0]
    assert len(weights) > 10
    scales, shapes = refit_pareto(excesses, weights.astype(float))
    for row, one in enumerate(weights):
        single = fit_pareto(np.repeat(excesses, one), 0.0, 1.0)
        assert shapes[row] == pytest.approx(single.shape, abs=0.01)
        assert scales[row] == pytest.approx(single.scale, rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_censored_excesses_count_as_great_only(shape):
    excesses = np.sort(draw_excesses(shape, seed=6))
    edge = excesses[450]

    def misfit(two):
        law = stats.genpareto(two[1], scale=math.exp(two[0]))
        return -float(law.logpdf(excesses[:450]).sum() + 50 * law.logsf(edge))

    found = optimize.minimize(misfit, [0.0, 0.1], method="Nelder-Mead").x
    excesses[450:] = np.sort(edge * np.random.default_rng(0).uniform(1.0, 100.0, 50))
    excesses[450] = edge
    tail = fit_pareto(excesses, 0.0, 1.0, censored=50)
    assert tail.shape == pytest.approx(found[1], abs=0.002)
    assert tail.scale == pytest.approx(math.exp(found[0]), rel=0.002)


@pytest.mark.parametrize("shape", SHAPES)
def test_moments_come_near(shape):
    maxima = np.stack([draw_maxima(shape, 2000, seed) for seed in range(8)])
    location, scale, found = estimate_maxima(maxima)
    assert found.mean() == pytest.approx(shape, abs=0.03)
    assert scale.mean() == pytest.approx(1.0, abs=0.03)
    assert location.mean() == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("shape", [*SHAPES, 1e-9])
def test_quantiles_are_those_of_scipy(shape):
    tail = ParetoTail(5.0, 2.0, shape, 0.1, 100)
    expected = 5.0 + stats.genpareto.isf(1e-4 / 0.1, shape, scale=2.0)
    assert tail.quantile(1e-4) == pytest.approx(expected, rel=1e-6)
    law = MaximaLaw(5.0, 2.0, shape, 20, 100)
    # F(x)^20 is the law of the maxima.
    expected = stats.genextreme.ppf((1.0 - 1e-4) ** 20, -shape, loc=5.0, scale=2.0)
    assert law.quantile(1e-4) == pytest.approx(expected, rel=1e-6)


@given(shape=st.floats(-0.5, 1.0), ratio=st.floats(0.0, 12.0))
def test_growth_is_continuous_in_the_shape(shape, ratio):
    near = float(grow(shape + 1e-9, ratio))
    assert float(grow(shape, ratio)) == pytest.approx(near, rel=1e-4, abs=1e-6)
    assert float(grow(0.0, ratio)) == ratio


@settings(max_examples=25)
@given(factor=st.floats(1e-3, 1e7), seed=st.integers(0, 50))
def test_fits_do_not_depend_on_the_unit(factor, seed):
    excesses = draw_excesses(0.1, 200, seed)
    tail = fit_pareto(excesses, 0.0, 1.0)
    scaled = fit_pareto(excesses * factor, 0.0, 1.0)
    assert scaled.shape == pytest.approx(tail.shape, abs=1e-3)
    assert scaled.scale == pytest.approx(tail.scale * factor, rel=1e-3)


def test_standardized_excesses_are_exponential():
    excesses = draw_excesses(-0.3, 5000)
    standard = ParetoTail(0.0, 1.0, -0.3, 1.0, 5000).standardize(excesses)
    assert stats.kstest(standard, "expon").pvalue > 0.01
    # Finite ends are kept.
    assert ParetoTail(0.0, 1.0, -0.4, 0.1, 500).quantile(1e-12) < 2.5
    assert MaximaLaw(0.0, 1.0, -0.4, 20, 500).quantile(1e-12) < 2.5
    assert math.isfinite(ParetoTail(0.0, 1.0, -0.3, 1.0, 1).standardize(np.array([99.0]))[0])
