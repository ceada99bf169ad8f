"""The names of TensorRT's Python API that are used here, for TensorRT 8.5 to 11.

``tensorrt`` has no types of its own and is rarely at hand where this code is checked; so its
users are typed against these protocols, and a test holds them against the real module wherever
one can be imported. Names are of the bindings' sources (``python/src`` of NVIDIA/TensorRT at
8.5.3, 8.6.1, 10.3, 10.16 and 11.1). What differs between versions is asked of the module itself:

- ``NetworkDefinitionCreationFlag.EXPLICIT_BATCH``: needed in 8.x, without effect in 10, not in 11;
- ``BuilderFlag.FP16`` and ``Layer.precision``: not in 11, where every network is strongly typed.

The API by names of tensors (``execute_async_v3``) is there from 8.5 on: bindings are not needed.
"""

# ruff: noqa: D102 - the methods are documented by NVIDIA
from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from jetson_dnn_rt.errors import BackendUnavailableError

OLDEST = (8, 5)
"""JetPack 5.1; before it the tensors of an engine have no names."""

FIX = (
    "on Jetson: apt install python3-libnvinfer; else pip install tensorrt, or tensorrt==8.5.3.1 "
    "in CPython 3.10 with nvidia-cudnn-cu11<9, nvidia-cublas-cu11 and nvidia-cuda-runtime-cu11, "
    "their lib folders in LD_LIBRARY_PATH"
)


class Tensor(Protocol):
    """``ITensor``."""

    name: str
    shape: Sequence[int]
    dtype: Any


class Layer(Protocol):
    """``ILayer``; what is assigned to is gone in 11."""

    name: str
    num_outputs: int
    precision: Any

    def get_output(self, index: int) -> Tensor: ...
    def set_output_type(self, index: int, dtype: Any) -> None: ...


class Network(Protocol):
    """``INetworkDefinition``."""

    num_layers: int
    num_inputs: int
    num_outputs: int

    def get_layer(self, index: int) -> Layer: ...
    def get_input(self, index: int) -> Tensor: ...
    def get_output(self, index: int) -> Tensor: ...


class TimingCache(Protocol):
    """``ITimingCache``."""

    def serialize(self) -> Any: ...


class BuilderConfig(Protocol):
    """``IBuilderConfig``."""

    default_device_type: Any
    DLA_core: int

    def set_flag(self, flag: Any) -> None: ...
    def clear_flag(self, flag: Any) -> None: ...
    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None: ...
    def create_timing_cache(self, serialized_timing_cache: bytes) -> TimingCache: ...
    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool: ...
    def get_timing_cache(self) -> TimingCache: ...


class Builder(Protocol):
    """``Builder``."""

    num_DLA_cores: int  # noqa: N815 - TensorRT's name

    def create_network(self, flags: int) -> Network: ...
    def create_builder_config(self) -> BuilderConfig: ...
    def build_serialized_network(self, network: Network, config: BuilderConfig) -> Any: ...


class ParserError(Protocol):
    """``ParserError``."""

    def node(self) -> int: ...
    def desc(self) -> str: ...


class OnnxParser(Protocol):
    """``OnnxParser``."""

    num_errors: int

    def parse(self, model: bytes) -> bool: ...
    def get_error(self, index: int) -> ParserError: ...


class ExecutionContext(Protocol):
    """``IExecutionContext``."""

    def set_tensor_address(self, name: str, memory: int) -> bool: ...
    def execute_async_v3(self, stream_handle: int) -> bool: ...


class Engine(Protocol):
    """``ICudaEngine``."""

    num_io_tensors: int

    def get_tensor_name(self, index: int) -> str: ...
    def get_tensor_mode(self, name: str) -> Any: ...
    def get_tensor_shape(self, name: str) -> Sequence[int]: ...
    def get_tensor_dtype(self, name: str) -> Any: ...
    def get_tensor_location(self, name: str) -> Any: ...
    def create_execution_context(self) -> ExecutionContext | None: ...


class Runtime(Protocol):
    """``Runtime``."""

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
    """Import TensorRT.

    Raises
    ------
    BackendUnavailableError
        When it is missing, broken or too old, with the fix.
    """
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


_MOST_MESSAGES = 100


class Heard:
    """What TensorRT said in a while, each line once.

    Attributes
    ----------
    errors, warnings : list of str
        By severity.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []


class Messages:
    """TensorRT's messages, told to whoever listens.

    Attributes
    ----------
    logger : object
        The ``ILogger``: one for the process, because TensorRT keeps the first it is given.
    """

    def __init__(self, module: Any) -> None:
        self._listeners: list[Heard] = []
        listeners, severity = self._listeners, module.ILogger.Severity
        serious = (severity.INTERNAL_ERROR, severity.ERROR)

        class Logger(module.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                module.ILogger.__init__(self)

            def log(self, severity: Any, msg: str) -> None:
                if severity not in serious and severity != module.ILogger.Severity.WARNING:
                    return
                for heard in listeners:
                    texts = heard.errors if severity in serious else heard.warnings
                    if msg not in texts and len(texts) < _MOST_MESSAGES:
                        texts.append(msg.strip())

        self.logger: Any = Logger()

    @contextmanager
    def listen(self) -> Iterator[Heard]:
        """Gather what is said meanwhile, on any thread: TensorRT speaks on its own, too."""
        heard = Heard()
        self._listeners.append(heard)
        try:
            yield heard
        finally:
            self._listeners.remove(heard)


@functools.cache
def count_dla_cores(module: Any) -> int:
    """DLA cores of this machine; 0 also where TensorRT cannot open a device."""
    try:
        return int(module.Runtime(messages_of(module).logger).num_DLA_cores)
    except TypeError:
        return 0


@functools.cache
def messages_of(module: Any) -> Messages:
    """The one logger of a module."""
    return Messages(module)
