# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Whether tests of a fitted tail tell a tail from a mixture."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from jetson_dnn_rt.lab.wcet.extreme_value import grow
from jetson_dnn_rt.lab.wcet.goodness import (
    HELD_OUT_TESTS,
    check_gap,
    check_held_out,
    check_stability,
    fit_above,
    fit_tail,
    fitted_survival,
    measure_anderson,
)


def draw_tail(shape, seed, count=5000):
    random = np.random.default_rng(seed)
    return np.sort(10.0 + grow(shape, random.standard_exponential(count)))


def mix_in(ordered, at, count, seed=0):
    slow = np.random.default_rng(seed).normal(at, 0.1, count)
    return np.sort(np.concatenate([ordered[:-count], slow]))


def test_anderson_is_that_of_the_textbook():
    standard = np.sort(np.random.default_rng(0).standard_exponential(50))
    cdf = stats.expon.cdf(standard)
    rank = np.arange(1, 51)
    terms = (2 * rank - 1) * (np.log(cdf) + np.log1p(-cdf[::-1]))
    assert measure_anderson(standard) == pytest.approx(-50 - terms.mean())


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.3])
def test_table_of_fitted_tails(shape):
    """P values of right fits are uniform: of 300, 15 +- 3.8 below 5 %, 150 +- 8.7 below 50 %."""
    p_values = np.array(
        [fit_above(draw_tail(shape, seed, 1000), 300).p_value for seed in range(300)]
    )
    assert 4 <= (p_values < 0.05).sum() <= 29
    assert 115 <= (p_values < 0.5).sum() <= 185


def test_p_values_fall_with_the_statistic():
    for shape in (-0.5, 0.0, 0.7):
        p_values = [fitted_survival(z, shape) for z in np.linspace(0.0, 30.0, 200)]
        assert p_values[0] == 1.0
        assert all(a >= b for a, b in pairwise(p_values))
        assert 0.0 < p_values[-1] < 1e-9


def test_the_lowest_threshold_that_fits_is_taken():
    shares = [fit_tail(draw_tail(0.1, seed)).tail.share for seed in range(20)]
    assert sum(share == pytest.approx(0.1) for share in shares) >= 14
    # Half of the times above are of another kind, up to the 4 % that are slowest.
    random = np.random.default_rng(1)
    kinked = np.sort(
        np.concatenate([random.uniform(5.0, 10.0, 9600), 10.0 + random.exponential(0.2, 400)])
    )
    assert fit_tail(kinked).tail.share <= 0.05
    # Few values still have fifty excesses.
    assert fit_tail(draw_tail(0.0, 3, 500)).tail.count == 50


def test_a_lone_slow_time_leaves_a_gap_and_a_slow_mode_is_not_stable():
    ordered = draw_tail(-0.3, 0)
    assert check_gap(ordered)[1] > 0.01
    assert check_stability(ordered, fit_tail(ordered))[1] > 0.01
    assert check_gap(np.append(ordered[:-1], 16.0))[1] < 1e-4
    ordered = mix_in(draw_tail(0.0, 0), 18.0, 25)
    assert check_stability(ordered, fit_tail(ordered))[1] < 1e-3


def test_a_wrong_law_fails_on_what_was_held_out():
    ordered = mix_in(draw_tail(0.0, 0), 20.0, 200)
    found = check_held_out(fit_above(ordered, 500), np.random.default_rng(0))
    assert all(p_value < 0.01 for _, p_value in found.values())


def test_held_out_p_values_do_not_accuse_right_fits():
    random = np.random.default_rng(7)
    found = [check_held_out(fit_above(draw_tail(0.1, seed), 500), random) for seed in range(100)]
    for name in HELD_OUT_TESTS:
        p_values = np.array([one[name][1] for one in found])
        assert (p_values < 0.05).sum() <= 12, name
        assert (p_values < 0.5).sum() >= 20, name
