# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX graphs as torch operators, by onnx2torch, with the fixes that it needs before and after."""

from __future__ import annotations

import re
import warnings
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.fx import GraphModule, Node

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.files import import_package

if TYPE_CHECKING:
    import onnx

_UNUSUAL = re.compile(r"[^\w./:+-]")


def convert_to_torch(data: bytes, name: str) -> torch.nn.Module:
    """Make torch operators of a serialized ONNX model.

    `BackendUnavailableError` where onnx2torch is missing, `ModelError` with the `name` of the
    network where it does not know an operator.
    """
    onnx = import_package("onnx", "an ONNX file")
    onnx2torch = import_package("onnx2torch", "an ONNX file on the torch back end")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = clean_names(bypass_copies(onnx.load_model_from_string(data)))
            module = onnx2torch.convert(model)
    except (KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            f"{name} cannot be read by onnx2torch ({error}): it runs whole on onnxruntime and "
            "openvino, also in int8, but not on torch, and can be neither cut nor decomposed"
        ) from error
    return fix_slices(module).eval()


def clean_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Leave letters, digits and what joins them in the names of nodes; changes the model.

    They become names of modules, which torch.fx writes into the source text that it runs as
    ``getattr(self, "NAME")``, quotation marks and all: a name could be a program.
    """
    for node in model.graph.node:
        node.name = _UNUSUAL.sub("_", node.name)
    return model


def bypass_copies(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give nodes the constants that they read from other nodes; changes the model.

    Exporters keep one of several equal weights and pass it on by ``Identity``, or, as Paddle's,
    make all weights ``Constant`` nodes; onnx2torch wants the weights of a convolution to be
    initializers.
    """
    graph = model.graph
    outputs = {output.name for output in graph.output}
    origin = {constant.name: constant.name for constant in graph.initializer}
    kept = []
    for node in graph.node:
        value = next((a for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None and not outputs & {*node.output}:
            graph.initializer.add().CopyFrom(value.t)
            graph.initializer[-1].name = origin[node.output[0]] = node.output[0]
            continue
        if node.op_type == "Identity" and node.input[0] in origin and not outputs & {*node.output}:
            origin[node.output[0]] = origin[node.input[0]]
            continue
        for index, name in enumerate(node.input):
            node.input[index] = origin.get(name, name)
        kept.append(node)
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)
    return model


class Slice(torch.nn.Module):
    """ONNX ``Slice`` whose bounds are constants.

    onnx2torch computes the bounds from tensors in every run, on CUDA with a wait for each, and
    indexes with a list, which torch no longer treats like a tuple.
    """

    def __init__(self, slices: dict[int, slice]) -> None:
        super().__init__()
        self._slices = slices

    def forward(self, tensor: torch.Tensor, *bounds: torch.Tensor) -> torch.Tensor:
        """Cut `tensor`."""
        index = [slice(None)] * tensor.ndim
        for axis, part in self._slices.items():
            index[axis] = part
        return tensor[tuple(index)]


def fix_slices(module: torch.nn.Module) -> torch.nn.Module:
    """Replace slices with constant bounds; others stay as onnx2torch made them."""
    if not isinstance(module, GraphModule):
        return module
    for node in module.graph.nodes:
        if node.op != "call_module":
            continue
        if type(module.get_submodule(node.target)).__name__ != "OnnxSlice":
            continue
        bounds = [_find_constant(module, argument) for argument in node.args[1:]]
        if any(bound is None for bound in bounds):
            continue
        slices = _make_slices(cast("list[list[int]]", bounds))
        if slices is not None:
            name = node.target.replace(".", "_") + "_constant"
            module.add_submodule(name, Slice(slices))
            node.target = name
            node.args = node.args[:1]
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def _find_constant(module: GraphModule, argument: Any) -> list[int] | None:
    if not isinstance(argument, Node) or argument.op not in ("get_attr", "call_module"):
        return None
    value = attrgetter(str(argument.target))(module)
    if argument.op == "call_module":
        if type(value).__name__ != "OnnxConstant":
            return None
        value = value.value
    return [int(number) for number in value.reshape(-1).tolist()]


def _make_slices(bounds: list[list[int]]) -> dict[int, slice] | None:
    starts, ends = bounds[:2]
    axes = bounds[2] if len(bounds) > 2 else list(range(len(starts)))
    steps = bounds[3] if len(bounds) > 3 else [1] * len(starts)
    if min(steps, default=1) < 1:
        return None  # backwards: torch has no such slices
    return {
        axis: slice(start, end, step)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }
