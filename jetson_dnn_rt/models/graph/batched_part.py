# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A part of a network for several images at once: the same layers, another first dimension.

Networks come with a batch of 1 written into them: exporters turn sizes into constants. So the
constants that stand for the batch are rewritten where they give the shape of an operator's output
(``Reshape``, ``Expand``, ``Resize``). A network that needs more than that, one that mixes its
images or returns a list of boxes, gives other outputs; `jetson_dnn_rt.variants.running.batching`
compares them with those of the part itself before it runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.model import Part

if TYPE_CHECKING:
    import onnx
    import torch

# Operators whose output has the shape given by one of their inputs, and the index of that input.
_SHAPE_INPUTS = {"Reshape": 1, "Expand": 1, "Resize": 3}
# Operators that read the shape of a value: values derived from them are right by themselves.
_SHAPE_READERS = ("Shape", "Size")


class BatchedPart:
    """A `Part` that takes `size` images at once, >= 2.

    `ModelError` where an input of the part has no first dimension of 1 to put the images into.
    """

    def __init__(self, part: Part, size: int) -> None:
        if size < 2:
            raise ValueError(f"size must be >= 2: {size}")
        if any(not shape or shape[0] != 1 for shape in part.input_shapes):
            raise ModelError(f"{part.name} takes {list(part.input_shapes)}: not one image each")
        self._part = part
        self.size = size
        self.name = f"{part.name} x{size}"
        self.input_shapes = tuple((size, *shape[1:]) for shape in part.input_shapes)
        self.graph_hash = part.graph_hash
        self.inner_outputs = part.inner_outputs

    def torch_module(self) -> torch.nn.Module:
        """The part's own module, or what onnx2torch makes of the rewritten file."""
        from jetson_dnn_rt.models.sources.from_onnx import convert_to_torch
        from jetson_dnn_rt.models.sources.onnx import OnnxOrigin

        if isinstance(getattr(self._part, "origin", None), OnnxOrigin):
            return convert_to_torch(self.onnx_model(), self.name)
        return self._part.torch_module()

    def onnx_model(self) -> bytes:
        """The part's ONNX model with the batch written into it; see `set_batch`."""
        return set_batch(self._part.onnx_model(), self.size)


def set_batch(data: bytes, size: int) -> bytes:
    """Rewrite a serialized ONNX model of static shapes and batch 1 for `size` images.

    The result is not checked, see the module's docstring.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    for value in (*inputs, *graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if len(dimensions) and dimensions[0].dim_value == 1:
            dimensions[0].dim_value = size
    # Shapes that the exporter recorded would contradict the new ones.
    del graph.value_info[:]
    constants = _find_constants(graph)
    # Values that hold images, whatever became of them.
    images = {value.name for value in inputs}
    for node in list(graph.node):
        if node.op_type in _SHAPE_READERS or not images & set(node.input):
            continue
        images.update(node.output)
        position = _SHAPE_INPUTS.get(node.op_type, 0)
        if position and position < len(node.input) and node.input[0] in images:
            _rewrite_shape(graph, node, position, constants, size)
    rewritten: bytes = model.SerializeToString()
    return rewritten


def _find_constants(graph: onnx.GraphProto) -> dict[str, Any]:
    """Integer constants by their names, as arrays."""
    from onnx import TensorProto, numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensors[node.output[0]] = attribute.t
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in tensors.items()
        if tensor.data_type == TensorProto.INT64 and len(tensor.dims) == 1
    }


def _rewrite_shape(
    graph: onnx.GraphProto, node: onnx.NodeProto, at: int, constants: dict[str, Any], size: int
) -> None:
    """Give a node its own shape constant that begins with `size`, where the old one says 1."""
    from onnx import numpy_helper

    shape = constants.get(node.input[at])
    if shape is None or len(shape) < 2 or shape[0] != 1:
        return
    # Its own constant: another node may read the old one for something else.
    name = f"{node.input[at]}_of_{node.output[0]}_x{size}"
    changed = shape.copy()
    changed[0] = size
    graph.initializer.append(numpy_helper.from_array(changed, name))
    node.input[at] = name
