# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layers of a graph: functional ones as modules, batch norms folded, weights laid out.

Graphs of `torch.export` call ``aten.conv2d`` with weights fetched from the graph; hand-written
modules may call `torch.nn.functional.conv2d`. Here such calls become `nn.Conv2d`, `nn.Linear` and
`nn.BatchNorm2d`, which decomposition and folding look for. They compute the same, and all nodes
keep their names.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import fx, nn
from torch.nn import functional

_M = TypeVar("_M", bound=nn.Module)

_aten = torch.ops.aten

# Positional parameters after the input of each function.
_CONVOLUTION = ("weight", "bias", "stride", "padding", "dilation", "groups")
_CONVOLUTIONS: dict[Any, tuple[str, ...]] = {
    torch.conv2d: _CONVOLUTION,
    functional.conv2d: _CONVOLUTION,
    _aten.conv2d.default: _CONVOLUTION,
    _aten.conv2d.padding: _CONVOLUTION,
    _aten.convolution.default: (*_CONVOLUTION[:5], "transposed", "output_padding", "groups"),
}
_LINEARS: dict[Any, tuple[str, ...]] = {
    functional.linear: ("weight", "bias"),
    _aten.linear.default: ("weight", "bias"),
}
_BATCH_NORMS: dict[Any, tuple[str, ...]] = {
    functional.batch_norm: (
        "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps",
    ),
    _aten.batch_norm.default: (
        "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps",
        "cudnn_enabled",
    ),
}  # fmt: skip
_ALL = {**_CONVOLUTIONS, **_LINEARS, **_BATCH_NORMS}

_TENSORS = ("weight", "bias", "running_mean", "running_var")


def lift_modules(graph: fx.GraphModule) -> fx.GraphModule:
    """Turn functional layers into modules, in place.

    Only where the weights are those of the graph, which is in evaluation mode, and all else is
    fixed. Calls with the same weights and settings share a module. Weights that are used elsewhere
    too stay shared.
    """
    made: dict[Any, str] = {}
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target not in _ALL:
            continue
        call = _read_call(graph, node)
        if call is None:
            continue
        image, tensors, settings = call
        key = (node.target, tuple(sorted(tensors.items())), repr(sorted(settings.items())))
        if key not in made:
            module = _make(graph, node.target, tensors, settings)
            if module is None:
                continue
            made[key] = f"{node.name}_layer"
            while hasattr(graph, made[key]):
                made[key] += "_"
            graph.add_submodule(made[key], module)
        node.op, node.target = "call_module", made[key]
        node.args, node.kwargs = (image,), {}
    if made:
        graph.graph.eliminate_dead_code()
        graph.delete_all_unused_submodules()
        graph.recompile()
    return graph


def _read_call(
    graph: fx.GraphModule, node: fx.Node
) -> tuple[fx.Node, dict[str, str], dict[str, Any]] | None:
    """The input, the paths of the tensors and the other arguments; None if it is not a layer."""
    names = ("input", *_ALL[node.target])
    if len(node.args) > len(names):
        return None
    values = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    image = values.pop("input", None)
    tensors: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if name in _TENSORS and value is not None:
            if not isinstance(value, fx.Node) or value.op != "get_attr":
                return None
            tensors[name] = str(value.target)
        elif isinstance(value, fx.Node):
            return None
        elif isinstance(value, (list, tuple)):
            if any(isinstance(item, fx.Node) for item in value):
                return None
            settings[name] = tuple(value)
        elif name not in _TENSORS:
            settings[name] = value
    return (image, tensors, settings) if isinstance(image, fx.Node) else None


def _make(
    graph: fx.GraphModule, target: Any, tensors: dict[str, str], settings: dict[str, Any]
) -> nn.Module | None:
    values = {name: attrgetter(path)(graph) for name, path in tensors.items()}
    if target in _BATCH_NORMS:
        return _make_batch_norm(values, settings)
    weight = values.get("weight")
    if weight is None:
        return None
    if target in _LINEARS:
        if weight.dim() != 2:
            return None
        made: nn.Module = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    else:
        transposed = settings.pop("transposed", False)
        settings.pop("output_padding", None)
        if weight.dim() != 4 or transposed:
            return None
        groups = settings.pop("groups", 1)
        made = nn.Conv2d(
            weight.shape[1] * groups,
            weight.shape[0],
            (weight.shape[2], weight.shape[3]),
            groups=groups,
            device="meta",
            **{name: _pair(value) for name, value in settings.items()},
        )
    made._parameters["weight"] = _as_parameter(weight)
    made._parameters["bias"] = _as_parameter(values.get("bias"))
    return made.eval()


def _make_batch_norm(
    values: dict[str, torch.Tensor], settings: dict[str, Any]
) -> nn.BatchNorm2d | None:
    if settings.get("training", False) or not {"running_mean", "running_var"} <= set(values):
        return None
    if ("weight" in values) != ("bias" in values):
        return None
    channels = len(values["running_mean"])
    made = _AnyBatchNorm(channels, settings.get("eps", 1e-5), affine="weight" in values)
    for name in ("weight", "bias"):
        made._parameters[name] = _as_parameter(values.get(name))
    made.running_mean, made.running_var = values["running_mean"], values["running_var"]
    return made.eval()


class _AnyBatchNorm(nn.BatchNorm2d):
    """The function takes inputs of all numbers of dimensions, and so does this."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        return None


def _pair(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return (value, value)
    return tuple(value) * 2 if len(value) == 1 else tuple(value)


def _as_parameter(value: torch.Tensor | None) -> nn.Parameter | None:
    if value is None or isinstance(value, nn.Parameter):
        return value
    return nn.Parameter(value, requires_grad=value.is_floating_point())


def copy_folded(graph: fx.GraphModule) -> fx.GraphModule:
    """Copy a graph with its batch norms folded into the convolutions before them.

    Only where the convolution and the batch norm are each called once, and nothing else reads
    between them. The batch norm becomes an identity, so that all nodes keep their names.
    """
    graph = copy.deepcopy(graph).eval()
    modules = dict(graph.named_modules(remove_duplicate=False))
    calls = Counter(
        id(modules[node.target]) for node in graph.graph.nodes if node.op == "call_module"
    )
    for node in graph.graph.nodes:
        if node.op != "call_module" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        norm, before = modules[node.target], node.args[0]
        if not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None:
            continue
        if before.op != "call_module" or len(before.users) != 1:
            continue
        conv = modules[before.target]
        if type(conv) is nn.Conv2d and calls[id(conv)] == 1 and calls[id(norm)] == 1:
            replace_module(graph, str(before.target), _fold(conv, norm))
            replace_module(graph, str(node.target), nn.Identity())
    return graph


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    folded = copy.copy(conv)  # parameters that another module shares stay as they are
    folded._parameters = dict(conv._parameters)
    with torch.no_grad():
        scale = (norm.running_var.double() + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        bias = -norm.running_mean.double() * scale
        if norm.bias is not None:
            bias = bias + norm.bias.double()
        if conv.bias is not None:
            bias = bias + conv.bias.double() * scale
        weight = conv.weight.double() * scale[:, None, None, None]
        folded.weight = nn.Parameter(weight.to(conv.weight.dtype))
        folded.bias = nn.Parameter(bias.to(conv.weight.dtype))
    return folded


def replace_module(graph: fx.GraphModule, path: str, module: nn.Module) -> None:
    """Put another module in place of one; the nodes that call it stay as they are."""
    parent, _, name = path.rpartition(".")
    setattr(graph.get_submodule(parent), name, module)


def to_channels_last(module: _M) -> _M:
    """Lay out all weights and constants of four dimensions with their channels last, in place.

    Convolutions run fastest so. `torch.nn.Module.to` would refuse a module that holds constants of
    five dimensions, as the anchors of YOLOv5 are.
    """
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
    return module
