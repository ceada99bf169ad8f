"""Layers of a graph that can be decomposed, what they then cost, and what replaces them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.lab.compress.macs import LayerCost

Ranks = tuple[int, ...]
KeepIf = Callable[[str, nn.Module, nn.Module, tuple[int, ...]], tuple[bool, str]]
"""From a layer's name, the layer, what would replace it and its input's shape: whether to, or why
not."""


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

    def cost(
        self, cost: LayerCost, inner: npt.ArrayLike, outer: npt.ArrayLike
    ) -> npt.NDArray[np.int64]:
        """Multiply-accumulates of the decomposed layer.

        Parameters
        ----------
        cost : LayerCost
            Of the layer as it is.
        inner, outer : array_like of int
            Ranks R3 and R4 per group, of one shape. A rank that equals its channels means that
            there is no 1x1 convolution on that side.
        """
        inner, outer = np.asarray(inner, np.int64), np.asarray(outer, np.int64)
        first = np.where(inner < self.inputs, self.inputs * inner, 0) * cost.positions_in
        middle = self.taps * inner * outer * cost.positions_out
        last = np.where(outer < self.outputs, self.outputs * outer, 0) * cost.positions_out
        return np.asarray(self.groups * (first + middle + last))


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
