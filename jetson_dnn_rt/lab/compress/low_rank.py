# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Low-rank approximations of a layer's weights, optimal for its weights or for its output.

Weights are ``[G, O, I, K]`` here: groups, output channels and input channels of a group, taps of
the kernel. Tucker-2 of a convolution ``[Co, Ci, kh, kw]`` is 1x1, kh x kw, 1x1 with fewer channels
in between: a pair of ranks (R3, R4) gives ``W~[o,i,k] = sum_pr U4[o,p] core[p,r,k] U3[r,i]``.

- `MatrixAnalysis` approximates a matrix per group by the product of two.
- `TuckerAnalysis` minimises the error of the weights by HOSVD through Gram matrices and HOOI
  (De Lathauwer et al., 2000). With the covariance of the channels it minimises the error of the
  output for taps that are independent of each other.
- `OutputTuckerAnalysis` minimises the error of the output under the covariance of whole patches
  (arXiv 2511.04494): alternating least squares, where U4 and the core have a closed form (reduced
  rank regression) and U3 is found by conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from jetson_dnn_rt.errors import ModelError

Ranks = npt.NDArray[np.int64]
Errors = npt.NDArray[np.float64]

# From here on matrix products are computed in float32: eight times faster, and the spectrum of so
# large a layer does not need the digits.
_LARGE = 1536
_HOOI_SWEEPS = 8
_SHARES = (0.25, 0.5)  # of both ranks: typical of useful decompositions
_SHARE_SWEEPS = 3
_OUTPUT_SWEEPS = 4
_GRADIENT_STEPS = 8
_DEPENDENT = 1e-6  # relative spread of a channel that the ones before it determine
_TOLERANCE = 1e-3  # relative gain of a sweep below which the next one is not worth its time


def decompose_symmetric(gram: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues, largest first and >= 0, and eigenvectors in columns, of a PSD [..., N, N]."""
    values, vectors = torch.linalg.eigh(gram)
    return values.flip(-1).clamp_min(0.0), vectors.flip(-1)


class MatrixAnalysis:
    """Error of every rank for a layer that is a matrix per group.

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
        self._seen = seen
        self._gram = seen @ seen.mT if rows <= columns else seen.mT @ seen
        squares = torch.linalg.eigvalsh(self._gram).flip(-1).clamp_min(0.0)
        self.squares: npt.NDArray[np.float64] = squares.double().numpy()

    @cached_property
    def _left(self) -> torch.Tensor:
        """Left singular vectors; of a large layer that is not decomposed they are never needed."""
        squares, vectors = decompose_symmetric(self._gram)
        if self._gram.shape[1] == self._seen.shape[1]:
            return vectors
        scale = squares.sqrt().clamp_min(squares.max().sqrt() * 1e-12 + 1e-300)
        return self._seen @ vectors / scale.unsqueeze(-2)

    def errors(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Squared relative error of each rank, in [0, 1]."""
        energies = self.squares.sum(0)
        kept = np.concatenate(([0.0], np.cumsum(energies)))
        return np.asarray(np.clip(1.0 - kept[ranks] / max(kept[-1], 1e-300), 0.0, 1.0))

    def factors(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Left [G, O, rank] and right [G, rank, D] factors; float64, of large layers float32."""
        left = self._left[..., :rank]
        return left, left.mT @ self._weight.to(left.dtype)


@dataclass(frozen=True)
class TuckerFactors:
    """The three factors, float64, and the squared relative error of weights or output."""

    inner: torch.Tensor  # U3 [G, R3, I], the first 1x1 convolution
    core: torch.Tensor  # [G, R4, R3, K], the middle convolution
    outer: torch.Tensor  # U4 [G, O, R4], the last 1x1 convolution
    error: float

    def weight(self) -> torch.Tensor:
        """The product of the factors, [G, O, I, K]."""
        return torch.einsum("gop,gprk,gri->goik", self.outer, self.core, self.inner)


@dataclass(frozen=True, eq=False)
class _Start:
    """Complete bases of both modes, and the energy of each leading part of the core."""

    basis3: torch.Tensor  # [G, I, I]
    basis4: torch.Tensor  # [G, O, O]
    # Entry (p, r): of the core's first p output and r input channels. Exact for every pair,
    # because the bases are orthonormal and nested.
    kept: Errors


class TuckerAnalysis:
    """A convolution's weights [G, O, I, K], or weights times the channels' spread, in some bases.

    The first bases are those of HOSVD. HOOI at some shares of the ranks gives others, complete
    and nested as well, so that the error of every pair is known near its refined value. `root`
    [G, I, I] is a root of the covariance of the input channels, as in `MatrixAnalysis`.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        root: torch.Tensor | None = None,
        shares: Sequence[float] = _SHARES,
    ) -> None:
        seen = weight.double()
        self._unroot = None
        if root is not None:
            seen = torch.einsum("goik,gij->gojk", seen, root)
            self._unroot = torch.linalg.inv(root)
        self._seen = seen
        energy3, basis3 = decompose_symmetric(torch.einsum("goik,gojk->gij", seen, seen))
        energy4, basis4 = decompose_symmetric(torch.einsum("goik,gpik->gop", seen, seen))
        # Energies of the modes of input [G, I] and output channels [G, O], largest first.
        self.squares3: Errors = energy3.numpy()
        self.squares4: Errors = energy4.numpy()
        self._total = max(float(energy3.sum()), 1e-300)
        self._starts = [self._make_start(basis3, basis4)]
        for share in shares:
            rank3 = max(1, round(share * len(basis3[0])))
            rank4 = max(1, round(share * len(basis4[0])))
            found3, found4 = basis3, basis4
            for _ in range(_SHARE_SWEEPS):
                found3, found4, _ = self._sweep(found3[..., :rank3], rank4)
            self._starts.append(self._make_start(found3, found4))

    def _make_start(self, basis3: torch.Tensor, basis4: torch.Tensor) -> _Start:
        core = torch.einsum("goik,gop,gir->gprk", self._seen, basis4, basis3)
        kept = core.square().sum((0, 3)).cumsum(0).cumsum(1).numpy()
        return _Start(basis3, basis4, kept)

    def _sweep(
        self, basis3: torch.Tensor, rank4: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One HOOI sweep: full bases in the order of their energies, and those of mode 3."""
        narrow = torch.einsum("goik,gir->gork", self._seen, basis3).flatten(2)
        _, basis4 = decompose_symmetric(narrow @ narrow.mT)
        narrow = torch.einsum("goik,gop->gipk", self._seen, basis4[..., :rank4]).flatten(2)
        energies, basis3 = decompose_symmetric(narrow @ narrow.mT)
        return basis3, basis4, energies

    def errors(self, ranks3: Ranks, ranks4: Ranks) -> Errors:
        """Squared relative error of each pair in the best of the bases, [R3s, R4s]."""
        kept = np.max([start.kept[np.ix_(ranks4 - 1, ranks3 - 1)] for start in self._starts], 0)
        return np.asarray(np.clip(1.0 - kept.T / self._total, 0.0, 1.0))

    def factors(self, rank3: int, rank4: int, *, refine: bool = True) -> TuckerFactors:
        """The best of the bases for one pair, refined by HOOI until a sweep gains little."""
        start = max(self._starts, key=lambda start: float(start.kept[rank4 - 1, rank3 - 1]))
        basis3, basis4 = start.basis3[..., :rank3], start.basis4[..., :rank4]
        error = max(0.0, 1.0 - float(start.kept[rank4 - 1, rank3 - 1]) / self._total)
        for _ in range(_HOOI_SWEEPS if refine else 0):
            basis3, basis4, energies = self._sweep(basis3, rank4)
            basis3, basis4 = basis3[..., :rank3], basis4[..., :rank4]
            better = max(0.0, 1.0 - float(energies[..., :rank3].sum()) / self._total)
            gain, error = error - better, better
            if gain <= _TOLERANCE * error:
                break
        core = torch.einsum("goik,gop,gir->gprk", self._seen, basis4, basis3)
        inner = basis3.mT if self._unroot is None else basis3.mT @ self._unroot
        return TuckerFactors(inner, core, basis4, error)


def factorise_gram(matrix: torch.Tensor) -> torch.Tensor:
    """Cholesky factor of a matrix that is positive definite but for rounding, [G, N, N].

    Frames that hardly differ leave directions without any energy, which rounding makes negative: a
    ridge is added, as small as serves. Raises `ModelError` where numbers are not finite.
    """
    if not torch.isfinite(matrix).all():
        raise ModelError("the network gives numbers that are not finite on the frames")
    factor, failed = torch.linalg.cholesky_ex(matrix)
    ridge = 1e-12
    while failed.any():  # at the latest until the diagonal outweighs all the rest
        scale = matrix.abs().amax((-2, -1)).clamp_min(1e-30)[:, None, None]
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
        factor, failed = torch.linalg.cholesky_ex(matrix + ridge * scale * eye)
        ridge *= 100.0
    found: torch.Tensor = factor
    return found


class OutputTuckerAnalysis:
    """Tucker-2 with the least error of the output under the covariance of whole patches.

    `covariance` [G, I*K, I*K] is positive definite; taps of a channel lie side by side.
    """

    def __init__(self, weight: torch.Tensor, covariance: torch.Tensor) -> None:
        groups, _, inputs, taps = weight.shape
        self._weight = weight.double()
        self._covariance = covariance.double()
        blocks = self._covariance.reshape(groups, inputs, taps, inputs, taps)
        self._channels = torch.einsum("gikjk->gij", blocks) / taps
        self._root = factorise_gram(self._channels)
        # The channels' subspaces in the order of their energy in the output.
        start = TuckerAnalysis(weight, self._root, shares=())
        self.squares3, self.squares4 = start.squares3, start.squares4
        self._inner = start.factors(inputs, 1, refine=False).inner
        flat = self._weight.flatten(2)
        self._image = flat @ self._covariance  # W S, [G, O, I*K]
        self._total = max(float((self._image * flat).sum()), 1e-300)
        # One Cholesky factor serves every R3: its leading blocks are those of the smaller ones.
        _, self._explained, _ = self._regress(self._inner)

    def _regress(self, inner: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Regress the output on the narrowed input.

        Returns
        -------
        factor : Tensor [G, R3*K, R3*K]
            Cholesky factor of the narrowed patches' covariance.
        explained : Tensor [G, R3*K, O]
            The output in the coordinates that the factor makes white.
        moved : Tensor [G, R3, K, I*K]
            The narrowed patches' covariance with the patches.
        """
        groups, _, inputs, taps = self._weight.shape
        rank3 = inner.shape[1]
        moved = inner @ self._covariance.reshape(groups, inputs, -1)
        moved = moved.reshape(groups, rank3 * taps, inputs, taps)
        gram = torch.einsum("gnik,gri->gnrk", moved, inner).flatten(2)
        gram = 0.5 * (gram + gram.mT)
        factor = factorise_gram(gram)
        target = moved.flatten(2) @ self._weight.flatten(2).mT
        explained = torch.linalg.solve_triangular(factor, target, upper=False)
        return factor, explained, moved

    def errors(self, ranks3: Ranks, ranks4: Ranks) -> Errors:
        """Squared relative error of the output, exact for the unrefined inner factor."""
        taps = self._weight.shape[-1]
        table = np.empty((len(ranks3), len(ranks4)))
        for row, rank3 in enumerate(ranks3):
            explained = self._explained[:, : int(rank3) * taps]
            energies = torch.linalg.eigvalsh(explained.mT @ explained).flip(-1).sum(0)
            kept = energies.cumsum(0).numpy()[ranks4 - 1]
            table[row] = np.clip(1.0 - kept / self._total, 0.0, 1.0)
        return table

    def factors(self, rank3: int, rank4: int, *, refine: bool = True) -> TuckerFactors:
        """Alternating least squares, until a sweep gains next to nothing."""
        inner = self._inner[:, :rank3]
        best = self._solve(inner, rank4)
        for _ in range(_OUTPUT_SWEEPS if refine else 0):
            inner = self._improve_inner(best)
            found = self._solve(inner, rank4)
            gain = best.error - found.error
            if gain > 0.0:
                best = found
            if gain <= _TOLERANCE * best.error:
                break
        return best

    def _solve(self, inner: torch.Tensor, rank4: int) -> TuckerFactors:
        """The best core and outer factor for an inner one."""
        groups, rank3, _ = inner.shape
        factor, explained, _ = self._regress(inner)
        energies, basis = decompose_symmetric(explained.mT @ explained)
        outer = basis[..., :rank4]
        core = torch.linalg.solve_triangular(factor.mT, explained @ outer, upper=True).mT
        error = max(0.0, 1.0 - float(energies[..., :rank4].sum()) / self._total)
        return TuckerFactors(inner, core.reshape(groups, rank4, rank3, -1), outer, error)

    def _improve_inner(self, factors: TuckerFactors) -> torch.Tensor:
        """A better inner factor for the others, by preconditioned conjugate gradients.

        The error is quadratic in the inner factor. The preconditioner is its exact Hessian for
        taps that are independent of each other.
        """
        groups, rank4, rank3, taps = factors.core.shape
        inputs = self._weight.shape[2]
        core, x = factors.core, factors.inner

        def gather(image: torch.Tensor) -> torch.Tensor:
            parts = image.reshape(groups, rank4, inputs, taps)
            return torch.einsum("gprk,gpik->gri", core, parts)

        def apply(inner: torch.Tensor) -> torch.Tensor:
            narrow = torch.einsum("gprk,gri->gpik", core, inner).flatten(2)
            return gather(narrow @ self._covariance)

        flat = core.transpose(1, 2).flatten(2)
        gram = flat @ flat.mT
        ridge = 1e-9 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
        left = torch.linalg.cholesky(gram + (ridge + 1e-300) * torch.eye(rank3, dtype=gram.dtype))

        def precondition(residual: torch.Tensor) -> torch.Tensor:
            half = torch.cholesky_solve(residual, left)
            return torch.cholesky_solve(half.mT, self._root).mT

        residual = gather(factors.outer.mT @ self._image) - apply(x)
        direction = shifted = precondition(residual)
        size = float((residual * shifted).sum())
        for _ in range(_GRADIENT_STEPS):
            image = apply(direction)
            curvature = float((direction * image).sum())
            if curvature <= 0.0 or size <= 0.0:
                break
            step = size / curvature
            x = x + step * direction
            residual = residual - step * image
            shifted = precondition(residual)
            size, previous = float((residual * shifted).sum()), size
            direction = shifted + (size / previous) * direction
        # Channels between the convolutions with unit spread: well inside the range of half floats.
        spread, failed = torch.linalg.cholesky_ex(x @ self._channels @ x.mT)
        levels = spread.diagonal(dim1=-2, dim2=-1)
        if bool(failed.any()) or float(levels.min()) <= _DEPENDENT * float(levels.max()):
            return factors.inner  # the core does not use some of these channels
        better: torch.Tensor = torch.linalg.solve_triangular(spread, x, upper=False)
        return better
