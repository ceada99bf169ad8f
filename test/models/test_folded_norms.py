# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batch norms folded into convolutions: the same outputs, and what cannot be folded stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.models.graph.folded_norms import fold_norms
from jetson_dnn_rt.models.sources.torch import run_onnx

SHAPE = (1, 3, 8, 8)


def make(*, bias=True, second_reader=False, computed_scale=False, channels=4):
    """A convolution and its norm of random constants."""
    rng = np.random.default_rng(0)
    values = {"w": rng.normal(size=(channels, 3, 3, 3))}
    values |= {name: rng.normal(size=channels) for name in ("b", "scale", "shift", "mean")}
    values["variance"] = rng.uniform(0.5, 2.0, channels)
    weights = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in values.items()]
    inputs = ["image", "w", "b"] if bias else ["image", "w"]
    nodes = [helper.make_node("Conv", inputs, ["c"], pads=[1, 1, 1, 1])]
    scale = "scale"
    if computed_scale:
        nodes.append(helper.make_node("Abs", ["scale"], ["positive"]))
        scale = "positive"
    norm = ["c", scale, "shift", "mean", "variance"]
    nodes.append(helper.make_node("BatchNormalization", norm, ["n"], epsilon=1e-3))
    if second_reader:
        nodes.append(helper.make_node("Add", ["n", "c"], ["sum"]))
    result = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, (1, channels, 8, 8))],
        weights,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


def kinds(data):
    return [node.op_type for node in onnx.load_model_from_string(data).graph.node]


def assert_same(data, folded, shape=SHAPE):
    onnx.checker.check_model(onnx.load_model_from_string(folded))
    image = np.random.default_rng(1).random(shape, np.float32)
    expected, found = (run_onnx(model, [image], "it") for model in (data, folded))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_norm_goes_into_its_convolution(bias):
    data = make(bias=bias)
    folded = fold_norms(data)
    assert kinds(folded) == ["Conv"]
    assert len(onnx.load_model_from_string(folded).graph.initializer) == 2
    assert_same(data, folded)
    assert fold_norms(folded) == folded


def test_weights_that_are_nodes_are_folded_too():
    """As PaddlePaddle's exporter writes them."""
    model = onnx.load_model_from_string(make())
    nodes = [
        helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in model.graph.initializer
    ]
    nodes += model.graph.node
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    data = model.SerializeToString()
    folded = fold_norms(data)
    assert kinds(folded) == ["Conv"]
    assert_same(data, folded)


@pytest.mark.parametrize("reason", ["second_reader", "computed_scale"])
def test_what_cannot_be_folded_stays(reason):
    data = make(**{reason: True})
    folded = fold_norms(data)
    assert kinds(folded) == kinds(data)
    assert_same(data, folded)


@pytest.mark.parametrize("name", builtin.NAMES)
def test_built_in_networks_keep_no_norm(name):
    data = builtin.read(name)
    folded = fold_norms(data)
    assert "BatchNormalization" in kinds(data)
    assert "BatchNormalization" not in kinds(folded)
    assert_same(data, folded, (1, 3, *builtin.INPUT_SIZE[name]))
