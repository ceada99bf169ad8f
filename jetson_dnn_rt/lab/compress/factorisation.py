# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Factorisation of one layer: cost and error of all its ranks, and the layers that replace it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from jetson_dnn_rt.lab.compress import ranks as rank_rules
from jetson_dnn_rt.lab.compress.budget import Options
from jetson_dnn_rt.lab.compress.covariance import Covariance
from jetson_dnn_rt.lab.compress.low_rank import (
    MatrixAnalysis,
    OutputTuckerAnalysis,
    TuckerAnalysis,
    decompose_symmetric,
    factorise_gram,
)
from jetson_dnn_rt.variants.decomposition import Layer, Ranks, build_structure
from jetson_dnn_rt.variants.measuring.macs import LayerCost
from jetson_dnn_rt.variants.spec import DecompositionSpec

# Share of the mean variance: enough for channels that are dead on the frames seen, too little to
# matter for the others.
_SHRINKAGE = 1e-3


def count_macs(
    layer: Layer, cost: LayerCost, inner: npt.ArrayLike, outer: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Count the multiply-accumulates of a decomposed layer with ranks R3 and R4 per group.

    A rank equal to its number of channels means that there is no 1x1 convolution on that side.
    """
    inner, outer = np.asarray(inner, np.int64), np.asarray(outer, np.int64)
    first = np.where(inner < layer.inputs, layer.inputs * inner, 0) * cost.positions_in
    middle = layer.taps * inner * outer * cost.positions_out
    last = np.where(outer < layer.outputs, layer.outputs * outer, 0) * cost.positions_out
    return np.asarray(layer.groups * (first + middle + last))


def list_ranks(layer: Layer, method: str) -> tuple[rank_rules.Ranks, rank_rules.Ranks]:
    """List the ranks worth trying of input and of output channels, each with each.

    A layer that is decomposed as a matrix keeps all its input channels.
    """
    if is_tensor(layer, method):
        return rank_rules.list_candidates(layer.inputs), rank_rules.list_candidates(layer.outputs)
    outer = rank_rules.list_candidates(min(layer.outputs, layer.inputs * layer.taps))
    if layer.outputs <= layer.inputs * layer.taps:
        outer = outer[:-1]  # at full rank it is the layer itself and one more
    return np.array([layer.inputs]), outer


def is_tensor(layer: Layer, method: str) -> bool:
    """Whether a layer gets ranks for input and output channels, or one as a matrix."""
    return method == "tucker" and layer.kind == "conv"


class LayerAnalysis:
    """Spectra of one layer, from which the error of every choice of ranks follows.

    `layer` must be one that can be decomposed; with a covariance of the inputs the errors are
    those of the output.
    """

    def __init__(
        self,
        module: nn.Module,
        layer: Layer,
        cost: LayerCost,
        method: str,
        covariance: Covariance | None = None,
    ) -> None:
        self.layer = layer
        self.cost = cost
        self._method = method
        assert isinstance(module, (nn.Conv2d, nn.Linear))
        self._module = module
        self._covariance = covariance
        self._matrix: MatrixAnalysis | None = None
        self._tensor: TuckerAnalysis | OutputTuckerAnalysis | None = None
        if not is_tensor(layer, method):
            self._matrix = self._analyse_matrix()
        elif covariance is not None and covariance.kind == "patch":
            shrunk = covariance.regularise(_SHRINKAGE)
            self._tensor = OutputTuckerAnalysis(self._weight(), shrunk)
        else:
            self._tensor = TuckerAnalysis(self._weight(), self._root())

    @property
    def metric(self) -> str:
        """What the errors refer to: ``weight`` or ``output``."""
        return "weight" if self._covariance is None else "output"

    def _weight(self) -> torch.Tensor:
        layer = self.layer
        weight = self._module.weight.detach().cpu().float()
        return weight.reshape(layer.groups, layer.outputs, layer.inputs, layer.taps)

    def _root(self) -> torch.Tensor | None:
        """A root of the covariance, of patches or of channels."""
        if self._covariance is None:
            return None
        # Every root gives the same layers, and this one costs a fraction of the symmetric one.
        return factorise_gram(self._covariance.regularise(_SHRINKAGE))

    def _analyse_matrix(self) -> MatrixAnalysis:
        return MatrixAnalysis(self._weight().flatten(2), self._root())

    def macs(self, ranks: Ranks) -> int:
        """Multiply-accumulates with these ranks; ``()`` is the layer as it is."""
        if not ranks:
            return self.cost.macs
        inner = ranks[0] if len(ranks) == 2 else self.layer.inputs
        return int(count_macs(self.layer, self.cost, inner, ranks[-1]))

    def options(self) -> tuple[Options, list[Ranks]]:
        """All choices worth considering, the layer as it is first (with ranks ``()``)."""
        layer = self.layer
        inner, outer = list_ranks(layer, self._method)
        costs = count_macs(layer, self.cost, inner[:, None], outer).reshape(-1)
        if self._tensor is not None:
            errors = self._tensor.errors(inner, outer).reshape(-1)
            return self._join(costs, errors, [(int(a), int(b)) for a in inner for b in outer])
        assert self._matrix is not None
        return self._join(costs, self._matrix.errors(outer), [self._pair(int(r)) for r in outer])

    def _pair(self, rank: int) -> Ranks:
        """The ranks of a layer as the product of two."""
        return (rank,) if self.layer.kind == "linear" else (self.layer.inputs, rank)

    def _join(
        self, costs: npt.NDArray[np.int64], errors: npt.NDArray[np.float64], ranks: list[Ranks]
    ) -> tuple[Options, list[Ranks]]:
        smaller = costs < self.cost.macs
        options = Options(
            np.concatenate(([self.cost.macs], costs[smaller])),
            np.concatenate(([0.0], errors[smaller])),
        )
        kept = [pair for pair, small in zip(ranks, smaller, strict=True) if small]
        return options, [(), *kept]

    def choose(self, spec: DecompositionSpec) -> Ranks:
        """Ranks by a rule other than a budget; ``()`` if that is not smaller."""
        if spec.rule == "ratio":
            return self.apply_ratio(spec.value)
        if self._tensor is not None:
            inner = self._apply_rule(spec, self._tensor.squares3, 3)
            return self._check((inner, self._apply_rule(spec, self._tensor.squares4, 4)))
        assert self._matrix is not None
        return self._check(self._pair(self._apply_rule(spec, self._matrix.squares, 4)))

    def apply_ratio(self, ratio: float, multiple: int = rank_rules.MULTIPLE) -> Ranks:
        """Ranks that are a share of the full ones; ``()`` if that is not smaller."""

        def choose(channels: int) -> int:
            return rank_rules.choose_by_ratio(ratio, channels, multiple)

        layer = self.layer
        if self._tensor is not None:
            return self._check((choose(layer.inputs), choose(layer.outputs)))
        return self._check(self._pair(choose(min(layer.outputs, layer.inputs * layer.taps))))

    def _check(self, ranks: Ranks) -> Ranks:
        return ranks if self.macs(ranks) < self.cost.macs else ()

    def _apply_rule(
        self, spec: DecompositionSpec, squares: npt.NDArray[np.float64], mode: int
    ) -> int:
        if spec.rule == "energy":
            return rank_rules.choose_by_energy(spec.value, squares)
        layer = self.layer
        columns = layer.taps * (layer.outputs if mode == 3 else layer.inputs)
        if self._covariance is not None:
            # Empirical Bayes looks for noise in the weights.
            weight = self._weight().double()
            unfolding = (weight.transpose(1, 2) if mode == 3 else weight).flatten(2)
            small = unfolding if unfolding.shape[1] <= unfolding.shape[2] else unfolding.mT
            squares = decompose_symmetric(small @ small.mT)[0].numpy()
        if self._tensor is None:
            columns = max(layer.outputs, columns)
        return rank_rules.choose_by_evbmf(spec.value, squares, columns)

    def factorise(self, ranks: Ranks, *, refine: bool = True) -> tuple[nn.Sequential, float]:
        """Build the layers that replace this one, of the same device and dtype.

        `refine` iterates from the first approximation to a better one. Also returns the relative
        error of the weights or of the output, not squared.
        """
        layer = self.layer
        built = build_structure(self._module, ranks)
        if self._tensor is not None and ranks[0] < layer.inputs:
            factors = self._tensor.factors(ranks[0], ranks[1], refine=refine)
            parts = [factors.inner, factors.core, factors.outer]
            squared = factors.error
        else:
            # With all input channels it is a matrix, and the best answer is known.
            matrix = self._matrix or self._analyse_matrix()
            outer, core = matrix.factors(ranks[-1])
            parts = [core.reshape(*core.shape[:2], layer.inputs, layer.taps), outer]
            squared = float(matrix.errors(np.array([ranks[-1]]))[0])
        if layer.kind == "conv" and ranks[1] == layer.outputs:
            parts[-2:] = [torch.einsum("gop,gprk->gork", parts[-1], parts[-2])]
        with torch.no_grad():
            for target, part in zip(built, parts, strict=True):
                assert isinstance(target, (nn.Conv2d, nn.Linear))
                target.weight.copy_(part.flatten(0, 1).reshape(target.weight.shape))
            last = built[-1].bias
            assert isinstance(last, torch.Tensor)
            last.copy_(self._find_bias(parts).reshape(-1))
        return built, math.sqrt(squared)

    def _find_bias(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """The layer's bias plus what the factors lose of the mean output, [G, O].

        The covariance describes the variation about the mean; the loss of the mean is exact.
        """
        layer = self.layer
        bias = torch.zeros(layer.groups, layer.outputs, dtype=torch.float64)
        if self._module.bias is not None:
            bias += self._module.bias.detach().cpu().double().reshape(bias.shape)
        if self._covariance is None:
            return bias
        mean = self._covariance.mean
        if self._covariance.kind == "channel":
            mean = mean.repeat_interleave(layer.taps, -1)
        value = mean.reshape(-1, layer.inputs, layer.taps)
        expected = torch.einsum("goik,gik->go", self._weight().double(), value)
        for part in parts:  # 1x1, kh x kw, 1x1, those that exist
            part = part.double()
            if part.dim() == 4:
                value = torch.einsum("gprk,grk->gp", part, value)
            else:
                value = torch.einsum("gri,gi...->gr...", part, value)
        bias += expected - value
        return bias
