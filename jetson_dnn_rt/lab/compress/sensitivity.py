# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sensitivity of a network's results to an error in one layer.

Measured on the built-in detector: the same relative error of a layer's output costs the results
30 times more before the head than on stride 32. A budget spent by the layers' own errors alone
loses 5.2 points of mAP at half of the multiply-accumulates, one spent by their cost 3.1
(data-aware, without recovery).
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn

from jetson_dnn_rt.lab.compress.distillation import expose, find_targets, measure_spreads
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

# Least share of a layer's energy that is removed to measure its cost: about what the ranks of a
# useful decomposition remove.
_DROPPED = 0.02
Floats = npt.NDArray[np.float64]

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
    with torch.no_grad():
        weaknesses = _find_weaknesses(watched, layers, inputs)
        expected, errors = [], []
        for done, image in enumerate(inputs, start=1):
            replay = _Replay(watched, weaknesses)
            expected.append(replay.run(image))
            errors.append(
                {name: _square(found, expected[-1]) for name, found in replay.found.items()}
            )
            progress(_PHASE, done, len(inputs))
        spreads = np.array(measure_spreads(expected))
    return {
        name: float(np.mean([frame[name] / spreads for frame in errors])) / weakness.share
        for name, weakness in weaknesses.items()
    }


def _square(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Floats:
    """Mean squared error of each of the results."""
    pairs = zip(found, expected, strict=True)
    return np.array([float((one - other).square().mean()) for one, other in pairs])


class _Replay(fx.Interpreter):
    """Runs a graph, and from each layer on once more without the layer's weakest directions.

    What comes before a layer is the same with and without them.
    """

    def __init__(self, graph: fx.GraphModule, weaknesses: Mapping[str, _Weakness]) -> None:
        super().__init__(graph)
        self.found: dict[str, Sequence[torch.Tensor]] = {}
        names = {id(graph.get_submodule(name)): name for name in weaknesses}
        self._layers: dict[fx.Node, str] = {}  # by their first calls
        for node in graph.graph.nodes:
            if node.op == "call_module":
                name = names.pop(id(graph.get_submodule(node.target)), None)
                if name is not None:
                    self._layers[node] = name
        self._weaknesses = weaknesses

    def run_node(self, node: fx.Node) -> Any:
        name = self._layers.get(node)
        if name is not None:
            self.found[name] = self._run_rest(node, name)
        return super().run_node(node)

    def _run_rest(self, layer: fx.Node, name: str) -> Sequence[torch.Tensor]:
        before = itertools.takewhile(lambda node: node is not layer, self.graph.nodes)
        # A copy: operations in place may change what is still needed here.
        values = copy.deepcopy(list(self.env.values()))
        known = {**dict.fromkeys(before), **dict(zip(self.env, values, strict=True))}
        module = self.module.get_submodule(name)
        handle = module.register_forward_hook(self._weaknesses[name].drop)
        try:
            found: Sequence[torch.Tensor] = fx.Interpreter(self.module).run(initial_env=known)
        finally:
            handle.remove()
        return found


@dataclass(frozen=True, eq=False)
class _Weakness:
    """The directions of a layer's output with the least energy: all but those that are kept."""

    axis: int  # of the channels
    mean: torch.Tensor  # [C]
    kept: torch.Tensor  # [C, N]
    share: float  # of the energy about the mean, without what is kept

    def drop(self, module: nn.Module, args: Any, value: torch.Tensor) -> torch.Tensor:
        """Remove these directions from an output."""
        varying = value.movedim(self.axis, -1) - self.mean
        lost = varying - varying @ self.kept @ self.kept.mT
        return value - lost.movedim(-1, self.axis)


def _find_weaknesses(
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
        self._rows: list[torch.Tensor] = []  # not yet in the covariance
        self._count = 0

    def hook(self, module: nn.Module, args: Any, value: torch.Tensor) -> None:
        rows = value.movedim(self._axis, -1).flatten(0, -2).double()
        self._first = self._first + rows.sum(0)
        self._rows.append(rows)
        self._count += len(rows)
        if self._count > rows.shape[1]:
            for part in self._rows:
                self._second = self._second + part.mT @ part
            self._rows.clear()

    def find_weakness(self) -> _Weakness | None:
        """Find the weakest directions; None for a layer whose output does not vary."""
        if not self._count:
            return None
        mean = self._first / self._count
        energies, vectors = self._find_directions(mean)
        shares = energies.clamp(min=0.0).cumsum(0)
        total = float(shares[-1])
        if not total > _LEAST_ENERGY * float(mean.square().sum()):
            return None
        shares = shares / total
        # As many as reach the share: with few frames a smaller number would be rounding.
        number = 1 + int((shares < _DROPPED).sum())
        share = float(shares[number - 1])
        return _Weakness(self._axis, mean.float(), vectors[:, number:].float(), share)

    def _find_directions(self, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Energies [N], least first, and orthonormal directions [C, N] of all that varies."""
        if not self._rows:
            covariance = self._second / self._count - torch.outer(mean, mean)
            energies, vectors = torch.linalg.eigh(covariance)
            return energies, vectors
        # Fewer rows than channels vary in no more directions: those of a smaller matrix.
        rows = (torch.cat(self._rows) - mean) / math.sqrt(self._count)
        energies, vectors = torch.linalg.eigh(rows @ rows.mT)
        lengths = energies.clamp(min=1e-300).sqrt()
        return energies, rows.mT @ vectors / lengths
