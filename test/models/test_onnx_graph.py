"""Graphs that onnx2torch would not take as they come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnx2torch")
onnxruntime = pytest.importorskip("onnxruntime")

import torch  # noqa: E402

from jetson_dnn_rt.models.graph.from_onnx import bypass_copies  # noqa: E402
from jetson_dnn_rt.models.sources.onnx import OnnxOrigin  # noqa: E402


def make_model() -> onnx.ModelProto:
    """Two convolutions that share their weights, the second through two copies."""
    weight = np.random.default_rng(0).random((3, 3, 1, 1), np.float32)
    nodes = [
        helper.make_node("Identity", ["weight"], ["copy"]),
        helper.make_node("Identity", ["copy"], ["again"]),
        helper.make_node("Conv", ["image", "weight"], ["middle"]),
        helper.make_node("Conv", ["middle", "again"], ["end"]),
        helper.make_node("Identity", ["end"], ["logits"]),
    ]
    shape = [1, 3, 8, 8]
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, "weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_copies_of_constants_are_bypassed_and_others_stay() -> None:
    model = bypass_copies(make_model())
    assert [node.op_type for node in model.graph.node] == ["Conv", "Conv", "Identity"]
    assert model.graph.node[1].input[:] == ["middle", "weight"]
    onnx.checker.check_model(model)


def test_what_has_nothing_to_bypass_stays_as_it_is() -> None:
    model = bypass_copies(make_model())
    before = model.SerializeToString()
    assert bypass_copies(model).SerializeToString() == before


def test_shared_weights_run_on_torch_as_on_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "shared.onnx"
    onnx.save_model(make_model(), str(path))
    image = np.random.default_rng(1).random((1, 3, 8, 8), np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"image": image})
    with torch.inference_mode():
        found = OnnxOrigin(path, None).torch_module()(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
