# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sensitivity of a network's results to an error in one layer.

Measured on the built-in detector: the same relative error of a layer's output costs the results
30 times more before the head than on stride 32. A budget spent by the layers' own errors alone
loses 5.2 points of mAP at half of the multiply-accumulates, one spent by their cost 3.1
(data-aware, without recovery).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from jetson_dnn_rt.lab.compress.distillation import expose, find_targets, measure_spreads
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

# Least share of a layer's energy that is removed to measure its cost: about what the ranks of a
# useful decomposition remove.
_DROPPED = 0.02
_PHASE = "sensitivity"
_LEAST_ENERGY = 1e-9  # of what varies, relative to the square of the mean: less is rounding


def measure_sensitivities(
    graph: fx.GraphModule,
    layers: Sequence[str],
    inputs: Sequence[torch.Tensor],
    progress: Progress = ignore_progress,
) -> dict[str, float]:
    """Measure the cost of a small error of each layer's output for the results of the network.

    One layer at a time, the weakest directions of its output are removed, those that a
    decomposition gives up first, and the results are compared on a few `inputs` [1, 3, H, W], at
    least two. Returns the squared relative error of the results per squared relative error of the
    layer's output, for layers whose output varies.
    """
    targets = find_targets(graph, graph, inputs[:2])
    watched = expose(graph, targets.final or targets.names)
    sensitivities = {}
    with torch.no_grad():
        expected = [watched(image) for image in inputs]
        spreads = measure_spreads(expected)
        directions = _find_directions(watched, layers, inputs)
        for done, (name, weakness) in enumerate(directions.items()):
            handle = watched.get_submodule(name).register_forward_hook(weakness.drop)
            try:
                found = [watched(image) for image in inputs]
            finally:
                handle.remove()
            error = _relative_error(found, expected, spreads)
            sensitivities[name] = error / weakness.share
            progress(_PHASE, done + 1, len(directions))
    return sensitivities


def _relative_error(
    found: Sequence[Sequence[torch.Tensor]],
    expected: Sequence[Sequence[torch.Tensor]],
    spreads: Sequence[float],
) -> float:
    """Squared error relative to the spread, averaged over frames and values."""
    errors = [
        float((one - other).square().mean()) / spread
        for some, others in zip(found, expected, strict=True)
        for one, other, spread in zip(some, others, spreads, strict=True)
    ]
    return sum(errors) / len(errors)


@dataclass(frozen=True, eq=False)
class _Weakness:
    """The directions of a layer's output with the least energy."""

    axis: int  # of the channels
    mean: torch.Tensor  # [C]
    directions: torch.Tensor  # [C, N]
    share: float  # of the energy about the mean

    def drop(self, module: nn.Module, args: Any, value: torch.Tensor) -> torch.Tensor:
        """Remove these directions from an output."""
        rows = value.movedim(self.axis, -1)
        lost = (rows - self.mean) @ self.directions @ self.directions.mT
        return value - lost.movedim(-1, self.axis)


def _find_directions(
    graph: fx.GraphModule, layers: Sequence[str], inputs: Sequence[torch.Tensor]
) -> dict[str, _Weakness]:
    moments: dict[str, _Moments] = {}
    handles = []
    for name, module in graph.named_modules():
        if name in layers:
            moments[name] = _Moments(-1 if isinstance(module, nn.Linear) else 1)
            handles.append(module.register_forward_hook(moments[name].hook))
    try:
        for image in inputs:
            graph(image)
    finally:
        for handle in handles:
            handle.remove()
    found = {name: moment.find_weakness() for name, moment in moments.items()}
    return {name: weakness for name, weakness in found.items() if weakness is not None}


class _Moments:
    """Mean and covariance of the channels of one layer's output."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._first = torch.zeros((), dtype=torch.float64)
        self._second = torch.zeros((), dtype=torch.float64)
        self._count = 0

    def hook(self, module: nn.Module, args: Any, value: torch.Tensor) -> None:
        rows = value.movedim(self._axis, -1).flatten(0, -2).double()
        self._first = self._first + rows.sum(0)
        self._second = self._second + rows.mT @ rows
        self._count += len(rows)

    def find_weakness(self) -> _Weakness | None:
        """Find the weakest directions; None for a layer whose output does not vary."""
        if not self._count:
            return None
        mean = self._first / self._count
        covariance = self._second / self._count - torch.outer(mean, mean)
        energies, vectors = torch.linalg.eigh(covariance)
        shares = energies.clamp(min=0.0).cumsum(0)
        total = float(shares[-1])
        if not total > _LEAST_ENERGY * float(mean.square().sum()):
            return None
        shares = shares / total
        # As many as reach the share: with few frames a smaller number would be rounding.
        number = 1 + int((shares < _DROPPED).sum())
        share = float(shares[number - 1])
        return _Weakness(self._axis, mean.float(), vectors[:, :number].float(), share)
