"""Decomposition of a network: which layers, into what ranks, and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.compress.budget import Options, allocate
from jetson_dnn_rt.lab.compress.covariance import Covariance
from jetson_dnn_rt.lab.compress.factorisation import LayerAnalysis
from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module
from jetson_dnn_rt.variants.decomposition import (
    Decomposition,
    LayerDecomposition,
    Ranks,
    find_layers,
)
from jetson_dnn_rt.variants.measuring.macs import Costs, count
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.spec import DecompositionSpec

_ROUNDS = 3  # of asking which layers are faster and spending the budget on those

NOT_SMALLER = "not fewer multiply-accumulates"
SPARED = "the budget is met without it"

KeepIf = Callable[[str, nn.Module, nn.Module, tuple[int, ...]], tuple[bool, str]]
"""From a layer's name, the layer, its replacement and its input's shape: whether to replace it, or
why not."""


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
    """Decompose a network in evaluation mode, which is left unchanged.

    Parameters
    ----------
    input_shape : tuple of int
        ``(1, 3, H, W)``.
    covariances : mapping of str to Covariance, optional
        Of the inputs of layers: the error of a layer's output is minimised, and decides on the
        ranks. A layer without one is decomposed by its weights, and its `metric` says so.
    sensitivities : mapping of str to float, optional
        Cost of a squared relative error of each layer for the network
        (`jetson_dnn_rt.lab.compress.sensitivity`): a ``macs`` budget is spent by that. By default
        all layers count alike; a layer without one has the mean of the others.
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
    analyses, costs = analyse(reduced, input_shape, spec.method, covariances or {}, progress)
    worth = sensitivities or {}
    if any(not 0.0 <= value < float("inf") for value in worth.values()):
        raise ValueError("sensitivities must be finite and >= 0")
    made = plan(reduced, spec, analyses, costs, worth, keep_if, progress)
    errors = {}
    kept = [name for name in made.ranks if name not in made.refused]
    for done, name in enumerate(kept):
        built, errors[name] = analyses[name].factorise(made.ranks[name])
        replace_module(reduced, name, built)
        progress("factorise", done + 1, len(kept))
    untouched = SPARED if spec.rule == "macs" else NOT_SMALLER
    layers = []
    for name, layer in find_layers(graph, spec.method).items():
        before = costs.layers[name].macs
        analysis, ranks = analyses.get(name), made.ranks.get(name, ())
        keep = name in errors
        layers.append(
            LayerDecomposition(
                name,
                layer.kind,
                ranks,
                before,
                analysis.macs(ranks) if analysis and keep else before,
                errors[name] if keep else made.errors.get(name, 0.0),
                analysis.metric if analysis else "weight",
                keep,
                "" if keep else made.refused.get(name) or layer.reason or untouched,
            )
        )
    saved = sum(layer.macs_before - layer.macs_after for layer in layers)
    return reduced, Decomposition(
        spec,
        tuple(layers),
        costs.macs,
        costs.macs - saved,
        sum(parameter.numel() for parameter in graph.parameters()),
        sum(parameter.numel() for parameter in reduced.parameters()),
        made.note,
    )


@dataclass
class Plan:
    """Ranks by layer."""

    ranks: dict[str, Ranks]  # of each layer that is to be decomposed, or was refused
    refused: dict[str, str] = field(
        default_factory=dict
    )  # why a layer is not decomposed after all
    errors: dict[str, float] = field(default_factory=dict)  # relative errors of the refused ones
    note: str = ""  # why a budget could not be reached; else empty


def analyse(
    graph: fx.GraphModule,
    input_shape: tuple[int, ...],
    method: str,
    covariances: Mapping[str, Covariance],
    progress: Progress,
) -> tuple[dict[str, LayerAnalysis], Costs]:
    """Analyse all layers that a method can decompose, of a graph with batch norms folded."""
    costs = count(graph, input_shape)
    found = {
        name: layer
        for name, layer in find_layers(graph, method).items()
        if not layer.reason and name in costs.layers
    }
    analyses = {}
    for done, (name, layer) in enumerate(found.items()):
        module = graph.get_submodule(name)
        assert isinstance(module, (nn.Conv2d, nn.Linear))
        analyses[name] = LayerAnalysis(
            module, layer, costs.layers[name], method, covariances.get(name)
        )
        progress("analyse", done + 1, len(found))
    return analyses, costs


def plan(
    graph: fx.GraphModule,
    spec: DecompositionSpec,
    analyses: Mapping[str, LayerAnalysis],
    costs: Costs,
    sensitivities: Mapping[str, float],
    keep_if: KeepIf | None,
    progress: Progress,
) -> Plan:
    """Choose ranks, and leave out the layers that are refused."""
    if spec.rule == "macs":
        return _plan_budget(graph, spec, analyses, costs, sensitivities, keep_if, progress)
    chosen = {name: analysis.choose(spec) for name, analysis in analyses.items()}
    made = Plan({name: ranks for name, ranks in chosen.items() if ranks})
    if keep_if is not None:
        judge = _Judge(graph, analyses, keep_if, progress)
        made.refused = judge.refuse(made.ranks)
        made.errors = judge.errors
    return made


def _plan_budget(
    graph: fx.GraphModule,
    spec: DecompositionSpec,
    analyses: Mapping[str, LayerAnalysis],
    costs: Costs,
    sensitivities: Mapping[str, float],
    keep_if: KeepIf | None,
    progress: Progress,
) -> Plan:
    offers = {name: analysis.options() for name, analysis in analyses.items()}
    mean = sum(sensitivities.values()) / len(sensitivities) if sensitivities else 1.0
    options = {
        name: Options(offer[0].costs, _lose(offer[0].errors) * sensitivities.get(name, mean))
        for name, offer in offers.items()
    }
    fixed = costs.macs - sum(analysis.cost.macs for analysis in analyses.values())
    limit = int(spec.value * costs.macs) - fixed
    least = _least(options)
    if least > limit:
        raise ConfigurationError(
            f"{spec}: cannot keep {spec.value:.2f} of the multiply-accumulates: the smallest "
            f"share possible is {_share(least + fixed, costs):.4f}"
        )
    judge = _Judge(graph, analyses, keep_if, progress) if keep_if is not None else None
    refused: dict[str, str] = {}
    ranks: dict[str, Ranks] = {}
    note = ""
    for _ in range(_ROUNDS):
        left = {name: option for name, option in options.items() if name not in refused}
        room = limit - sum(analyses[name].cost.macs for name in refused)
        if _least(left) > room:
            # The cheapest ranks everywhere would ruin the network and still miss the budget. So
            # the rest keeps the share that was asked of the whole.
            room = int(spec.value * sum(analyses[name].cost.macs for name in left))
        ranks = {name: offers[name][1][index] for name, index in allocate(left, room).items()}
        ranks = {name: pair for name, pair in ranks.items() if pair}
        found = judge.refuse(ranks) if judge is not None else {}
        refused.update(found)
        if not found:
            break
    kept = costs.macs - sum(
        analyses[name].cost.macs - analyses[name].macs(pair)
        for name, pair in ranks.items()
        if name not in refused
    )
    if kept > int(spec.value * costs.macs):
        note = (
            f"budget {spec.value:.2f} not reached: {_share(kept, costs):.4f} of the "
            f"multiply-accumulates kept, because {len(refused)} layers stay as they are"
        )
    if judge is None:
        return Plan(ranks, note=note)
    tried = {name: judge.ranks[name] for name in refused}
    return Plan({**ranks, **tried}, refused, judge.errors, note)


def _lose(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Cost of squared relative errors: -log of the share of the signal that is left.

    Layers follow one another, so these shares multiply. The cost of small errors is linear; an
    error that leaves nothing of a layer costs more than any sum of small ones.
    """
    return np.asarray(-np.log1p(-np.minimum(errors, 1.0 - 1e-9)))


def _least(options: Mapping[str, Options]) -> int:
    return sum(int(option.costs.min()) for option in options.values())


def _share(macs: int, costs: Costs) -> float:
    return macs / costs.macs


class _Judge:
    """Asks `keep_if` about each layer and its ranks once."""

    def __init__(
        self,
        graph: fx.GraphModule,
        analyses: Mapping[str, LayerAnalysis],
        keep_if: KeepIf,
        progress: Progress,
    ) -> None:
        self._graph, self._analyses = graph, analyses
        self._keep_if, self._progress = keep_if, progress
        self._verdicts: dict[tuple[str, Ranks], tuple[bool, str]] = {}
        self.ranks: dict[str, Ranks] = {}
        self.errors: dict[str, float] = {}

    def refuse(self, chosen: Mapping[str, Ranks]) -> dict[str, str]:
        """Layers that are not to be decomposed with these ranks, with the reasons."""
        refused = {}
        for done, (name, ranks) in enumerate(chosen.items()):
            key = (name, ranks)
            if key not in self._verdicts:
                self._verdicts[key] = self._ask(name, ranks)
            self._progress("measure", done + 1, len(chosen))
            keep, reason = self._verdicts[key]
            if not keep:
                refused[name] = reason or "refused"
        return refused

    def _ask(self, name: str, ranks: Ranks) -> tuple[bool, str]:
        analysis = self._analyses[name]
        # Only the time matters, so the first approximation will do.
        built, self.errors[name] = analysis.factorise(ranks, refine=False)
        self.ranks[name] = ranks
        shape = analysis.cost.input_shapes[0]
        return self._keep_if(name, self._graph.get_submodule(name), built, shape)
