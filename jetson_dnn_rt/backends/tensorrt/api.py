"""TensorRT's Python API, for 8.5 to 11: the names that are used here, its log, its errors.

``tensorrt`` has no types of its own and is rarely installed where this code is checked. So the
names that its users may use are listed, and tests hold them, and the fake module that they run on,
against the real one wherever it can be imported. Names are of the bindings' sources
(``python/src`` of NVIDIA/TensorRT at 8.5.3, 8.6.1, 10.3, 10.16 and 11.1). What differs between
versions is read off the module itself:

- ``NetworkDefinitionCreationFlag.EXPLICIT_BATCH``: needed in 8.x, without effect in 10, not in 11;
- ``BuilderFlag.FP16`` and ``ILayer.precision``: not in 11, where every network is strongly typed.

The API by names of tensors (``execute_async_v3``) is there from 8.5 on: bindings are not needed.
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jetson_dnn_rt.errors import BackendUnavailableError

TENSORRT = {"tensorrt": None, "tensorrt_dla0": 0, "tensorrt_dla1": 1}
"""TensorRT on the GPU and on the DLA cores of a Jetson, which are devices of their own."""

OLDEST = (8, 5)
"""JetPack 5.1; before it the tensors of an engine have no names."""

FIX = (
    "on Jetson: apt install python3-libnvinfer; else pip install tensorrt, or tensorrt==8.5.3.1 "
    "in CPython 3.10 with nvidia-cudnn-cu11<9, nvidia-cublas-cu11 and nvidia-cuda-runtime-cu11, "
    "their lib folders in LD_LIBRARY_PATH"
)


CLASSES = {
    "Builder": (
        "num_DLA_cores", "create_network", "create_builder_config", "build_serialized_network",
    ),
    "IBuilderConfig": (
        "default_device_type", "DLA_core", "set_flag", "clear_flag", "set_memory_pool_limit",
        "create_timing_cache", "set_timing_cache", "get_timing_cache",
    ),
    "ICudaEngine": (
        "num_io_tensors", "get_tensor_name", "get_tensor_mode", "get_tensor_shape",
        "get_tensor_dtype", "get_tensor_location", "create_execution_context",
    ),
    "IExecutionContext": ("set_tensor_address", "execute_async_v3"),
    "ILayer": ("name", "num_outputs", "precision", "get_output", "set_output_type"),
    "INetworkDefinition": ("num_layers", "num_inputs", "get_layer", "get_input"),
    "ITensor": ("name", "shape", "dtype"),
    "ITimingCache": ("serialize",),
    "OnnxParser": ("num_errors", "parse", "get_error"),
    "ParserError": ("node", "desc"),
    "Runtime": ("DLA_core", "num_DLA_cores", "deserialize_cuda_engine"),
}  # fmt: skip
"""What is used of each class."""

ENUMERATIONS = {
    "BuilderFlag": ("GPU_FALLBACK", "TF32"),
    "DeviceType": ("DLA",),
    "MemoryPoolType": ("WORKSPACE",),
    "TensorIOMode": ("INPUT", "OUTPUT"),
    "TensorLocation": ("DEVICE",),
    "DataType": ("FLOAT", "HALF", "INT32", "INT8", "BOOL"),
}
"""Members that every version has."""

ONLY_BEFORE_11 = {
    "BuilderFlag": ("FP16", "OBEY_PRECISION_CONSTRAINTS"),
    "NetworkDefinitionCreationFlag": ("EXPLICIT_BATCH",),
    "ILayer": ("precision", "set_output_type"),
}


def import_tensorrt() -> Any:
    """Import TensorRT; `BackendUnavailableError` where it is missing, broken or too old."""
    try:
        with warnings.catch_warnings():  # wheels of one version warn of the next
            warnings.simplefilter("ignore")
            module = importlib.import_module("tensorrt")
        version = read_version(module)
    except Exception as error:  # a broken installation raises OSError, AttributeError and others
        raise BackendUnavailableError(f"TensorRT cannot be imported ({error}); {FIX}") from error
    if version < OLDEST:
        raise BackendUnavailableError(
            f"TensorRT {module.__version__} is too old, needed is 8.5 (JetPack 5.1) or later"
        )
    return module


def read_version(module: Any) -> tuple[int, int]:
    """Major and minor number."""
    major, minor = str(module.__version__).split(".")[:2]
    return int(major), int(minor)


def is_strongly_typed(module: Any) -> bool:
    """Whether the types written in the network are the types it is computed in: from 11 on."""
    return not hasattr(module.BuilderFlag, "FP16")


_MOST_LINES = 100


class LogLines:
    """What TensorRT logged in a while, each line once."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []


class Log:
    """TensorRT's log, and those who listen to it.

    `logger` is the ``ILogger``: one for the process, because TensorRT keeps the first it is given.
    """

    def __init__(self, module: Any) -> None:
        self._listeners: list[LogLines] = []
        listeners, severity = self._listeners, module.ILogger.Severity
        serious = (severity.INTERNAL_ERROR, severity.ERROR)

        class Logger(module.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                module.ILogger.__init__(self)

            def log(self, severity: Any, msg: str) -> None:
                if severity not in serious and severity != module.ILogger.Severity.WARNING:
                    return
                for lines in listeners:
                    texts = lines.errors if severity in serious else lines.warnings
                    if msg not in texts and len(texts) < _MOST_LINES:
                        texts.append(msg.strip())

        self.logger: Any = Logger()

    @contextmanager
    def listen(self) -> Iterator[LogLines]:
        """Gather what is logged meanwhile, on any thread: TensorRT has threads of its own."""
        lines = LogLines()
        self._listeners.append(lines)
        try:
            yield lines
        finally:
            self._listeners.remove(lines)


@functools.cache
def log_of(module: Any) -> Log:
    """The one log of a module."""
    return Log(module)


def create_or_explain(factory: Any, logger: Any, lines: LogLines) -> Any:
    """Call ``Builder`` or ``Runtime``, which raise a `TypeError` of no use without a driver."""
    try:
        return factory(logger)
    except TypeError as error:
        raise BackendUnavailableError(explain("TensorRT cannot be used here", lines)) from error


@functools.cache
def count_dla_cores(module: Any) -> int:
    """DLA cores of this machine; 0 also where TensorRT cannot open a device."""
    try:
        return int(module.Runtime(log_of(module).logger).num_DLA_cores)
    except TypeError:
        return 0


# What TensorRT 8.5 to 11 writes, and the fix; the first that is found counts.
_FIXES = (
    (
        r"CUDA initialization failure with error: 35|driver version is insufficient",
        "the NVIDIA driver is missing or older than this TensorRT's CUDA: install a newer one, or "
        "the TensorRT of your JetPack",
    ),
    (
        r"CUDA initialization failure|no CUDA-capable device",
        "look at the driver with nvidia-smi; in docker: --gpus all (on Jetson: --runtime nvidia)",
    ),
    (
        r"version tag does not match|[Ss]erialization ?[Aa]ssertion|[Ii]ncompatible.*engine|"
        r"generated on an incompatible device|magicTag|magic tag",
        "the engine is of another TensorRT or GPU: build it again here "
        "(`jetson-dnn-rt library prune`, `jetson-dnn-rt build`)",
    ),
    (
        r"[Oo]ut ?[Oo]f ?[Mm]emory|insufficient (memory|workspace)|OutOfMemory|"
        r"[Cc]ould not find any implementation",
        "give it more memory: raise workspace_mib, end what else uses the GPU, or cut the model "
        "into more stages",
    ),
    (
        r"No importer registered|[Uu]nsupported|UNSUPPORTED|not supported|Plugin not found",
        "TensorRT cannot run this operator: take another back end for this stage",
    ),
    (r"DLA", "the DLA takes few layers: leave dla_core out, or look which layers it refuses"),
)


def find_fix(text: str) -> str:
    """What to do about a message; empty where nothing better is known than its text."""
    return next((fix for pattern, fix in _FIXES if re.search(pattern, text)), "")


def explain(what: str, log: LogLines, details: tuple[str, ...] = ()) -> str:
    """One line: what failed, with the name of the model, TensorRT's words, and the fix.

    `details` are what else is known, layers above all. 8.x logs a missing driver as a warning:
    warnings count where there is no error.
    """
    lines = [*details, *(log.errors or log.warnings[-3:])]
    text = "; ".join(" ".join(line.split()) for line in dict.fromkeys(lines)) or "no reason given"
    fix = find_fix(text)
    return f"{what}: {text}" + (f". {fix[0].upper()}{fix[1:]}" if fix else "")
