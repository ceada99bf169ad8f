"""What AMP costs the built-in networks, against the ground truth of held-out scenes."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.accuracy import METRICS, compare_accuracy
from benchmarks.paper003_rows import Compiler
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.onnxruntime import OnnxRuntimeRunner
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.mixed_precision import convert_to_fp16
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.variants.progress import Progress, ignore_progress


def measure_amp(
    name: builtin.BuiltinName,
    part: Part,
    compiler: Compiler,
    threads: int,
    scenes: int,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Compare a built-in network in FP32 (torch) and in AMP on the same scenes.

    AMP is computed by TVM with the tuned kernels; where there are none, by ONNX Runtime on the
    same coloured graph, which gives the same rounding to FP16, and it is said.

    Parameters
    ----------
    name : str
        ``detector`` or ``segmenter``.
    part : Part
        It.
    compiler : Compiler
        With its databases.
    threads : int
        Of one run.
    scenes : int
        Held-out scenes.
    progress : callable
        Told after every scene.

    Returns
    -------
    dict
        ``fp32`` and ``amp``, mAP@0.5 or mIoU in [0, 1], and ``points_lost``, in hundredths; or
        ``note``: why not.
    """
    result: dict[str, Any] = {"metric": METRICS[name], "scenes": scenes}
    runner: Runner | None = None
    try:
        runner, result["computed_by"] = _open_amp(part, compiler, threads)
        networks = {"fp32": builtin.load(name), "amp": _RunnerModule(runner)}
        figures = compare_accuracy(
            name, networks, scenes, lambda done, total: progress("accuracy of AMP", done, total)
        )
    except Exception as error:  # TVM's errors have no class in common
        return {**result, "note": f"{type(error).__name__}: {error}"[:300]}
    finally:
        if runner is not None:
            runner.close()
    lost = 100.0 * (figures["fp32"] - figures["amp"])
    result |= {key: round(value, 5) for key, value in figures.items()}
    return {**result, "points_lost": round(lost, 3)}


def _open_amp(part: Part, compiler: Compiler, threads: int) -> tuple[Runner, str]:
    try:
        runner, state = compiler.compile_tuned(part, "fp16")
    except ModelError as error:
        mixed = _MixedPart(part, convert_to_fp16(part.onnx_model()).onnx)
        return OnnxRuntimeRunner(mixed, threads), f"onnxruntime on the graph of AMP ({error})"
    return runner, f"tvm, {state.tuned} of {state.kernels} kernels tuned"


class _RunnerModule(torch.nn.Module):
    """A runner in the place of the network, for the evaluation that calls torch."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One run; the outputs are copies."""
        outputs = self._runner.to_host(self._runner.run([image.numpy()]))
        return tuple(torch.from_numpy(array.copy()) for array in outputs)


class _MixedPart:
    """A part with its graph in mixed precision."""

    def __init__(self, part: Part, onnx: bytes) -> None:
        self._part, self._onnx = part, onnx
        self.name, self.input_shapes = f"{part.name} (AMP)", part.input_shapes
        self.graph_hash = part.graph_hash

    def torch_module(self) -> torch.nn.Module:
        return self._part.torch_module()

    def onnx_model(self) -> bytes:
        return self._onnx
