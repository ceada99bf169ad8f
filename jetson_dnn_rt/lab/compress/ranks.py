# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Ranks by rule: a ratio, the energy to keep, or the estimate of empirical Bayes.

`estimate_rank`: Nakajima, Sugiyama, Babacan and Tomioka, "Global Analytic Solution of
Fully-observed Variational Bayesian Matrix Factorization", JMLR 14 (2013). With the noise variance
known, a component is kept exactly when its singular value passes a threshold (theorem 2, equations
22 to 26); the variance itself minimises the free energy, a function of one variable (theorem 4).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

MULTIPLE = 8  # channels that vector units and tensor cores process at a time

_MOST_CANDIDATES = 64
_GRID = 512
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

Ranks = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


def list_candidates(channels: int) -> Ranks:
    """Ranks worth trying for a mode: multiples of 8 below its channels >= 1, and the channels.

    Above 512 channels only every second multiple is tried, and so on.
    """
    step = MULTIPLE * math.ceil(channels / (MULTIPLE * _MOST_CANDIDATES))
    below = np.arange(step, channels, step, dtype=np.int64)
    if step > MULTIPLE and channels > MULTIPLE:
        below = np.concatenate(([MULTIPLE], below))
    return np.concatenate((below, [channels])).astype(np.int64)


def round_rank(rank: float, channels: int, multiple: int = MULTIPLE) -> int:
    """Round a rank to the nearest multiple, at least one of it and at most the channels."""
    return min(channels, max(multiple, multiple * round(rank / multiple)))


def choose_by_ratio(ratio: float, channels: int, multiple: int = MULTIPLE) -> int:
    """Choose a share of the channels."""
    return round_rank(ratio * channels, channels, multiple)


def choose_by_energy(share: float, squares: npt.NDArray[np.float64]) -> int:
    """Choose the smallest multiple of 8 that keeps a share in (0, 1] of the energies [G, N]."""
    energies = np.cumsum(squares.sum(0))
    if energies[-1] <= 0.0:
        return min(MULTIPLE, len(energies))
    # A share of 1 means everything above rounding.
    needed = 1 + int(np.searchsorted(energies, energies[-1] * (share - 1e-12)))
    return min(len(energies), MULTIPLE * math.ceil(needed / MULTIPLE))


def choose_by_evbmf(weakening: float, squares: npt.NDArray[np.float64], columns: int) -> int:
    """MUSCO's weakened rank ``R - w (R - r)``, r the largest of empirical Bayes in any group.

    Gusak et al., "Automated Multi-Stage Compression of Neural Networks", ICCV workshops 2019. The
    weakening w in (0, 1] of 1 takes r; `squares` [G, N] are the squared singular values of the
    mode's unfolding of N rows and `columns`.
    """
    groups, rows = squares.shape
    small = min(rows, columns)
    found = max(
        estimate_rank(np.sqrt(squares[group, :small]), (rows, columns)) for group in range(groups)
    )
    return round_rank(rows - weakening * (rows - found), rows)


def estimate_rank(singular_values: npt.ArrayLike, shape: tuple[int, int]) -> int:
    """Count the components above the noise.

    `singular_values` are all min(rows, columns) of the matrix, in any order, >= 0, else a
    `ValueError`.
    """
    rows, columns = min(shape), max(shape)
    values = np.sort(np.asarray(singular_values, np.float64))[::-1]
    if rows < 1 or values.shape != (rows,):
        raise ValueError(
            f"singular_values must be the {rows} of a matrix {shape[0]}x{shape[1]}: "
            f"got {values.shape}"
        )
    if not np.isfinite(values).all() or values[-1] < 0.0:
        raise ValueError("singular_values must be finite and >= 0")
    squares = values**2
    if squares[0] == 0.0:
        return 0
    # Without this floor a matrix of exactly low rank has no noise at all to compare with.
    squares = np.maximum(squares, squares[0] * 1e-24)
    alpha = rows / columns
    threshold = find_threshold(alpha)
    variance = _estimate_variance(squares, columns, alpha, threshold)
    return int(np.count_nonzero(squares > columns * variance * threshold))


def find_threshold(alpha: float) -> float:
    """Squared singular value / (columns x variance) above which a component is kept.

    alpha = rows / columns, in (0, 1].
    """
    # tau is where Phi(tau) + Phi(tau / alpha) passes zero, Phi(z) = log(z + 1) / z - 1 / 2.
    low, high = 1e-9, 64.0
    for _ in range(200):
        tau = 0.5 * (low + high)
        balance = math.log1p(tau) / tau + math.log1p(tau / alpha) / (tau / alpha) - 1.0
        low, high = (tau, high) if balance > 0.0 else (low, tau)
    return (1.0 + tau) * (1.0 + alpha / tau)


def _estimate_variance(squares: Vector, columns: int, alpha: float, threshold: float) -> float:
    rows = len(squares)
    most = min(math.ceil(rows / (1.0 + alpha)) - 1, rows - 1)
    upper = float(squares.sum()) / (rows * columns)
    lower = max(
        float(squares[most]) / (columns * threshold), float(squares[most:].mean()) / columns
    )
    lower = min(max(lower, upper * 1e-24), upper)
    if lower == upper:
        return upper
    # The free energy has a kink where a component is dropped, and may have several minima.
    grid = np.geomspace(lower, upper, _GRID)
    best = int(np.argmin([_free_energy(v, squares, columns, alpha, threshold) for v in grid]))
    left = math.log(grid[max(best - 1, 0)])
    right = math.log(grid[min(best + 1, _GRID - 1)])
    while right - left > 1e-9:
        width = _GOLDEN * (right - left)
        a, b = right - width, left + width
        if _free_energy(math.exp(a), squares, columns, alpha, threshold) <= _free_energy(
            math.exp(b), squares, columns, alpha, threshold
        ):
            right = b
        else:
            left = a
    return math.exp(0.5 * (left + right))


def _free_energy(
    variance: float, squares: Vector, columns: int, alpha: float, threshold: float
) -> float:
    x = squares / (columns * variance)
    total = float((x - np.log(x)).sum())
    kept = x[x > threshold]
    excess = kept - (1.0 + alpha)
    tau = 0.5 * (excess + np.sqrt(np.maximum(excess**2 - 4.0 * alpha, 0.0)))
    return total + float((np.log1p(tau) + alpha * np.log1p(tau / alpha) - tau).sum())
