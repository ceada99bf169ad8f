"""TensorRT's Python API, for 8.5 to 11: the names that are used here, its log, its errors.

``tensorrt`` has no types of its own and is rarely installed where this code is checked; so its
users are typed against these protocols, and a test holds them against the real module wherever
one can be imported. Names are of the bindings' sources (``python/src`` of NVIDIA/TensorRT at
8.5.3, 8.6.1, 10.3, 10.16 and 11.1). What differs between versions is read off the module itself:

- ``NetworkDefinitionCreationFlag.EXPLICIT_BATCH``: needed in 8.x, without effect in 10, not in 11;
- ``BuilderFlag.FP16`` and ``Layer.precision``: not in 11, where every network is strongly typed.

The API by names of tensors (``execute_async_v3``) is there from 8.5 on: bindings are not needed.
"""

# ruff: noqa: D101, D102 - classes and methods are documented by NVIDIA
from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

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


class Tensor(Protocol):
    name: str
    shape: Sequence[int]
    dtype: Any


class Layer(Protocol):  # what is assigned to is gone in 11
    name: str
    num_outputs: int
    precision: Any

    def get_output(self, index: int) -> Tensor: ...
    def set_output_type(self, index: int, dtype: Any) -> None: ...


class Network(Protocol):
    num_layers: int
    num_inputs: int
    num_outputs: int

    def get_layer(self, index: int) -> Layer: ...
    def get_input(self, index: int) -> Tensor: ...
    def get_output(self, index: int) -> Tensor: ...


class TimingCache(Protocol):
    def serialize(self) -> Any: ...


class BuilderConfig(Protocol):
    default_device_type: Any
    DLA_core: int

    def set_flag(self, flag: Any) -> None: ...
    def clear_flag(self, flag: Any) -> None: ...
    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None: ...
    def create_timing_cache(self, serialized_timing_cache: bytes) -> TimingCache: ...
    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool: ...
    def get_timing_cache(self) -> TimingCache: ...


class Builder(Protocol):
    num_DLA_cores: int  # noqa: N815 - TensorRT's name

    def create_network(self, flags: int) -> Network: ...
    def create_builder_config(self) -> BuilderConfig: ...
    def build_serialized_network(self, network: Network, config: BuilderConfig) -> Any: ...


class ParserError(Protocol):
    def node(self) -> int: ...
    def desc(self) -> str: ...


class OnnxParser(Protocol):
    num_errors: int

    def parse(self, model: bytes) -> bool: ...
    def get_error(self, index: int) -> ParserError: ...


class ExecutionContext(Protocol):
    def set_tensor_address(self, name: str, memory: int) -> bool: ...
    def execute_async_v3(self, stream_handle: int) -> bool: ...


class Engine(Protocol):
    num_io_tensors: int

    def get_tensor_name(self, index: int) -> str: ...
    def get_tensor_mode(self, name: str) -> Any: ...
    def get_tensor_shape(self, name: str) -> Sequence[int]: ...
    def get_tensor_dtype(self, name: str) -> Any: ...
    def get_tensor_location(self, name: str) -> Any: ...
    def create_execution_context(self) -> ExecutionContext | None: ...


class Runtime(Protocol):
    DLA_core: int
    num_DLA_cores: int  # noqa: N815

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Engine | None: ...


CLASSES: dict[str, type] = {
    "Builder": Builder,
    "IBuilderConfig": BuilderConfig,
    "ICudaEngine": Engine,
    "IExecutionContext": ExecutionContext,
    "ILayer": Layer,
    "INetworkDefinition": Network,
    "ITensor": Tensor,
    "ITimingCache": TimingCache,
    "OnnxParser": OnnxParser,
    "ParserError": ParserError,
    "Runtime": Runtime,
}
"""Classes of the module and the protocol that says what is used of each."""

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
