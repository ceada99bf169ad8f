# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batch norms of an ONNX graph folded into the convolutions before them.

Back ends do it themselves in fp32. Once a graph is converted to FP16 or INT8 they cannot: a
conversion stands between the two.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jetson_dnn_rt.models.sources.files import import_package

if TYPE_CHECKING:
    import onnx


def fold_norms(data: bytes) -> bytes:
    """Fold what can be folded: a norm of constants, the only reader of a convolution's output."""
    onnx = import_package("onnx", "folding batch norms")
    to_array, from_array = onnx.numpy_helper.to_array, onnx.numpy_helper.from_array
    model = onnx.load_model_from_string(data)
    graph = model.graph
    _hold_constants(graph)
    constants = {tensor.name: tensor for tensor in graph.initializer}
    convolutions = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    uses = Counter(_list_reads(graph))
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = convolutions.get(norm.input[0])
        if conv is None or uses[conv.output[0]] > 1 or len(norm.output) > 1:
            continue
        names = [*conv.input[1:], *norm.input[1:]]
        if not all(name in constants for name in names):
            continue
        weight, *bias, scale, shift, mean, variance = (to_array(constants[name]) for name in names)
        settings = {item.name: item.f for item in norm.attribute}
        factor = scale.astype(np.float64) / np.sqrt(variance + settings.get("epsilon", 1e-5))
        folded = {
            "weight": weight * factor.reshape(-1, *[1] * (weight.ndim - 1)),
            "bias": ((bias[0] if bias else 0.0) - mean) * factor + shift,
        }
        # Of its own names: another convolution may have the same weights.
        made = [f"{norm.output[0]}_{name}" for name in folded]
        for name, values in zip(made, folded.values(), strict=True):
            graph.initializer.append(from_array(values.astype(weight.dtype), name))
        conv.input[1:] = made
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)
    used = set(_list_reads(graph))
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    result: bytes = model.SerializeToString()
    return result


def _list_reads(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the values that are read: by nodes, by the graphs inside them, and as outputs."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _list_reads(inner)
    for value in graph.output:
        yield value.name


def _hold_constants(graph: onnx.GraphProto) -> None:
    """Hold the values of ``Constant`` nodes as the graph's own: some exporters write weights so.

    Quantizers find no weights in them.
    """
    kept = []
    for node in graph.node:
        attribute = node.attribute[0] if node.op_type == "Constant" else None
        if attribute is None or attribute.name != "value":
            kept.append(node)
            continue
        tensor = graph.initializer.add()
        tensor.CopyFrom(attribute.t)
        tensor.name = node.output[0]
    nodes = [copy.deepcopy(node) for node in kept]  # deleting them would take their contents
    del graph.node[:]
    graph.node.extend(nodes)
