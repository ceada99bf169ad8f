# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Branches of an ONNX graph that return an empty list, in a form that OpenVINO reads right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jetson_dnn_rt.models.sources.files import import_package

if TYPE_CHECKING:
    import onnx

_BRANCH = "then_branch"  # every ``If`` has one


def compute_empty_lists(data: bytes) -> bytes:
    """Let branches compute the empty lists that they return, in place of a constant.

    Exported detectors end so: ``If`` there is no box to suppress, the list of those to keep is a
    constant without values. OpenVINO 2026.4 takes that for the number 0, and the first of no boxes
    is whatever is in memory: a frame without objects had a box at random, now and then NaN.
    A model without such a branch is returned as it is.
    """
    if _BRANCH.encode() not in data:
        return data
    onnx = import_package("onnx", "a network with branches")
    model = onnx.load_model_from_string(data)
    empty = [(graph, node) for graph in _find_branches(model.graph) for node in _find_empty(graph)]
    if not empty:
        return data
    for graph, node in empty:
        place, value = list(graph.node).index(node), node.attribute[0].t
        shape = f"{node.output[0]}_shape"
        sides = onnx.numpy_helper.from_array(np.array(value.dims, np.int64))
        fill = onnx.helper.make_tensor("value", value.data_type, [1], [0])
        graph.node.insert(place, onnx.helper.make_node("Constant", [], [shape], value=sides))
        node.CopyFrom(
            onnx.helper.make_node("ConstantOfShape", [shape], list(node.output), value=fill)
        )
    result: bytes = model.SerializeToString()
    return result


def _find_branches(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Find all graphs inside a graph, those inside them too."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
                yield from _find_branches(attribute.g)


def _find_empty(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Find the constants without values that a graph returns."""
    returned = {value.name for value in graph.output}
    return [
        node
        for node in graph.node
        if node.op_type == "Constant"
        and node.output[0] in returned
        and node.attribute[0].name == "value"
        and 0 in node.attribute[0].t.dims
    ]
