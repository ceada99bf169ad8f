# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which operators are quantized, and what the libraries must not lose."""

from __future__ import annotations

import platform

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.lab.quantize import quantizers
from jetson_dnn_rt.lab.quantize.quantizers import find_quantizer
from jetson_dnn_rt.models.graph import quantized_part
from jetson_dnn_rt.models.graph.quantized_part import count_quantized, list_quantized

SHAPE = (1, 3, 16, 24)


def make_network(*kinds):
    """Operators in a row; each ``Conv`` is 3x3 with as many channels."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "image"
    for index, kind in enumerate(kinds):
        inputs, attributes = [value], {}
        if kind == "Conv":
            weight = rng.standard_normal((3, 3, 3, 3)).astype(np.float32) * 0.3
            weights.append(numpy_helper.from_array(weight, f"w{index}"))
            inputs.append(f"w{index}")
            attributes["pads"] = [1, 1, 1, 1]
        if kind == "Cast":
            attributes["to"] = TensorProto.FLOAT
        value = f"v{index}"
        nodes.append(helper.make_node(kind, inputs, [value], name=f"{kind}{index}", **attributes))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in ("image", value)]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make_images():
    rng = np.random.default_rng(1)
    return [rng.random(SHAPE, np.float32) for _ in range(4)]


def list_floats(data):
    """Operators, no products, whose results are not quantized."""
    nodes = onnx.load_model_from_string(data).graph.node
    rounded = {node.input[0] for node in nodes if node.op_type == "QuantizeLinear"}
    kinds = ("Sigmoid", "Relu", "Exp")
    return {n.name for n in nodes if n.op_type in kinds and n.output[0] not in rounded}


def test_what_follows_the_last_product_stays_in_fp32():
    model = make_network("Sigmoid", "Conv", "Sigmoid", "Conv", "Sigmoid", "Exp")
    assert set(quantizers._list_tail(model)) == {"Sigmoid4", "Exp5"}
    data = find_quantizer("onnxruntime").quantize(model, make_images(), ())
    assert list_quantized(onnx.load_model_from_string(data)) == ["Conv1", "Conv3"]
    assert list_floats(data) == {"Sigmoid4", "Exp5"}


def test_what_is_beside_a_layer_in_fp32_stays_in_fp32():
    model = make_network("Conv", "Sigmoid", "Relu", "Conv", "Sigmoid", "Conv", "Sigmoid")
    near = quantizers._list_neighbours
    assert near(model, ()) == []
    assert near(model, ("Conv0",)) == ["Relu2", "Sigmoid1"]
    assert near(model, ("Conv3",)) == ["Relu2", "Sigmoid1", "Sigmoid4"]
    assert near(model, ("Conv5",)) == ["Sigmoid4", "Sigmoid6"]
    data = find_quantizer("onnxruntime").quantize(model, make_images(), ("Conv3",))
    assert list_quantized(onnx.load_model_from_string(data)) == ["Conv0", "Conv5"]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_names_of_values_stay_for_cuts(backend):
    """NNCF removes a conversion without effect, and the name of what it gives with it."""
    if backend == "openvino":
        pytest.importorskip("nncf", reason="pip install -r requirements/int8.txt")
    model = make_network("Conv", "Cast", "Conv", "Identity", "Conv")
    quantizer = find_quantizer(backend)
    data = quantizer.quantize(model, make_images(), ())
    graph = onnx.load_model_from_string(data).graph
    made = {name for node in graph.node for name in node.output}
    assert {"v1", "v3", "v4"} <= made
    onnx.checker.check_model(onnx.load_model_from_string(data))
    assert count_quantized(data, "row") >= 2  # one reads through the Identity


def test_the_model_that_was_given_stays_as_it_is():
    model = make_network("Conv", "Sigmoid", "Conv")
    before = model.SerializeToString(deterministic=True)
    find_quantizer("onnxruntime").quantize(model, make_images(), ("Conv0",))
    assert model.SerializeToString(deterministic=True) == before


def test_seven_bits_where_sums_of_products_overflow(monkeypatch):
    """On x86 without VNNI; with it, and elsewhere, all eight."""
    model = make_network("Conv", "Sigmoid", "Conv")
    largest = {}
    for vnni in (True, False):
        monkeypatch.setattr(quantized_part, "has_vnni", lambda vnni=vnni: vnni)
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        data = find_quantizer("onnxruntime").quantize(model, make_images(), ())
        weights = [
            np.abs(numpy_helper.to_array(tensor).astype(int)).max()
            for tensor in onnx.load_model_from_string(data).graph.initializer
            if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 4
        ]
        largest[vnni] = max(weights)
    assert largest == {True: 127, False: 64}


@pytest.mark.parametrize(("machine", "kind"), [("x86_64", "UINT8"), ("aarch64", "INT8")])
def test_values_are_of_the_type_that_the_processor_multiplies(machine, kind, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    data = find_quantizer("onnxruntime").quantize(make_network("Conv"), make_images(), ())
    graph = onnx.load_model_from_string(data).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    zeros = {
        TensorProto.DataType.Name(constants[node.input[2]].data_type)
        for node in graph.node
        if node.op_type == "QuantizeLinear"
    }
    assert zeros == {kind}
