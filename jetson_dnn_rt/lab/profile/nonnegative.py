"""Least squares with coefficients >= 0, and what it predicts for points that it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import Floats, order_statistic
from jetson_dnn_rt.errors import ConfigurationError

_SMALLEST = 1e-4
"""Singular value, relative to the largest, from which on a direction counts as measured."""
_LARGEST_LEVERAGE = 0.999
"""A point above it is the only one that says something about a coefficient."""


class UndeterminedError(ConfigurationError):
    """The measured points leave a part of the model open; the text says which, and the fix."""


@dataclass(frozen=True)
class HeldOutError:
    """How far a model is from points that it was not fitted to.

    Relative error |predicted / measured - 1|. Each measured point is left out once and predicted
    by a model of all the others, so the noise of the measurement is in it.

    Attributes
    ----------
    p50, p95, max : float
        Over all points and all that was measured at them.
    points : int
        Measured points.
    """

    p50: float
    p95: float
    max: float
    points: int

    def __str__(self) -> str:
        shares = "/".join(f"{100.0 * share:.1f}" for share in (self.p50, self.p95, self.max))
        return f"{shares} % (p50/p95/max of {self.points} points, each held out once)"


def fit(
    columns: Floats, names: Sequence[str], values: Floats, what: str
) -> tuple[Floats, HeldOutError]:
    """Fit ``values ~ columns @ coefficients`` with the least squares of relative errors.

    Parameters
    ----------
    columns : float64 [N, P]
        One row a measured point, each column of the order of 1.
    names : sequence of str
        What the columns stand for.
    values : float64 [N, M]
        Measured, > 0.
    what : str
        Is measured, for messages.

    Returns
    -------
    float64 [P, M]
        Coefficients, >= 0.
    HeldOutError

    Raises
    ------
    UndeterminedError
        When a column, or a mixture of columns, is left open by all points or by all but one.
    """
    _check_determined(columns, names, what)
    coefficients = np.empty((columns.shape[1], values.shape[1]))
    predicted = np.empty_like(values)
    for m, measured in enumerate(values.T):
        rows = columns / measured[:, np.newaxis]
        gram, right = rows.T @ rows, rows.sum(axis=0)
        coefficients[:, m] = solve_nonnegative(gram, right)
        for left_out, row in enumerate(rows):
            # Of n points all but one: the one is taken out of the sums.
            found = solve_nonnegative(gram - np.outer(row, row), right - row)
            predicted[left_out, m] = columns[left_out] @ found
    errors = np.abs(predicted / values - 1.0)
    p50, p95 = (order_statistic(errors.ravel(), share) for share in (0.5, 0.95))
    return coefficients, HeldOutError(float(p50), float(p95), float(errors.max()), len(values))


def solve_nonnegative(gram: Floats, right: Floats) -> Floats:
    """Minimise ``x @ gram @ x - 2 x @ right`` over x >= 0.

    The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23)
    on the normal equations, which are small and well scaled here.

    Parameters
    ----------
    gram : float64 [P, P]
        Positive semidefinite.
    right : float64 [P]
    """
    count = len(right)
    x = np.zeros(count)
    free = np.zeros(count, bool)
    tolerance = 1e-10 * max(1.0, float(np.abs(right).max(initial=0.0)))
    for _ in range(3 * count):
        gradient = np.where(free, -np.inf, right - gram @ x)
        entering = int(gradient.argmax())
        if free.all() or gradient[entering] <= tolerance:
            break
        free[entering] = True
        while True:
            wanted = np.zeros(count)
            wanted[free] = np.linalg.lstsq(gram[np.ix_(free, free)], right[free], rcond=None)[0]
            if not (wanted[free] <= 0.0).any():
                break
            # As far towards it as nothing becomes negative; what comes to 0 stays there.
            blocking = free & (wanted <= 0.0)
            steps = x[blocking] / (x[blocking] - wanted[blocking])
            x += float(steps.min()) * (wanted - x)
            free &= x > 1e-14 * float(np.abs(x).max(initial=0.0))
            x[~free] = 0.0
            if not free.any():
                return x
        x = wanted
    # Rounding leaves traces of what is not there.
    return np.where(x > 1e-9 * x.max(initial=0.0), x, 0.0)


def _check_determined(columns: Floats, names: Sequence[str], what: str) -> None:
    points, count = columns.shape
    if points <= count:
        raise UndeterminedError(
            f"{points} measured points do not determine {what}: it has {count} unknowns, and one "
            f"point is held out at a time; measure at least {count + 1} (--clocks sample chooses "
            "them)"
        )
    scales = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(scales > 0.0, scales, 1.0)
    left, singular, right = np.linalg.svd(scaled, full_matrices=False)
    smallest = right[-1]
    if singular[-1] <= _SMALLEST * singular[0]:
        open_ones = [n for n, part in zip(names, smallest, strict=True) if abs(part) > 0.3]
        raise UndeterminedError(
            f"the measured points do not determine {what}: they do not tell apart "
            f"{' and '.join(open_ones)}; measure points that differ in that alone (--clocks "
            "sample chooses them)"
        )
    leverage = np.square(left).sum(axis=1)
    alone = int(leverage.argmax())
    if leverage[alone] >= _LARGEST_LEVERAGE:
        # What the other points leave open.
        rest = np.delete(scaled, alone, axis=0)
        missing = np.linalg.svd(rest, full_matrices=False)[2][-1]
        name = names[int(np.abs(missing).argmax())]
        raise UndeterminedError(
            f"one measured point alone says anything about {name} of {what}, and it cannot be "
            "held out: measure a second one (--clocks sample chooses them)"
        )
