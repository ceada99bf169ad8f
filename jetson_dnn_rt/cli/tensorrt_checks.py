"""`jetson-dnn-rt doctor --tensorrt`: what TensorRT needs, and a network that is built and run."""

from __future__ import annotations

from collections.abc import Iterator

from jetson_dnn_rt.backends.cuda import owners as cuda
from jetson_dnn_rt.backends.tensorrt import api as tensorrt_api
from jetson_dnn_rt.backends.tensorrt.trial import TOLERANCE, Trial, try_tensorrt
from jetson_dnn_rt.cli.checks import Check, check_gpu, check_jetson, check_module
from jetson_dnn_rt.errors import BackendUnavailableError, JetsonDnnRtError


def check_tensorrt() -> list[Check]:
    """Library, device and tools; then the trial in fp32 and fp16, where all of them are there."""
    needs = [
        _check_library(),
        _check_device(),
        check_module("onnx", "pip install onnx", required=True),
    ]
    about = [check_gpu(), check_jetson()]
    if all(check.ok for check in needs):
        return [*needs, *about, *(_check_trial(name) for name in ("fp32", "fp16"))]
    return [*needs, *about, *_skip_trials(needs)]


def _check_library() -> Check:
    try:
        module = tensorrt_api.import_tensorrt()
    except BackendUnavailableError as error:
        reason = str(error).removesuffix(f"; {tensorrt_api.FIX}")
        return Check("tensorrt", False, reason, tensorrt_api.FIX, required=True)
    typed = "strongly typed" if tensorrt_api.is_strongly_typed(module) else "BuilderFlag.FP16"
    return Check("tensorrt", True, f"{module.__version__} ({typed})", required=True)


def _check_device() -> Check:
    try:
        device = cuda.open_cuda()
    except BackendUnavailableError as error:
        reason = str(error).removesuffix(f"; {cuda.FIX}")
        return Check("cuda device", False, reason, cuda.FIX, required=True)
    device.close()
    return Check("cuda device", True, f"memory and stream by {device.owner}", required=True)


def _check_trial(precision: str) -> Check:
    name = f"trial {precision}"
    try:
        trial = try_tensorrt(precision)
    except JetsonDnnRtError as error:
        return Check(name, False, str(error), "fix what TensorRT complains of", required=True)
    return judge(trial)


def judge(trial: Trial) -> Check:
    """A trial as a check."""
    graph = "CUDA graph" if trial.cuda_graph else "no CUDA graph"
    detail = (
        f"p50 {trial.p50_ms:.3f} ms, p99 {trial.p99_ms:.3f} ms ({graph}), built in "
        f"{trial.build_ms / 1e3:.1f} s, {trial.engine_bytes / 2**20:.1f} MiB, off by "
        f"{trial.error:.1e} from {trial.reference}, allowed is {TOLERANCE[trial.precision]:.0e}"
    )
    fix = "" if trial.ok else "do not use it: report this line, with GPU, driver and version"
    return Check(f"trial {trial.precision}", trial.ok, detail, fix, required=True)


def _skip_trials(needs: list[Check]) -> Iterator[Check]:
    missing = ", ".join(check.name for check in needs if not check.ok)
    yield Check("trial", False, f"not run, missing: {missing}", required=True)
