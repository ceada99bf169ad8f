"""Low-rank layers: a matrix as the product of two, best for its values or for what it returns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

# From here on products of matrices are made in float32: eight times faster, and the spectrum of
# so large a layer does not need the digits.
_LARGE = 1536


def decompose_symmetric(gram: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues, largest first and >= 0, and eigenvectors in columns.

    Parameters
    ----------
    gram : Tensor [..., N, N]
        Symmetric and positive semidefinite.
    """
    values, vectors = torch.linalg.eigh(gram)
    return values.flip(-1).clamp_min(0.0), vectors.flip(-1)


class MatrixAnalysis:
    """What every rank would cost a layer that is a matrix per group.

    Without a covariance the error is ``||W - W~||^2 / ||W||^2``. With the covariance S of the
    inputs it is ``||(W - W~) S^(1/2)||^2 / ||W S^(1/2)||^2``, the error of the output; its
    minimum is ``W~ = U U^T W`` with U the leading eigenvectors of ``W S W^T``.

    Parameters
    ----------
    weight : Tensor [G, O, D]
        One matrix per group.
    root : Tensor [G, D, D] or [G, C, C], optional
        R with ``R R^T = S``. With C < D it holds for each of the D/C entries of a channel,
        ``S = R R^T (x) I``: entries of one channel lie side by side in D.
    """

    def __init__(self, weight: torch.Tensor, root: torch.Tensor | None = None) -> None:
        groups, rows, columns = weight.shape
        self._weight = weight
        dtype = torch.float32 if min(rows, columns) > _LARGE else torch.float64
        seen = weight.to(dtype)
        if root is not None:
            root = root.to(dtype)
            channels = root.shape[-1]
            taps = seen.reshape(groups, rows, channels, columns // channels)
            seen = torch.einsum("gock,gcd->godk", taps, root).reshape(groups, rows, columns)
        if rows <= columns:
            squares, self._left = decompose_symmetric(seen @ seen.mT)
        else:
            squares, right = decompose_symmetric(seen.mT @ seen)
            scale = squares.sqrt().clamp_min(squares.max().sqrt() * 1e-12 + 1e-300)
            self._left = seen @ right / scale.unsqueeze(-2)
        self.squares: npt.NDArray[np.float64] = squares.double().numpy()

    def errors(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Squared relative error of each rank, in [0, 1]."""
        energies = self.squares.sum(0)
        kept = np.concatenate(([0.0], np.cumsum(energies)))
        return np.asarray(np.clip(1.0 - kept[ranks] / max(kept[-1], 1e-300), 0.0, 1.0))

    def factors(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Left [G, O, rank] and right [G, rank, D] factors; float64, of large layers float32."""
        left = self._left[..., :rank]
        return left, left.mT @ self._weight.to(left.dtype)
