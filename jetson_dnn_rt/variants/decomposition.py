"""Decomposed networks: which layers were replaced, by what ranks, and why not the others.

`apply_structure` makes the modules of one, to load weights into; `lab.compress` finds the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.graph.folding import copy_folded, replace_module
from jetson_dnn_rt.variants.spec import DecompositionSpec

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class LayerDecomposition:
    """One layer and what became of it.

    Attributes
    ----------
    name : str
        Path of the submodule in the graph.
    kind : str
        ``conv`` or ``linear``.
    ranks : tuple of int
        (R3, R4) per group, or (R,); empty where the layer was never decomposed.
    macs_before, macs_after : int
        Multiply-accumulates per picture.
    error : float
        Relative error that the ranks bring, of what `metric` says; 0 without ranks.
    metric : str
        ``weight``, or ``output`` where the covariance of the inputs was known.
    kept : bool
        Whether the network has the decomposed layer.
    reason : str
        Why not: ``1x1``, ``depthwise``, ``not faster: 0.41 ms against 0.38``; empty where kept.
    """

    name: str
    kind: str
    ranks: tuple[int, ...]
    macs_before: int
    macs_after: int
    error: float
    metric: str
    kept: bool
    reason: str


@dataclass(frozen=True)
class Decomposition:
    """A network and what became of its layers.

    Attributes
    ----------
    spec : DecompositionSpec
        What was asked for.
    layers : tuple of LayerDecomposition
        Every convolution and linear layer, in the order of their first calls.
    macs_before, macs_after : int
        Of the whole network per picture, including what cannot be decomposed.
    parameters_before, parameters_after : int
        Of the whole network; batch norms are gone afterwards.
    note : str
        Where the budget could not be reached: why, and what was reached. Else empty.
    """

    spec: DecompositionSpec
    layers: tuple[LayerDecomposition, ...]
    macs_before: int
    macs_after: int
    parameters_before: int
    parameters_after: int
    note: str = ""

    @property
    def macs_kept(self) -> float:
        """Share of the multiply-accumulates that is left."""
        return self.macs_after / self.macs_before if self.macs_before else 1.0

    def to_json(self) -> dict[str, Any]:
        """Give all of it as values that `json` writes."""
        return {**asdict(self), "spec": str(self.spec)}

    @staticmethod
    def from_json(data: object) -> Decomposition:
        """Read what `to_json` gave.

        Raises
        ------
        ModelError
            When it is anything else.
        """
        values = _read_fields(data, Decomposition, "decomposition")
        layers = values.pop("layers")
        if not isinstance(layers, (list, tuple)):
            raise ModelError("decomposition: layers must be a list")
        try:
            spec = DecompositionSpec.parse(values.pop("spec"))
        except (ConfigurationError, TypeError) as error:
            raise ModelError(f"decomposition: {error}") from error
        read = tuple(_read_layer(layer) for layer in layers)
        if len({layer.name for layer in read}) != len(read):
            raise ModelError("decomposition: a layer is there twice")
        return Decomposition(spec, read, **values)


_COUNTS = ("macs_before", "macs_after", "parameters_before", "parameters_after")


def _read_fields(data: object, form: type, what: str) -> dict[str, Any]:
    names = [field.name for field in fields(form)]
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise ModelError(f"{what} must have exactly the entries {', '.join(names)}")
    values = dict(data)
    for name in _COUNTS:
        if name in values and (type(values[name]) is not int or values[name] < 0):
            raise ModelError(f"{what}: {name} must be a whole number >= 0: {values[name]!r}")
    for name in ("name", "kind", "metric", "reason", "note"):
        if name in values and not isinstance(values[name], str):
            raise ModelError(f"{what}: {name} must be text: {values[name]!r}")
    return values


def _read_layer(data: object) -> LayerDecomposition:
    values = _read_fields(data, LayerDecomposition, "decomposed layer")
    name, ranks = values["name"], values["ranks"]
    if not isinstance(ranks, (list, tuple)) or not all(
        type(rank) is int and rank >= 1 for rank in ranks
    ):
        raise ModelError(f"layer {name!r}: ranks must be whole numbers >= 1: {ranks!r}")
    if values["kind"] not in ("conv", "linear") or values["metric"] not in ("weight", "output"):
        raise ModelError(f"layer {name!r}: kind or metric is unknown")
    allowed = (1 if values["kind"] == "linear" else 2,)
    if type(values["kept"]) is not bool or len(ranks) not in (
        allowed if values["kept"] else (0, *allowed)
    ):
        raise ModelError(f"layer {name!r}: kept or the number of ranks is wrong")
    error = values["error"]
    if type(error) not in (int, float) or not 0.0 <= error < float("inf"):
        raise ModelError(f"layer {name!r}: error must be a number >= 0: {error!r}")
    return LayerDecomposition(**{**values, "ranks": tuple(ranks), "error": float(error)})


@dataclass(frozen=True)
class Layer:
    """A convolution or linear layer of a graph.

    Attributes
    ----------
    kind : str
        ``conv`` or ``linear``.
    groups, outputs, inputs, taps : int
        Its weight is [groups x outputs, inputs, taps].
    reason : str
        Why it cannot be decomposed; empty where it can.
    """

    kind: Literal["conv", "linear"]
    groups: int
    outputs: int
    inputs: int
    taps: int
    reason: str


def describe_layer(module: nn.Module, method: str) -> Layer:
    """Say whether and as what a layer can be decomposed.

    Parameters
    ----------
    module : nn.Conv2d or nn.Linear
        The layer.
    method : str
        ``tucker``: convolutions larger than 1x1, and linear layers as products of two.
        ``svd``: all of them as products of two, a convolution as kh x kw and 1x1.
    """
    if isinstance(module, nn.Linear):
        return Layer("linear", 1, module.out_features, module.in_features, 1, "")
    if not isinstance(module, nn.Conv2d):
        raise TypeError(f"module must be a Conv2d or Linear: {type(module).__name__}")
    groups, taps = module.groups, math.prod(module.kernel_size)
    inputs, outputs = module.in_channels // groups, module.out_channels // groups
    reason = ""
    if inputs == 1 and groups > 1:
        reason = "depthwise"
    elif taps == 1 and method == "tucker":
        reason = "1x1"
    return Layer("conv", groups, outputs, inputs, taps, reason)


def find_layers(graph: fx.GraphModule, method: str) -> dict[str, Layer]:
    """Describe the layers of a graph by their paths, in the order of their first calls."""
    modules = dict(graph.named_modules(remove_duplicate=False))
    return {
        node.target: describe_layer(modules[node.target], method)
        for node in graph.graph.nodes
        if node.op == "call_module" and type(modules[node.target]) in (nn.Conv2d, nn.Linear)
    }


def build_structure(module: nn.Module, ranks: Ranks) -> nn.Sequential:
    """Make the layers that replace one, with all weights zero.

    The last one has a bias even where the layer had none: it takes up the mean of what the
    others lose.

    Parameters
    ----------
    module : nn.Conv2d or nn.Linear
        The layer.
    ranks : tuple of int
        (R3, R4) per group of a convolution, (R,) of a linear layer.

    Raises
    ------
    ModelError
        When the ranks do not fit the layer.
    """
    weight = getattr(module, "weight", None)
    assert isinstance(weight, torch.Tensor)
    if isinstance(module, nn.Linear):
        if len(ranks) != 1 or not 1 <= ranks[0] <= min(module.in_features, module.out_features):
            raise ModelError(f"ranks {ranks} do not fit {module}")
        built = nn.Sequential(
            nn.Linear(module.in_features, ranks[0], bias=False, device="meta"),
            nn.Linear(ranks[0], module.out_features, device="meta"),
        )
    else:
        assert isinstance(module, nn.Conv2d)
        built = nn.Sequential(*_build_convolutions(module, ranks))
    built = built.to_empty(device=weight.device).to(weight.dtype)
    for parameter in built.parameters():
        nn.init.zeros_(parameter)
    return built.eval()


def _build_convolutions(conv: nn.Conv2d, ranks: Ranks) -> list[nn.Conv2d]:
    groups = conv.groups
    inputs, outputs = conv.in_channels // groups, conv.out_channels // groups
    if len(ranks) != 2 or not (1 <= ranks[0] <= inputs and 1 <= ranks[1] <= outputs):
        raise ModelError(f"ranks {ranks} do not fit {conv}")
    inner, outer = groups * ranks[0], groups * ranks[1]
    layers = [
        nn.Conv2d(
            inner,
            outer,
            conv.kernel_size,  # type: ignore[arg-type,unused-ignore]
            conv.stride,  # type: ignore[arg-type,unused-ignore]
            conv.padding,  # type: ignore[arg-type,unused-ignore]
            conv.dilation,  # type: ignore[arg-type,unused-ignore]
            groups=groups,
            bias=ranks[1] == outputs,
            padding_mode=conv.padding_mode,
            device="meta",
        )
    ]
    if ranks[0] < inputs:
        layers.insert(
            0, nn.Conv2d(conv.in_channels, inner, 1, groups=groups, bias=False, device="meta")
        )
    if ranks[1] < outputs:
        layers.append(nn.Conv2d(outer, conv.out_channels, 1, groups=groups, device="meta"))
    return layers


def apply_structure(graph: fx.GraphModule, decomposition: Decomposition) -> fx.GraphModule:
    """Make the network of a decomposition without its weights, to load a state dict into.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        The network that was decomposed; left as it is.
    decomposition : Decomposition
        What became of its layers.

    Returns
    -------
    torch.fx.GraphModule
        A copy; weights of decomposed layers are zero.

    Raises
    ------
    ModelError
        When the decomposition is not one of this graph.
    """
    reduced = copy_folded(graph)
    found = find_layers(graph, decomposition.spec.method)
    listed = {layer.name: layer for layer in decomposition.layers}
    if set(found) != set(listed):
        different = sorted(set(found) ^ set(listed))
        raise ModelError(f"the decomposition is of another network: see {different[0]!r}")
    for name, layer in listed.items():
        if layer.kind != found[name].kind:
            raise ModelError(f"layer {name!r} is a {found[name].kind}, not a {layer.kind}")
        if layer.kept:
            built = build_structure(reduced.get_submodule(name), layer.ranks)
            replace_module(reduced, name, built)
    return reduced
