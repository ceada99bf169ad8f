"""The rank that empirical variational Bayes finds in a noisy matrix.

Nakajima, Sugiyama, Babacan and Tomioka, "Global Analytic Solution of Fully-observed Variational
Bayesian Matrix Factorization", JMLR 14 (2013): with the noise variance known, a component is kept
exactly when its singular value passes a threshold (theorem 2, equations 22 to 26); the variance
itself minimises the free energy, a function of one variable (theorem 4).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_GRID = 512
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def estimate_rank(singular_values: npt.ArrayLike, shape: tuple[int, int]) -> int:
    """Count the components that are more than noise.

    Parameters
    ----------
    singular_values : array_like
        All min(rows, columns) singular values of the matrix, in any order, >= 0.
    shape : tuple of int
        Rows and columns.

    Returns
    -------
    int
        Between 0 and min(rows, columns).

    Raises
    ------
    ValueError
        When the number of values does not fit the shape, or one is negative or not finite.
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
    """Squared singular value / (columns x variance) from which on a component is kept.

    Parameters
    ----------
    alpha : float
        Rows / columns, in (0, 1].
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
        float(squares[most]) / (columns * threshold),
        float(squares[most:].mean()) / columns,
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
