# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decomposition of a network: the choice of layers and ranks, and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from torch import fx, nn

from jetson_dnn_rt.lab.compress.budget import Options, allocate
from jetson_dnn_rt.lab.compress.covariance import Covariance
from jetson_dnn_rt.lab.compress.factorisation import LayerAnalysis
from jetson_dnn_rt.lab.compress.smallest_share import require_share
from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module
from jetson_dnn_rt.variants.decomposition import (
    Decomposition,
    LayerDecomposition,
    Ranks,
    find_layers,
)
from jetson_dnn_rt.variants.measuring.macs import count
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.spec import DecompositionSpec

_ROUNDS = 3  # of finding which layers are faster and spending the budget on those

NOT_SMALLER = "not fewer multiply-accumulates"
SPARED = "the budget is met without it"

KeepIf = Callable[[str, nn.Module, nn.Module, tuple[int, ...]], tuple[bool, str]]
"""Takes a layer's name, the layer, its replacement and its input's shape; returns whether to
replace it, or why not."""


def list_layers(graph: fx.GraphModule, method: str) -> tuple[str, ...]:
    """Paths of the layers that a method can decompose, in the order of their first calls."""
    return tuple(name for name, layer in find_layers(graph, method).items() if not layer.reason)


def decompose(
    graph: fx.GraphModule,
    input_shape: tuple[int, ...],
    spec: DecompositionSpec,
    *,
    covariances: Mapping[str, Covariance] | None = None,
    sensitivities: Mapping[str, float] | None = None,
    keep_if: KeepIf | None = None,
    progress: Progress = ignore_progress,
) -> tuple[fx.GraphModule, Decomposition]:
    """Decompose a network in evaluation mode; it is not modified.

    Parameters
    ----------
    input_shape : tuple of int
        ``(1, 3, H, W)``.
    covariances : mapping of str to Covariance, optional
        Covariances of the inputs of layers: the error of a layer's output is minimised, and
        decides on the ranks. A layer without one is decomposed by its weights, see its `metric`.
    sensitivities : mapping of str to float, optional
        Cost of a squared relative error of each layer for the network
        (`jetson_dnn_rt.lab.compress.sensitivity`), by which a ``macs`` budget is spent. By default
        all layers count alike; a layer without one gets the mean of the others.
    keep_if : callable, optional
        Decides whether to replace a layer. Under a ``macs`` rule the budget is spent again on the
        other layers.
    progress : callable
        Called with ``("analyse" | "measure" | "factorise", layers done, layers in all)``.

    Returns
    -------
    graph : torch.fx.GraphModule
        A copy. Nodes have the same names; decomposed layers are `nn.Sequential` in their place.
    decomposition : Decomposition

    Raises
    ------
    ConfigurationError
        If the budget of a ``macs`` rule is below the smallest possible share.
    """
    reduced = copy_folded(graph)
    plan = Plan(reduced, input_shape, spec, covariances, keep_if, progress)
    plan.choose(sensitivities or {})
    errors = {}
    kept = [name for name in plan.ranks if name not in plan.refused]
    for done, name in enumerate(kept, start=1):
        built, errors[name] = plan.analyses[name].factorise(plan.ranks[name])
        replace_module(reduced, name, built)
        progress("factorise", done, len(kept))
    untouched = SPARED if spec.rule == "macs" else NOT_SMALLER
    layers = []
    for name, layer in find_layers(graph, spec.method).items():
        before = plan.costs.layers[name].macs
        analysis, ranks = plan.analyses.get(name), plan.ranks.get(name, ())
        keep = name in errors
        layers.append(
            LayerDecomposition(
                name,
                layer.kind,
                ranks,
                before,
                analysis.macs(ranks) if analysis and keep else before,
                errors[name] if keep else plan.errors.get(name, 0.0),
                analysis.metric if analysis else "weight",
                keep,
                "" if keep else plan.refused.get(name) or layer.reason or untouched,
            )
        )
    saved = sum(layer.macs_before - layer.macs_after for layer in layers)
    before, after = (sum(p.numel() for p in each.parameters()) for each in (graph, reduced))
    macs = plan.costs.macs
    return reduced, Decomposition(
        spec, tuple(layers), macs, macs - saved, before, after, plan.note
    )


class Plan:
    """Ranks by layer, of a graph with batch norms folded.

    `analyses` cover all layers that the method can decompose. `ranks` has each layer that is to be
    decomposed or was `refused`: with these ranks `keep_if` returned the reason. `errors` are the
    relative errors with these ranks, and `note` is the reason why a budget could not be reached.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        input_shape: tuple[int, ...],
        spec: DecompositionSpec,
        covariances: Mapping[str, Covariance] | None = None,
        keep_if: KeepIf | None = None,
        progress: Progress = ignore_progress,
    ) -> None:
        self._graph, self._spec, self._keep_if, self._progress = graph, spec, keep_if, progress
        self._accepted: set[tuple[str, Ranks]] = set()
        self.costs = count(graph, input_shape)
        require_share(graph, self.costs, spec)
        self.analyses: dict[str, LayerAnalysis] = {}
        self.ranks: dict[str, Ranks] = {}
        self.refused: dict[str, str] = {}
        self.errors: dict[str, float] = {}
        self.note = ""
        layers = find_layers(graph, spec.method).items()
        found = [(n, layer) for n, layer in layers if not layer.reason and n in self.costs.layers]
        for done, (name, layer) in enumerate(found, start=1):
            module, cost = graph.get_submodule(name), self.costs.layers[name]
            covariance = (covariances or {}).get(name)
            self.analyses[name] = LayerAnalysis(module, layer, cost, spec.method, covariance)
            progress("analyse", done, len(found))

    def choose(self, sensitivities: Mapping[str, float]) -> None:
        """Choose ranks, without the layers that are refused."""
        if any(not 0.0 <= value < float("inf") for value in sensitivities.values()):
            raise ValueError("sensitivities must be finite and >= 0")
        if self._spec.rule == "macs":
            ranks = self._spend_budget(sensitivities)
        else:
            chosen = {name: each.choose(self._spec) for name, each in self.analyses.items()}
            ranks = {name: pair for name, pair in chosen.items() if pair}
            self._refuse(ranks)
        self.ranks = {**ranks, **self.ranks}

    def _spend_budget(self, sensitivities: Mapping[str, float]) -> dict[str, Ranks]:
        """Ranks within a share of all multiply-accumulates."""
        spec, refused, total = self._spec, self.refused, self.costs.macs
        macs = {name: analysis.cost.macs for name, analysis in self.analyses.items()}
        offers = {name: analysis.options() for name, analysis in self.analyses.items()}
        mean = sum(sensitivities.values()) / len(sensitivities) if sensitivities else 1.0
        options = {
            name: Options(offer[0].costs, _lose(offer[0].errors) * sensitivities.get(name, mean))
            for name, offer in offers.items()
        }
        fixed = total - sum(macs.values())
        limit = int(spec.value * total) - fixed
        for _ in range(_ROUNDS):
            left = {name: option for name, option in options.items() if name not in refused}
            room = limit - sum(macs[name] for name in refused)
            if _least(left) > room:
                # The cheapest ranks everywhere would ruin the network and still miss the budget.
                # So the rest keeps the share that was requested for the whole.
                room = int(spec.value * sum(macs[name] for name in left))
            ranks = {name: offers[name][1][index] for name, index in allocate(left, room).items()}
            ranks = {name: pair for name, pair in ranks.items() if pair}
            if not self._refuse(ranks):
                break
        decomposed = {name: pair for name, pair in ranks.items() if name not in refused}
        kept = total - sum(macs[n] - self.analyses[n].macs(pair) for n, pair in decomposed.items())
        if kept > int(spec.value * total):
            self.note = (
                f"budget {spec.digits} not reached: {kept / total:.4f} of the "
                f"multiply-accumulates kept, because {len(refused)} layers stay as they are"
            )
        return ranks

    def _refuse(self, chosen: Mapping[str, Ranks]) -> bool:
        """Find the layers that are not to be decomposed with these ranks; False if none."""
        if self._keep_if is None:
            return False
        before = len(self.refused)
        for done, (name, ranks) in enumerate(chosen.items(), start=1):
            if (name, ranks) not in self._accepted:
                analysis = self.analyses[name]
                # Only the time matters, so the first approximation will do.
                built, self.errors[name] = analysis.factorise(ranks, refine=False)
                module, shape = self._graph.get_submodule(name), analysis.cost.input_shapes[0]
                keep, reason = self._keep_if(name, module, built, shape)
                if keep:
                    self._accepted.add((name, ranks))
                else:
                    self.refused[name], self.ranks[name] = reason or "refused", ranks
            self._progress("measure", done, len(chosen))
        return len(self.refused) > before


def _lose(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Cost of squared relative errors: -log of the share of the signal that is left.

    Layers follow one another, so these shares multiply. The cost of small errors is linear; an
    error that leaves nothing of a layer costs more than any sum of small ones.
    """
    return np.asarray(-np.log1p(-np.minimum(errors, 1.0 - 1e-9)))


def _least(options: Mapping[str, Options]) -> int:
    return sum(int(option.costs.min()) for option in options.values())
