# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Factors of one layer: exact where the rank is known, better with more, best for the output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.lab.compress.low_rank import (
    MatrixAnalysis,
    OutputTuckerAnalysis,
    TuckerAnalysis,
)


def make_weight(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_low_rank(rank3, rank4, shape):
    groups, outputs, inputs, taps = shape
    return torch.einsum(
        "gop,gprk,gri->goik",
        make_weight(groups, outputs, rank4, seed=1),
        make_weight(groups, rank4, rank3, taps, seed=2),
        make_weight(groups, rank3, inputs, seed=3),
    )


def make_covariance(groups, size, seed=0):
    """Of strongly correlated values: variances fall from 1 to 1e-4."""
    basis, _ = torch.linalg.qr(make_weight(groups, size, size, seed=seed))
    spread = torch.logspace(0.0, -4.0, size, dtype=torch.float64)
    return basis * spread @ basis.mT


def measure(weight, near, covariance):
    """Squared relative error, from its definition."""
    flat, lost = weight.flatten(2), (weight - near).flatten(2)
    if covariance is None:
        return float(lost.square().sum() / flat.square().sum())
    return float((lost @ covariance * lost).sum() / (flat @ covariance * flat).sum())


@pytest.mark.parametrize("groups", [1, 3])
def test_known_ranks_are_recovered_exactly(groups):
    weight = make_low_rank(3, 5, (groups, 16, 12, 9))
    factors = TuckerAnalysis(weight).factors(3, 5)
    torch.testing.assert_close(factors.weight(), weight)
    assert factors.error < 1e-12
    covariance = make_covariance(groups, 12 * 9)
    factors = OutputTuckerAnalysis(weight, covariance).factors(3, 5)
    assert factors.error < 1e-9
    assert measure(weight, factors.weight(), covariance) < 1e-9


@pytest.mark.parametrize("of_output", [False, True])
@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 6), st.data())
def test_errors_are_as_announced_and_fall_with_the_rank(
    of_output, groups, outputs, inputs, taps, data
):
    weight = make_weight(groups, outputs, inputs, taps, seed=outputs)
    covariance = make_covariance(groups, inputs * taps, seed=taps) if of_output else None
    analysis: Any = TuckerAnalysis(weight)
    if covariance is not None:
        analysis = OutputTuckerAnalysis(weight, covariance)
    ranks3, ranks4 = np.arange(1, inputs + 1), np.arange(1, outputs + 1)
    table = analysis.errors(ranks3, ranks4)
    assert (np.diff(table, axis=0) <= 1e-9).all()
    assert (np.diff(table, axis=1) <= 1e-9).all()
    assert table[-1, -1] == pytest.approx(0.0, abs=1e-9)
    rank3, rank4 = data.draw(st.integers(1, inputs)), data.draw(st.integers(1, outputs))
    plain = analysis.factors(rank3, rank4, refine=False)
    refined = analysis.factors(rank3, rank4)
    announced = table[rank3 - 1, rank4 - 1]
    within = 1e-7 if of_output else 1e-9
    assert measure(weight, plain.weight(), covariance) == pytest.approx(announced, abs=within)
    assert measure(weight, refined.weight(), covariance) == pytest.approx(
        refined.error, abs=within
    )
    assert refined.error <= announced + 1e-9


def test_hooi_is_at_least_as_good_as_hosvd_by_numpy():
    weight = make_weight(1, 20, 16, 9)
    flat = weight[0].numpy()
    u4 = np.linalg.svd(flat.reshape(20, -1), full_matrices=False)[0][:, :6]
    u3 = np.linalg.svd(flat.transpose(1, 0, 2).reshape(16, -1), full_matrices=False)[0][:, :5]
    near = np.einsum("op,pq,ir,rs,qsk->oik", u4, u4.T, u3, u3.T, flat)
    hosvd = float(np.square(flat - near).sum() / np.square(flat).sum())
    analysis = TuckerAnalysis(weight, shares=())
    assert analysis.factors(5, 6, refine=False).error == pytest.approx(hosvd, rel=1e-9)
    refined = analysis.factors(5, 6).error
    assert refined < hosvd
    # Bases of HOOI at about these ranks predict the result of the refinement.
    known = TuckerAnalysis(weight, shares=(0.3,)).errors(np.array([5]), np.array([6]))[0, 0]
    assert abs(known - refined) < 0.2 * (hosvd - refined)


def test_output_is_nearer_when_the_inputs_are_known():
    """Data-aware factors lose less of the output than those of the weights; refined ones least."""
    weight = make_weight(2, 24, 16, 9)
    covariance = make_covariance(2, 16 * 9)
    plain = measure(weight, TuckerAnalysis(weight).factors(6, 8).weight(), covariance)
    analysis = OutputTuckerAnalysis(weight, covariance)
    closed, refined = analysis.factors(6, 8, refine=False), analysis.factors(6, 8)
    assert refined.error < 0.97 * closed.error
    assert closed.error < 0.8 * plain


def test_alternating_least_squares_finds_what_gradients_find():
    weight = make_weight(1, 6, 5, 3)
    covariance = make_covariance(1, 15)
    found = OutputTuckerAnalysis(weight, covariance).factors(2, 3)
    shapes = {"outer": (1, 6, 3), "core": (1, 3, 2, 3), "inner": (1, 2, 5)}
    values = {name: getattr(found, name).contiguous().clone().requires_grad_() for name in shapes}
    optimiser = torch.optim.LBFGS(values.values(), max_iter=500, line_search_fn="strong_wolfe")
    flat = weight.flatten(2)
    total = float((flat @ covariance * flat).sum())

    def step():
        optimiser.zero_grad()
        near = torch.einsum("gop,gprk,gri->goik", values["outer"], values["core"], values["inner"])
        lost = (weight - near).flatten(2)
        loss = (lost @ covariance * lost).sum() / total
        loss.backward()
        return loss

    best = min(float(optimiser.step(step).detach()) for _ in range(5))
    assert best <= found.error <= 1.1 * best


@pytest.mark.parametrize(("rows", "columns"), [(12, 30), (30, 12)])
@pytest.mark.parametrize("known", [False, True])
def test_matrix_is_the_best_one_of_its_rank(rows, columns, known):
    """Eckart and Young for W; for known inputs for W R, with R taken back out."""
    weight = seen = make_weight(2, rows, columns)
    covariance = root = None
    if known:
        covariance = make_covariance(2, columns)
        root = torch.linalg.cholesky(covariance)
        seen = weight @ root
    analysis = MatrixAnalysis(weight, root)
    values = torch.linalg.svdvals(seen).square().sum(0).numpy()
    expected = 1.0 - np.cumsum(values) / values.sum()
    np.testing.assert_allclose(analysis.errors(np.arange(1, 13)), expected, atol=1e-9)
    left, right = analysis.factors(4)
    assert (left.shape, right.shape) == ((2, rows, 4), (2, 4, columns))
    found = measure(weight.unsqueeze(-1), (left @ right).unsqueeze(-1), covariance)
    assert found == pytest.approx(expected[3], abs=1e-9)


def test_a_weight_of_zeros_is_no_trouble():
    weight = torch.zeros(1, 8, 8, 9)
    assert float(TuckerAnalysis(weight).factors(2, 2).weight().abs().max()) == 0.0
    factors = OutputTuckerAnalysis(weight, make_covariance(1, 72)).factors(2, 2)
    assert torch.isfinite(factors.weight()).all()
    left, right = MatrixAnalysis(weight.flatten(2)).factors(3)
    assert float((left @ right).abs().max()) == 0.0
