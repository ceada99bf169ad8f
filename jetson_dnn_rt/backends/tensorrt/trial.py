# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Trial of TensorRT on this machine: a small network is built, compared and timed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, BuiltEngine, build_engine
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner
from jetson_dnn_rt.models.sources.files import import_package

SHAPE = (1, 3, 224, 224)
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}
"""Largest deviation of the scores, which are in [0, 1]."""

_RUNS = 200


class TrialPart:
    """Convolutions, a mean and a softmax with fixed random weights: covers every FP16 colour."""

    name = "trial network"
    input_shapes = (SHAPE,)
    inner_outputs = ()
    graph_hash = "0" * 64

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._kernels = []
        channels = SHAPE[1]
        for width in (32, 64, 128, 128):
            weight = rng.standard_normal((width, channels, 3, 3)) * np.sqrt(2 / (9 * channels))
            self._kernels.append(weight.astype(np.float32))
            channels = width
        self._matrix = rng.standard_normal((channels, 10)).astype(np.float32)

    def onnx_model(self) -> bytes:
        """The network as ONNX; 10 classes."""
        onnx = import_package("onnx", "the trial network")
        from onnx import helper, numpy_helper

        tensors = [numpy_helper.from_array(self._matrix, "matrix")]
        nodes, value = [], "image"
        for index, kernel in enumerate(self._kernels):
            tensors.append(numpy_helper.from_array(kernel, f"kernel{index}"))
            names = [value, f"kernel{index}"]
            options = {"strides": [2, 2], "pads": [1, 1, 1, 1], "name": f"conv{index}"}
            nodes.append(helper.make_node("Conv", names, [f"maps{index}"], **options))
            value = f"positive{index}"
            nodes.append(helper.make_node("Relu", [f"maps{index}"], [value], name=f"relu{index}"))
        nodes += [
            helper.make_node("GlobalAveragePool", [value], ["mean"], name="mean"),
            helper.make_node("Flatten", ["mean"], ["vector"], name="flatten"),
            helper.make_node("Gemm", ["vector", "matrix"], ["logits"], name="gemm"),
            helper.make_node("Softmax", ["logits"], ["scores"], name="softmax", axis=1),
        ]
        image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, SHAPE)
        scores = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, 10))
        graph = helper.make_graph(nodes, "trial", [image], [scores], tensors)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        data: bytes = model.SerializeToString()
        return data

    def torch_module(self) -> Any:
        """Not needed for TensorRT."""
        raise NotImplementedError


@dataclass(frozen=True)
class Trial:
    """Result of the trial run."""

    precision: str
    owner: str  # owner of the memory: torch or cuda-python
    cuda_graph: bool  # whether it could be captured
    build_ms: float
    p50_ms: float  # of a run including copies
    p99_ms: float
    engine_bytes: int
    error: float  # largest deviation of a score from `run_reference`

    @property
    def ok(self) -> bool:
        """Whether the result is right."""
        return self.error <= TOLERANCE[self.precision]


def try_tensorrt(precision: str, *, module: Any = None, cuda: Any = None) -> Trial:
    """Build the network, run it, compare and time it.

    `BackendUnavailableError` or `ModelError` where it cannot be built or run, with the fix.
    """
    part = TrialPart()
    image = np.random.default_rng(1).random(SHAPE, np.float32)
    expected = run_reference(part, image)
    built: BuiltEngine = build_engine(part, precision, BuildOptions(256), module=module)
    runner = TensorRtRunner(part, precision, engine=built.engine, module=module, cuda=cuda)
    try:
        buffer = runner.allocate_input()
        buffer[:] = image
        times = []
        for _ in range(_RUNS):
            start_ns = time.perf_counter_ns()
            (scores,) = runner.to_host(runner.run([buffer]))
            times.append(time.perf_counter_ns() - start_ns)
        times.sort()
        p50, p99 = (times[math.ceil(share * (_RUNS - 1))] * 1e-6 for share in (0.5, 0.99))
        error = float(np.abs(scores - expected).max())
        size, ms = len(built.engine), built.build_ms
        return Trial(precision, runner.owner, runner.cuda_graph, ms, p50, p99, size, error)
    finally:
        runner.close()


def run_reference(part: TrialPart, image: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Compute the scores in fp32 with ONNX's reference implementation in numpy."""
    from onnx.reference import ReferenceEvaluator

    scores: npt.NDArray[Any] = ReferenceEvaluator(part.onnx_model()).run(None, {"image": image})[0]
    return scores
