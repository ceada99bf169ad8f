"""Extremal index and bursts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jetson_dnn_rt.lab.wcet.clusters import check_clusters, estimate_extremal_index, longest_run


def exceed(values: np.ndarray, share: float = 0.05) -> np.ndarray:
    return np.flatnonzero(values > np.quantile(values, 1.0 - share))


def test_independent_exceedances_come_singly() -> None:
    values = np.random.default_rng(0).standard_normal(20_000)
    index, p_value = check_clusters(exceed(values), 20_000)
    assert index == pytest.approx(1.0, abs=0.06)
    assert p_value > 0.01


@pytest.mark.parametrize("length", [2, 4])
def test_moving_maxima_have_their_known_index(length: int) -> None:
    # Coles 2001, section 5.2: the maximum over `length` neighbours has the index 1 / length.
    noise = 1.0 / np.random.default_rng(1).standard_exponential(40_000)
    windows = np.lib.stride_tricks.sliding_window_view(noise, length)
    values = windows.max(axis=1)
    index, p_value = check_clusters(exceed(values, 0.02), len(values))
    assert index == pytest.approx(1.0 / length, rel=0.2)
    assert p_value < 1e-9


def test_intervals_by_hand() -> None:
    # Gaps 1, 1, 8: max > 2, so 2 (0 + 0 + 7)^2 / (3 x 7 x 6) = 0.78.
    assert estimate_extremal_index(np.array([0, 1, 2, 10])) == pytest.approx(98.0 / 126.0)
    # Gaps 1, 2: max <= 2, so 2 x 3^2 / (2 x 5) = 1.8, capped.
    assert estimate_extremal_index(np.array([0, 1, 3])) == 1.0
    assert math.isnan(estimate_extremal_index(np.array([5])))


def test_a_handful_of_exceedances_prove_nothing() -> None:
    assert check_clusters(np.arange(5), 1000)[1] == 1.0


def test_p_values_are_as_frequent_as_they_say() -> None:
    random = np.random.default_rng(2)
    p_values = np.array(
        [check_clusters(exceed(random.standard_normal(4000)), 4000)[1] for _ in range(300)]
    )
    assert (p_values < 0.05).sum() <= 28
    assert 110 <= (p_values < 0.5).sum() <= 190


@pytest.mark.parametrize(
    ("above", "expected"), [("", 0), ("000", 0), ("1", 1), ("0110111", 3), ("1101", 2)]
)
def test_longest_run(above: str, expected: int) -> None:
    assert longest_run(np.array([one == "1" for one in above], bool)) == expected
