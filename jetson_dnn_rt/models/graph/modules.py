"""Functional layers of a graph as modules: what decomposes layers looks for those.

Graphs of `torch.export` call ``aten.conv2d`` with weights fetched from the graph; hand-written
modules may call `torch.nn.functional.conv2d`. Here such calls become `nn.Conv2d`, `nn.Linear` and
`nn.BatchNorm2d`. They compute the same, and all nodes keep their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

_aten = torch.ops.aten

# Positional parameters after the input of each function.
_CONVOLUTION = ("weight", "bias", "stride", "padding", "dilation", "groups")
_CONVOLUTIONS: dict[Any, tuple[str, ...]] = {
    torch.conv2d: _CONVOLUTION,
    functional.conv2d: _CONVOLUTION,
    _aten.conv2d.default: _CONVOLUTION,
    _aten.conv2d.padding: _CONVOLUTION,
    _aten.convolution.default: (
        *_CONVOLUTION[:5],
        "transposed",
        "output_padding",
        "groups",
    ),
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

    Only where the weights are those of the graph and all else is fixed. Calls with the same
    weights and settings share a module. Weights that are used elsewhere too stay shared.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        In evaluation mode.

    Returns
    -------
    torch.fx.GraphModule
        The same graph.
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
            module = _make(graph, node.target, tensors, settings, image)
            if module is None:
                continue
            made[key] = _find_name(graph, f"{node.name}_layer")
            graph.add_submodule(made[key], module)
        node.op, node.target = "call_module", made[key]
        node.args, node.kwargs = (image,), {}
    if made:
        graph.graph.eliminate_dead_code()
        graph.delete_all_unused_submodules()
        graph.recompile()
    return graph


def _find_name(graph: fx.GraphModule, name: str) -> str:
    while hasattr(graph, name):
        name += "_"
    return name


def _read_call(
    graph: fx.GraphModule, node: fx.Node
) -> tuple[fx.Node, dict[str, str], dict[str, Any]] | None:
    """The input, the paths of the tensors and the other arguments; None if it is no layer."""
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
    graph: fx.GraphModule,
    target: Callable[..., Any],
    tensors: dict[str, str],
    settings: dict[str, Any],
    image: fx.Node,
) -> nn.Module | None:
    values = {name: _fetch(graph, path) for name, path in tensors.items()}
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


def _fetch(graph: fx.GraphModule, path: str) -> torch.Tensor:
    value: Any = graph
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, torch.Tensor)
    return value


def _as_parameter(value: torch.Tensor | None) -> nn.Parameter | None:
    if value is None or isinstance(value, nn.Parameter):
        return value
    return nn.Parameter(value, requires_grad=value.is_floating_point())
