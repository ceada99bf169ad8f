"""Decomposes the layers of a network by their weights and, where known, by what they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module
from jetson_dnn_rt.variants.decomposition import (
    Decomposition,
    LayerDecomposition,
    find_layers,
)
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.spec import DecompositionSpec

if TYPE_CHECKING:
    from torch import fx

    from jetson_dnn_rt.lab.compress.covariance import Covariance
    from jetson_dnn_rt.lab.compress.layers import KeepIf

NOT_SMALLER = "not fewer multiply-accumulates"
SPARED = "the budget is met without it"


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
    """Decompose a network.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        Left as it is. In evaluation mode.
    input_shape : tuple of int
        Of its input, ``(1, 3, H, W)``.
    spec : DecompositionSpec
        Method, rule and value.
    covariances : mapping of str to Covariance, optional
        Of the inputs of its layers (`lab.compress.covariance.collect`): the error of a
        layer's output is minimised, and decides on the ranks. A layer without one is decomposed
        by its weights, and its `metric` says so.
    sensitivities : mapping of str to float, optional
        What a squared relative error of each layer costs the network
        (`jetson_dnn_rt.lab.compress.sensitivity`): a ``macs`` budget is spent by that. By default
        all layers count alike; so does, as the mean of the others, one that is not named.
    keep_if : callable, optional
        Called with a layer's name, the layer, what would replace it and the shape of its input;
        says whether to replace it and, if not, why. Under a ``macs`` rule the budget is spent
        again on the other layers.
    progress : callable
        Called with ``("analyse" | "measure" | "factorise", layers done, layers in all)``.

    Returns
    -------
    graph : torch.fx.GraphModule
        A copy. Nodes have the same names; decomposed layers are `nn.Sequential` in their place.
    decomposition : Decomposition
        What became of each layer.

    Raises
    ------
    ConfigurationError
        When the budget of a ``macs`` rule is below the smallest possible share.
    ModelError
        When the graph cannot be run.
    """
    from jetson_dnn_rt.lab.compress.planning import analyse, plan

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
