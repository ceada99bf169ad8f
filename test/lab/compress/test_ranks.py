# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Ranks by rule, the rank of noisy matrices, and budgets spent over layers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.lab.compress.budget import Options, allocate
from jetson_dnn_rt.lab.compress.ranks import (
    choose_by_energy,
    choose_by_evbmf,
    choose_by_ratio,
    estimate_rank,
    find_threshold,
    list_candidates,
)


@given(st.integers(1, 6000))
def test_candidates_are_multiples_of_8_and_the_channels(channels):
    found = list_candidates(channels).tolist()
    assert found == sorted(set(found))
    assert found[-1] == channels
    assert all(rank % 8 == 0 and rank < channels for rank in found[:-1])
    assert len(found) <= 66
    if 8 < channels <= 512:
        assert found[:-1] == list(range(8, channels, 8))


def test_ratio_and_energy_keep_a_share():
    assert [choose_by_ratio(0.33, channels) for channels in (3, 8, 64, 512)] == [3, 8, 24, 168]
    squares = np.array([[8.0, 4.0, 2.0, 1.0] + [0.5] * 12, [1.0] * 16])
    energies = np.cumsum(squares.sum(0)) / squares.sum()
    for share in (0.1, 0.5, 0.8, 0.9, 0.99):
        rank = choose_by_energy(share, squares)
        assert rank % 8 == 0
        assert energies[rank - 1] >= share
        assert rank == 8 or energies[rank - 9] < share
    assert choose_by_energy(1.0, squares) == 16
    assert choose_by_energy(0.5, np.zeros((1, 32))) == 8


def test_weakened_empirical_bayes():
    generator = np.random.default_rng(0)
    low = generator.standard_normal((64, 10)) @ generator.standard_normal((10, 300))
    squares = (
        np.linalg.svd(low + generator.standard_normal((64, 300)), compute_uv=False)[None] ** 2
    )
    assert choose_by_evbmf(1.0, squares, 300) == 8  # 10, to the nearest multiple
    assert choose_by_evbmf(0.5, squares, 300) == 40  # 64 - 0.5 * (64 - 10) = 37


def make_options(seed, layers, points):
    generator = np.random.default_rng(seed)
    options = {}
    for index in range(layers):
        costs = np.sort(generator.choice(np.arange(10, 1000), points, replace=False))[::-1]
        errors = np.concatenate(([0.0], generator.random(points - 1)))
        options[f"layer{index}"] = Options(costs.astype(np.int64), errors)
    return options


def allocate_and_search(seed, share):
    """Limit, cost and error of `allocate`, least error of all, largest error of one layer."""
    options = make_options(seed, layers=4, points=6)
    least = sum(int(option.costs.min()) for option in options.values())
    most = sum(int(option.costs.max()) for option in options.values())
    limit = round(least + share * (most - least))

    def total(picks):
        parts = zip(options.values(), picks, strict=True)
        pairs = [(int(option.costs[i]), float(option.errors[i])) for option, i in parts]
        return sum(cost for cost, _ in pairs), sum(error for _, error in pairs)

    cost, error = total(tuple(allocate(options, limit).values()))
    best = min(
        error for cost, error in map(total, itertools.product(range(6), repeat=4)) if cost <= limit
    )
    return limit, cost, error, best, max(float(o.errors.max()) for o in options.values())


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.0, 1.1))
def test_budget_is_kept_within_one_step_of_the_best(seed, share):
    """Steps along lower hulls are optimal but for the last one, which is taken whole."""
    limit, cost, error, best, step = allocate_and_search(seed, share)
    assert cost <= limit
    assert best <= error + 1e-12
    assert error <= best + step


def test_budget_is_nearly_best_as_a_rule():
    """Four layers of six points are far coarser than real ones, where the gap is negligible."""
    found = [allocate_and_search(seed, 0.1 + 0.8 * seed / 40) for seed in range(40)]
    gaps = [error - best for _, _, error, best, _ in found]
    assert np.mean(gaps) < 0.02


def test_limits_beyond_all_choices():
    options = make_options(1, layers=5, points=4)
    most = sum(int(option.costs.max()) for option in options.values())
    assert set(allocate(options, most).values()) == {0}
    chosen = allocate(options, 0)
    assert all(options[name].costs[i] == options[name].costs.min() for name, i in chosen.items())


def test_hull_is_convex_and_on_the_frontier():
    option = Options(
        np.array([100, 80, 60, 40, 20, 50]), np.array([0.0, 0.05, 0.30, 0.31, 0.9, 0.95])
    )
    assert option.frontier().tolist() == [4, 3, 2, 1, 0]
    assert option.hull() == [4, 3, 1, 0]


@pytest.mark.parametrize("left", [5, 30])
def test_what_is_left_is_spent(left):
    options = {
        "a": Options(np.array([100, 50, 40]), np.array([0.0, 0.1, 0.5])),
        "b": Options(np.array([100, 25]), np.array([0.0, 0.1])),
    }
    chosen = allocate(options, 75 + left)
    assert chosen == {"a": 1, "b": 1}


def make_values(rows, columns, rank, strength, seed):
    generator = np.random.default_rng(seed)
    signal = generator.standard_normal((rows, rank)) @ generator.standard_normal((rank, columns))
    matrix = strength * signal + generator.standard_normal((rows, columns))
    return np.linalg.svd(matrix, compute_uv=False)


@pytest.mark.parametrize("shape", [(40, 40), (40, 120), (150, 60)])
@pytest.mark.parametrize("rank", [0, 1, 5, 12])
def test_rank_of_signal_in_noise_is_found(shape, rank):
    values = make_values(*shape, rank, strength=2.0, seed=rank)
    assert estimate_rank(values, shape) == rank


def test_scale_does_not_matter_and_noise_is_no_signal():
    values = make_values(30, 90, 4, strength=1.5, seed=3)
    assert estimate_rank(values * 1e-6, (30, 90)) == estimate_rank(values * 1e6, (30, 90)) == 4
    assert estimate_rank(make_values(60, 60, 6, strength=0.01, seed=0), (60, 60)) == 0


def test_exact_low_rank_without_noise():
    values = np.zeros(32)
    values[:5] = (9.0, 7.0, 5.0, 3.0, 1.0)
    assert estimate_rank(values, (32, 64)) == 5
    assert estimate_rank(np.zeros(8), (8, 8)) == 0


def test_threshold_of_square_matrices_is_the_published_one():
    """Nakajima et al. (2013): for alpha = 1 tau is about 2.5129, at other alpha times its root."""
    tau = 2.5129
    assert find_threshold(1.0) == pytest.approx((1 + tau) * (1 + 1 / tau), rel=1e-4)
    for alpha in (0.1, 0.5):
        near = tau * math.sqrt(alpha)
        assert find_threshold(alpha) == pytest.approx((1 + near) * (1 + alpha / near), rel=0.02)
    # The largest singular value of noise follows Marchenko and Pastur.
    for alpha in np.linspace(0.05, 1.0, 20):
        assert find_threshold(alpha) > (1.0 + math.sqrt(alpha)) ** 2


@pytest.mark.parametrize(
    ("values", "shape"),
    [([1.0, 2.0], (3, 3)), ([1.0, -1.0], (2, 5)), ([1.0, math.nan], (2, 2)), ([], (0, 3))],
)
def test_nonsense_is_refused(values, shape):
    with pytest.raises(ValueError, match="singular_values"):
        estimate_rank(values, shape)
