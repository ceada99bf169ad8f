"""`jetson-dnn-rt doctor`: where the input lies on a CUDA device, and who converts frames."""

from __future__ import annotations

from jetson_dnn_rt.backends.cuda import nvrtc
from jetson_dnn_rt.backends.cuda.device import choose_memory
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.backends.cuda.input import load_kernel
from jetson_dnn_rt.cli.checks import Check
from jetson_dnn_rt.errors import BackendUnavailableError


def check_memory() -> list[Check]:
    """What ``memory: auto`` comes to, and whether the input pass runs on the device.

    Nothing without a CUDA device, which the check of the GPU says.
    """
    try:
        properties = CudaDriver().properties()
    except BackendUnavailableError:
        return []
    kind = choose_memory("auto", properties)
    sort = "integrated" if properties.integrated else "discrete"
    version = ".".join(map(str, properties.capability))
    detail = f"auto is {kind}: the GPU is {sort}, of compute capability {version}"
    checks = [Check("memory", True, detail)]
    if kind == "pageable":
        return checks
    try:
        load_kernel()
    except BackendUnavailableError as error:
        reason = f"the CPU converts the frames: {error}".removesuffix(f": {nvrtc.FIX}")
        return [*checks, Check("frames", False, reason, nvrtc.FIX)]
    return [
        *checks,
        Check("frames", True, "converted on the GPU, those of cameras in the process"),
    ]
