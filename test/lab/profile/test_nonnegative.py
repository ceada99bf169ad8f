"""Least squares with coefficients >= 0, against scipy, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.lab.profile.nonnegative import UndeterminedError, fit, solve_nonnegative


@given(st.integers(0, 10_000), st.integers(1, 8), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_is_what_scipy_finds(seed: int, unknowns: int, duplicate: bool) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((unknowns + rng.integers(0, 12), unknowns))
    if duplicate and unknowns > 1:
        rows[:, -1] = rows[:, 0]  # many solutions, all as good
    values = rng.standard_normal(len(rows))
    found = solve_nonnegative(rows.T @ rows, rows.T @ values)
    assert (found >= 0.0).all()
    _, residual = optimize.nnls(rows, values)
    assert np.linalg.norm(rows @ found - values) == pytest.approx(residual, abs=1e-6)


def test_nothing_to_gain_is_all_zero() -> None:
    assert solve_nonnegative(np.eye(2), np.array([-1.0, 0.0])).tolist() == [0.0, 0.0]


def test_an_exact_law_is_found_without_error() -> None:
    rng = np.random.default_rng(1)
    columns = 1.0 + rng.random((12, 3))
    truth = np.array([[3e6, 0.0], [0.0, 2e5], [1e6, 4e5]])
    found, error = fit(columns, "abc", columns @ truth, "x")
    np.testing.assert_allclose(found, truth, atol=1e-3)
    assert error.points == 12
    assert error.max < 1e-9
    assert str(error) == "0.0/0.0/0.0 % (p50/p95/max of 12 points, each held out once)"


def test_a_point_is_predicted_by_the_others_alone() -> None:
    columns = np.column_stack([np.ones(6), np.arange(6.0)])
    values = columns @ np.array([[10.0], [1.0]])
    values[3] = 26.0  # twice what the line says there
    _, error = fit(columns, ["a", "b"], values, "x")
    others = np.delete(np.arange(6), 3)
    line, *_ = np.linalg.lstsq(
        columns[others] / values[others], np.ones((5, 1)), rcond=None
    )  # relative errors
    assert error.max == pytest.approx(1.0 - float(columns[3] @ line[:, 0]) / 26.0)
    assert error.p50 < error.p95 == error.max == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[1, 0], [1, 1]], "2 measured points do not determine x: it has 2 unknowns"),
        ([[1, 1], [1, 1], [1, 1]], "do not tell apart a and b"),
        ([[1, 0], [1, 0], [1, 0]], "do not tell apart b"),
        ([[1, 0], [1, 0], [1, 1]], "one measured point alone says anything about b of x"),
    ],
)
def test_what_is_left_open_is_refused_by_name(rows: list[list[int]], text: str) -> None:
    with pytest.raises(UndeterminedError, match=text) as caught:
        fit(np.array(rows, np.float64), ["a", "b"], np.ones((len(rows), 1)), "x")
    assert "--clocks sample" in str(caught.value)
