"""Which back ends there are, and runners made by their names."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from jetson_dnn_rt import __version__
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.plugins import collect

PRECISIONS = ("fp32", "fp16", "bf16", "int8")


@dataclass(frozen=True)
class BackendInfo:
    """What there is to say of a back end on this machine.

    Attributes
    ----------
    name, version : str
        The back end and its library's version; empty where it is missing.
    available : bool
        Whether runners can be made.
    precisions : tuple of str
        What it computes in here.
    reason, fix : str
        Why something is not to be had, and what to do; empty where all is well.
    """

    name: str
    version: str
    available: bool
    precisions: tuple[str, ...]
    reason: str
    fix: str


_FIXES = {
    "openvino": "pip install openvino",
    "onnxruntime": "pip install onnxruntime",
    "torch": "pip install torch torchvision (on Jetson: NVIDIA's wheel for your JetPack)",
}
_NO_BF16 = "no bf16: the CPU has neither AVX512_BF16 nor AMX"

TENSORRT = {"tensorrt": None, "tensorrt_dla0": 0, "tensorrt_dla1": 1}
"""TensorRT on the GPU and on the DLA cores of a Jetson, which are devices of their own."""

PLUG_INS = tuple(collect("BACKENDS"))
"""Back ends of plug-ins, see `jetson_dnn_rt.plugins`."""

BUILT_BEFOREHAND = (*TENSORRT, *PLUG_INS)
"""They need minutes to make a network ready: the library keeps the result."""

BACKENDS = ("openvino", "onnxruntime", "torch", *TENSORRT, *PLUG_INS, "null")


def list_backends() -> list[BackendInfo]:
    """Look at every back end; imports those that are installed. DLA cores only where they are."""
    infos = [inspect_backend(name) for name in BACKENDS]
    return [info for info in infos if info.available or TENSORRT.get(info.name) is None]


def inspect_backend(name: str) -> BackendInfo:
    """Look at one back end."""
    if name == "null":
        return BackendInfo(name, __version__, True, ("fp32",), "", "")
    if name in TENSORRT:
        return _inspect_tensorrt(name)
    if name in PLUG_INS:
        info: BackendInfo = load_plug_in(name).inspect()
        return info
    try:
        library = importlib.import_module(name)
    except Exception as error:  # a broken installation raises OSError, RuntimeError and others
        return BackendInfo(name, "", False, (), f"cannot be imported: {error}", _FIXES[name])
    version = str(getattr(library, "__version__", "unknown")).split("-")[0]
    precisions: tuple[str, ...] = ("fp32",)
    reason = ""
    if name == "torch":
        from jetson_dnn_rt.backends import torch as torch_backend

        device = torch_backend.choose_device()
        precisions = torch_backend.PRECISIONS[device]
        if device == "cpu" and not torch_backend.supports_bf16():
            precisions, reason = ("fp32",), _NO_BF16
    elif name == "openvino":
        from jetson_dnn_rt.backends import openvino as openvino_backend

        if openvino_backend.supports_bf16():
            precisions = ("fp32", "bf16")
        else:
            reason = _NO_BF16
    return BackendInfo(name, version, True, precisions, reason, "")


def _inspect_tensorrt(name: str) -> BackendInfo:
    """TensorRT is of use with a device, and with somebody to own memory on it."""
    from jetson_dnn_rt.backends.cuda import owners as cuda
    from jetson_dnn_rt.backends.tensorrt import api as tensorrt_api
    from jetson_dnn_rt.backends.tensorrt import build as tensorrt_build

    try:
        module = tensorrt_api.import_tensorrt()
        version = str(module.__version__)
    except BackendUnavailableError as error:
        reason, fix = str(error), tensorrt_api.FIX
    else:
        try:
            cuda.open_cuda().close()
        except BackendUnavailableError as error:
            reason, fix = f"TensorRT {version} is installed, {error}", cuda.FIX
        else:
            core = TENSORRT[name]
            if core is None:
                return BackendInfo(name, version, True, tensorrt_build.PRECISIONS, "", "")
            cores = tensorrt_api.count_dla_cores(module)
            if core < cores:
                return BackendInfo(name, version, True, ("fp16",), "", "")
            reason, fix = f"this machine has {cores} DLA cores", "use tensorrt, on the GPU"
    return BackendInfo(name, "", False, (), reason.removesuffix(f"; {fix}"), fix)


def load_plug_in(name: str) -> ModuleType:
    """Import the module of a back end of a plug-in."""
    return importlib.import_module(collect("BACKENDS")[name])


def is_installed(name: str) -> bool:
    """Whether a back end's library is there, without importing it."""
    library = "tensorrt" if name in TENSORRT else name
    return name == "null" or importlib.util.find_spec(library) is not None


def require_backend(backend: str, precision: str) -> BackendInfo:
    """Look at a back end that must be there and compute in a precision.

    Raises
    ------
    BackendUnavailableError
        When it is missing here, with the fix, or does not compute in that precision.
    """
    info = inspect_backend(backend)
    if not info.available:
        raise BackendUnavailableError(f"back end {backend}: {info.reason}; {info.fix}")
    if precision not in info.precisions:
        raise BackendUnavailableError(
            f"back end {backend} computes in {', '.join(info.precisions)} on this machine, not in "
            f"{precision}" + (f" ({info.reason})" if info.reason else "")
        )
    return info


def create_runner(
    part: Part, backend: str, precision: str, *, threads: int, clock: Clock | None = None
) -> Runner:
    """Make a network ready to run.

    Parameters
    ----------
    part : Part
        The network (`Model.part`), or a run of its stages.
    backend, precision : str
        As in a variant's name, ``openvino`` and ``bf16`` of ``full@openvino-bf16``.
    threads : int
        Threads of one run, >= 1.
    clock : Clock, optional
        What the null back end waits on; the steady clock by default.

    Raises
    ------
    ConfigurationError
        When the back end or the precision is unknown.
    BackendUnavailableError
        When it is missing here, with the fix, or does not compute in that precision;
        Of a plug-in always: its tuned kernels are in a library (`variants.running.engines`).
    ModelError
        When the back end cannot run the network.
    """
    if backend not in BACKENDS:
        raise ConfigurationError(f"back end {backend!r} is unknown, known are {BACKENDS}")
    if precision not in PRECISIONS:
        raise ConfigurationError(f"precision {precision!r} is unknown, known are {PRECISIONS}")
    if threads < 1:
        raise ConfigurationError(f"threads must be >= 1: {threads}")
    require_backend(backend, precision)
    if backend in PLUG_INS:
        raise BackendUnavailableError(
            f"{part.name} is not tuned for {backend}-{precision}: untuned kernels are many times "
            "slower and are never run; run jetson-dnn-rt build, which keeps its work in the "
            "library"
        )
    return _CREATORS[backend](part, precision, threads, clock or SteadyClock())


def _create_null(part: Part, precision: str, threads: int, clock: Clock) -> Runner:
    from jetson_dnn_rt.backends.null import NullRunner

    return NullRunner(part, clock)


def _create_onnxruntime(part: Part, precision: str, threads: int, clock: Clock) -> Runner:
    from jetson_dnn_rt.backends.onnxruntime import OnnxRuntimeRunner

    return OnnxRuntimeRunner(part, threads)


def _create_openvino(part: Part, precision: str, threads: int, clock: Clock) -> Runner:
    from jetson_dnn_rt.backends.openvino import OpenVinoRunner

    return OpenVinoRunner(part, precision, threads)


def _create_torch(part: Part, precision: str, threads: int, clock: Clock) -> Runner:
    from jetson_dnn_rt.backends.torch import TorchRunner, choose_device

    if choose_device() == "cuda":
        from jetson_dnn_rt.backends.torch import TorchCudaRunner

        return TorchCudaRunner(part, precision)
    return TorchRunner(part, precision, threads)


def _create_tensorrt(part: Part, precision: str, threads: int, clock: Clock) -> Runner:
    from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner

    return TensorRtRunner(part, precision)


def _create_on_dla(core: int) -> Callable[[Part, str, int, Clock], Runner]:
    def create(part: Part, precision: str, threads: int, clock: Clock) -> Runner:
        from jetson_dnn_rt.backends.tensorrt.build import BuildOptions
        from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner

        return TensorRtRunner(part, precision, options=BuildOptions(dla_core=core))

    return create


_CREATORS: dict[str, Callable[[Part, str, int, Clock], Runner]] = {
    "null": _create_null,
    "onnxruntime": _create_onnxruntime,
    "openvino": _create_openvino,
    "tensorrt": _create_tensorrt,
    "tensorrt_dla0": _create_on_dla(0),
    "tensorrt_dla1": _create_on_dla(1),
    "torch": _create_torch,
}
