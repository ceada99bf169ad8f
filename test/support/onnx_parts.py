# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parts of networks that are ONNX alone: what back ends without torch are tested on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]


@dataclass(frozen=True)
class OnnxPart:
    """A `jetson_dnn_rt.models.model.Part`."""

    data: bytes
    input_shapes: tuple[Shape, ...]
    name: str = "test:part"
    inner_outputs: tuple[int, ...] = ()

    @property
    def graph_hash(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def onnx_model(self) -> bytes:
        return self.data

    def torch_module(self) -> Any:
        raise AssertionError("this part has no torch module")


def make_part(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, np.ndarray],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, int],
) -> OnnxPart:
    """Nodes between float inputs and outputs of the given element types."""
    graph = helper.make_graph(
        list(nodes),
        "part",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return OnnxPart(model.SerializeToString(), tuple(inputs.values()))


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    """An operator of one output, named after both."""
    return helper.make_node(kind, inputs.split(), [output], name=f"{kind}_{output}", **attributes)


def make_classifier() -> OnnxPart:
    """Every colour: convolution (fp16), ReLU (follows), mean and softmax (fp32), class number."""
    rng = np.random.default_rng(0)
    constants = {
        "weight": (rng.standard_normal((8, 3, 3, 3)) * 0.3).astype(np.float32),
        "matrix": rng.standard_normal((8, 5)).astype(np.float32),
        "bias": rng.standard_normal(5).astype(np.float32),
        "shape": np.array([1, 8], np.int64),
    }
    nodes = [
        node("Conv", "image weight", "maps", strides=[2, 2]),
        node("Relu", "maps", "positive"),
        node("GlobalAveragePool", "positive", "mean"),
        node("Reshape", "mean shape", "vector"),
        node("Gemm", "vector matrix bias", "logits"),
        node("Softmax", "logits", "scores"),
        node("ArgMax", "scores", "best", axis=1),
    ]
    outputs = {"scores": TensorProto.FLOAT, "best": TensorProto.INT64}
    return make_part(nodes, constants, {"image": (1, 3, 16, 24)}, outputs)


def make_join() -> OnnxPart:
    """Two inputs, which a stage behind a branch has."""
    nodes = [node("Relu", "left", "a"), node("Sub", "a right", "joined")]
    shapes = {"left": (1, 4, 5, 6), "right": (1, 4, 5, 6)}
    return make_part(nodes, {}, shapes, {"joined": TensorProto.FLOAT})


def make_list() -> OnnxPart:
    """An output whose length hangs on the data."""
    nodes = [node("NonZero", "image", "found")]
    return make_part(nodes, {}, {"image": (1, 3, 4, 4)}, {"found": TensorProto.INT64})


def make_exponential() -> OnnxPart:
    """A convolution into an exponential: what must not be fp16 behind what should."""
    weight = np.full((2, 3, 1, 1), 0.5, np.float32)
    nodes = [node("Conv", "image weight", "maps"), node("Exp", "maps", "out")]
    return make_part(
        nodes, {"weight": weight}, {"image": (1, 3, 4, 4)}, {"out": TensorProto.FLOAT}
    )


def make_tail() -> OnnxPart:
    """What can follow `make_exponential`."""
    nodes = [node("MaxPool", "maps", "out", kernel_shape=[2, 2], strides=[2, 2])]
    return make_part(nodes, {}, {"maps": (1, 2, 4, 4)}, {"out": TensorProto.FLOAT})
