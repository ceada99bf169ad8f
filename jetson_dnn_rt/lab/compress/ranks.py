"""Ranks by rule: a ratio, the energy that is to stay, or what empirical Bayes finds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.compress.evbmf import estimate_rank

MULTIPLE = 8
"""Vector units and tensor cores work on so many channels at a time."""

_MOST_CANDIDATES = 64

Ranks = npt.NDArray[np.int64]


def list_candidates(channels: int) -> Ranks:
    """Ranks worth trying for a mode: multiples of 8 below its channels, and the channels.

    Parameters
    ----------
    channels : int
        >= 1; of more than 512 channels only every second multiple is tried, and so on.
    """
    step = MULTIPLE * math.ceil(channels / (MULTIPLE * _MOST_CANDIDATES))
    below = np.arange(step, channels, step, dtype=np.int64)
    if step > MULTIPLE and channels > MULTIPLE:
        below = np.concatenate(([MULTIPLE], below))
    return np.concatenate((below, [channels])).astype(np.int64)


def round_rank(rank: float, channels: int, multiple: int = MULTIPLE) -> int:
    """The nearest multiple to a rank, at least one of them and at most the channels."""
    return min(channels, max(multiple, multiple * round(rank / multiple)))


def choose_by_ratio(ratio: float, channels: int, multiple: int = MULTIPLE) -> int:
    """A share of the channels."""
    return round_rank(ratio * channels, channels, multiple)


def choose_by_energy(share: float, squares: npt.NDArray[np.float64]) -> int:
    """The smallest multiple of 8 that keeps a share of the energy.

    Parameters
    ----------
    share : float
        In (0, 1].
    squares : ndarray [G, N]
        Energies per group, largest first.
    """
    energies = np.cumsum(squares.sum(0))
    if energies[-1] <= 0.0:
        return min(MULTIPLE, len(energies))
    # A share of 1 asks for all that is more than rounding.
    needed = 1 + int(np.searchsorted(energies, energies[-1] * (share - 1e-12)))
    return min(len(energies), MULTIPLE * math.ceil(needed / MULTIPLE))


def choose_by_evbmf(weakening: float, squares: npt.NDArray[np.float64], columns: int) -> int:
    """MUSCO's weakened rank ``R - w (R - r)``, r what empirical Bayes finds in any group.

    Gusak et al., "Automated Multi-Stage Compression of Neural Networks", ICCV workshops 2019.

    Parameters
    ----------
    weakening : float
        w in (0, 1]; 1 takes what is found.
    squares : ndarray [G, N]
        Squared singular values of the mode's unfolding per group, N rows.
    columns : int
        Columns of the unfolding.
    """
    groups, rows = squares.shape
    small = min(rows, columns)
    found = max(
        estimate_rank(np.sqrt(squares[group, :small]), (rows, columns)) for group in range(groups)
    )
    return round_rank(rows - weakening * (rows - found), rows)
