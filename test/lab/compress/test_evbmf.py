"""The rank of noisy matrices by empirical variational Bayes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jetson_dnn_rt.lab.compress.evbmf import estimate_rank, find_threshold


def make_values(rows: int, columns: int, rank: int, strength: float, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    signal = generator.standard_normal((rows, rank)) @ generator.standard_normal((rank, columns))
    matrix = strength * signal + generator.standard_normal((rows, columns))
    return np.linalg.svd(matrix, compute_uv=False)


@pytest.mark.parametrize("shape", [(40, 40), (40, 120), (150, 60)])
@pytest.mark.parametrize("rank", [0, 1, 5, 12])
def test_rank_of_signal_in_noise_is_found(shape: tuple[int, int], rank: int) -> None:
    values = make_values(*shape, rank, strength=2.0, seed=rank)
    assert estimate_rank(values, shape) == rank


def test_scale_does_not_matter() -> None:
    values = make_values(30, 90, 4, strength=1.5, seed=3)
    assert estimate_rank(values * 1e-6, (30, 90)) == estimate_rank(values * 1e6, (30, 90)) == 4


def test_signal_below_the_noise_is_noise() -> None:
    assert estimate_rank(make_values(60, 60, 6, strength=0.01, seed=0), (60, 60)) == 0


def test_exact_low_rank_without_noise() -> None:
    values = np.zeros(32)
    values[:5] = (9.0, 7.0, 5.0, 3.0, 1.0)
    assert estimate_rank(values, (32, 64)) == 5
    assert estimate_rank(np.zeros(8), (8, 8)) == 0


def test_threshold_of_square_matrices_is_the_published_one() -> None:
    """Nakajima et al. (2013): for alpha = 1 tau is about 2.5129, at other alpha times its root."""
    tau = 2.5129
    assert find_threshold(1.0) == pytest.approx((1 + tau) * (1 + 1 / tau), rel=1e-4)
    for alpha in (0.1, 0.5):
        near = tau * math.sqrt(alpha)
        assert find_threshold(alpha) == pytest.approx((1 + near) * (1 + alpha / near), rel=0.02)


def test_threshold_is_above_what_noise_alone_reaches() -> None:
    """The largest singular value of noise follows Marchenko and Pastur: (1 + sqrt(alpha))^2."""
    for alpha in np.linspace(0.05, 1.0, 20):
        assert find_threshold(alpha) > (1.0 + math.sqrt(alpha)) ** 2


@pytest.mark.parametrize(
    ("values", "shape"),
    [([1.0, 2.0], (3, 3)), ([1.0, -1.0], (2, 5)), ([1.0, math.nan], (2, 2)), ([], (0, 3))],
)
def test_nonsense_is_refused(values: list[float], shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="singular_values"):
        estimate_rank(values, shape)
