"""Whether TensorRT really works here: a small network, built, compared and timed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, BuiltEngine, build_engine
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.sources.files import import_onnx

if TYPE_CHECKING:
    import torch

SHAPE = (1, 3, 224, 224)
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}
"""Largest deviation of the scores, which are in [0, 1]."""

_RUNS = 200


class TrialPart:
    """Convolutions, a mean and a softmax with fixed random weights: every colour of FP16."""

    name = "trial network"
    input_shapes = (SHAPE,)
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
        onnx = import_onnx("the trial network")
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

    def torch_module(self) -> torch.nn.Module:
        """The same as torch operators."""
        import torch

        layers: list[torch.nn.Module] = []
        for kernel in self._kernels:
            layer = torch.nn.Conv2d(kernel.shape[1], kernel.shape[0], 3, 2, 1, bias=False)
            layer.weight = torch.nn.Parameter(torch.from_numpy(kernel))
            layers += [layer, torch.nn.ReLU()]
        product = torch.nn.Linear(self._matrix.shape[0], self._matrix.shape[1], bias=False)
        product.weight = torch.nn.Parameter(torch.from_numpy(self._matrix.T.copy()))
        layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), product]
        return torch.nn.Sequential(*layers, torch.nn.Softmax(1)).eval()


@dataclass(frozen=True)
class Trial:
    """What came of it."""

    precision: str
    owner: str  # of the memory: torch or cuda-python
    cuda_graph: bool  # whether it could be captured
    build_ms: float
    p50_ms: float  # of a run with its copies
    p99_ms: float
    engine_bytes: int
    error: float  # largest deviation of a score from the reference
    reference: str  # what it was compared with

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
    expected, reference = run_reference(part, image)
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
        size = len(built.engine)
        return Trial(
            precision, runner.owner, runner.cuda_graph, built.build_ms, p50, p99, size, error,
            reference,
        )  # fmt: skip
    finally:
        runner.close()


def run_reference(part: TrialPart, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], str]:
    """The scores in fp32 on the CPU, and whose they are: ONNX Runtime's or torch's."""
    try:
        import onnxruntime
    except ImportError:
        pass
    else:
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(part.onnx_model(), providers=providers)
        return session.run(None, {"image": image})[0], f"onnxruntime {onnxruntime.__version__}"
    try:
        import torch
    except ImportError as error:
        raise BackendUnavailableError(
            "nothing to compare with: pip install onnxruntime (or torch)"
        ) from error
    with torch.inference_mode():
        scores: npt.NDArray[Any] = part.torch_module()(torch.from_numpy(image)).numpy()
    return scores, f"torch {torch.__version__}"
