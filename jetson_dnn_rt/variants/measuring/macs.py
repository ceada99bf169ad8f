# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Counts the multiply-accumulate operations and parameters of a graph, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from jetson_dnn_rt.errors import ModelError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerCost:
    """Cost of one convolution or linear layer per picture, all its calls together.

    `positions_in` and `positions_out` are the places at which it reads and writes a vector of
    channels: height x width of a map, rows of a matrix.
    """

    macs: int
    parameters: int  # weights and biases
    input_shapes: tuple[Shape, ...]  # of its input at each call
    positions_in: int
    positions_out: int


@dataclass(frozen=True)
class Costs:
    """Cost of a graph per picture.

    `macs` are of convolutions of all kinds and products of matrices, modules or functions.
    `layers` are every `nn.Conv2d` and `nn.Linear` that is called, by its path in the graph.
    """

    layers: Mapping[str, LayerCost]
    macs: int
    parameters: int


def count(graph: fx.GraphModule, input_shape: Shape) -> Costs:
    """Count by running a graph in evaluation mode once on zeros of ``(1, 3, H, W)``.

    Raises `ModelError` when the graph cannot be run on such an input.
    """
    reference = next(graph.parameters(), torch.empty(0))
    image = torch.zeros(input_shape, device=reference.device, dtype=reference.dtype)
    counter = _Counter()
    calls = _Calls(graph)
    try:
        # Under no_grad, not inference_mode: there linear layers reach the counter undivided.
        with torch.no_grad(), counter:
            calls.run(image)
    except Exception as error:  # a foreign graph may raise anything
        raise ModelError(f"the graph cannot be run on {list(input_shape)}: {error}") from error
    layers = {
        name: _count_layer(graph.get_submodule(name), shapes)
        for name, shapes in calls.shapes.items()
    }
    parameters = sum(parameter.numel() for parameter in graph.parameters())
    return Costs(layers, counter.macs, parameters)


def _count_layer(layer: nn.Module, calls: list[tuple[Shape, Shape]]) -> LayerCost:
    if isinstance(layer, nn.Conv2d):
        positions_in = sum(math.prod(shape) // layer.in_channels for shape, _ in calls)
        positions_out = sum(math.prod(shape) // layer.out_channels for _, shape in calls)
    else:
        assert isinstance(layer, nn.Linear)
        positions_in = sum(math.prod(shape) // layer.in_features for shape, _ in calls)
        positions_out = positions_in
    return LayerCost(
        positions_out * layer.weight.numel(),
        sum(parameter.numel() for parameter in layer.parameters()),
        tuple(shape for shape, _ in calls),
        positions_in,
        positions_out,
    )


class _Calls(fx.Interpreter):
    """Runs a graph and keeps the shapes at each call of a layer."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.shapes: dict[str, list[tuple[Shape, Shape]]] = {}

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().call_module(target, args, kwargs)
        if isinstance(self.module.get_submodule(target), (nn.Conv2d, nn.Linear)):
            image = args[0] if args else next(iter(kwargs.values()))
            shapes = tuple(image.shape), tuple(value.shape)
            self.shapes.setdefault(target, []).append(shapes)
        return value


class _Counter(TorchDispatchMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Adds up the operations that reach the kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.macs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = func(*args, **(kwargs or {}))
        self.macs += _count_operation(func.overloadpacket.__name__, args, value)
        return value


def _count_operation(name: str, args: Any, value: Any) -> int:
    if name == "convolution":
        image, weight, transposed = args[0], args[1], args[6]
        # Each value on the narrow side of the kernel meets a row of the weight.
        points = image if transposed else value
        return int(points.numel() * weight[0].numel())
    if name in ("mm", "bmm"):
        return int(value.numel() * args[0].shape[-1])
    if name in ("addmm", "baddbmm"):
        return int(value.numel() * args[1].shape[-1])
    if name.startswith("_scaled_dot_product"):
        query, key, values = args[:3]
        pairs = math.prod(query.shape[:-1]) * key.shape[-2]
        return int(pairs * (query.shape[-1] + values.shape[-1]))
    return 0
