"""Batch norms folded into the convolutions before them."""

from __future__ import annotations

import copy

import torch
from torch import fx, nn


def copy_folded(graph: fx.GraphModule) -> fx.GraphModule:
    """Copy a graph with its batch norms folded into the convolutions before them.

    Only where the convolution and the batch norm are each called once, and nothing else reads
    between them. The batch norm becomes an identity, so that all nodes keep their names.
    """
    graph = copy.deepcopy(graph).eval()
    modules = dict(graph.named_modules(remove_duplicate=False))
    calls: dict[int, int] = {}
    for node in graph.graph.nodes:
        if node.op == "call_module":
            key = id(modules[node.target])
            calls[key] = calls.get(key, 0) + 1
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
