# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TensorRT's Python API, 8.5 to 11: import, version differences, its log, its errors.

``tensorrt`` has no type annotations and is rarely installed where this code is checked. So tests
compare the fake module that they run on with the real one wherever that can be imported. Names are
from the bindings' sources (``python/src`` of NVIDIA/TensorRT at 8.5.3, 8.6.1, 10.3, 10.16 and
11.1). Differences between versions are detected on the module itself:

- ``NetworkDefinitionCreationFlag.EXPLICIT_BATCH``: needed in 8.x, without effect in 10, absent
  from 11;
- ``BuilderFlag.FP16``, ``INT8`` and ``ILayer.precision``: absent from 11, where every network is
  strongly typed.

The API by tensor names (``execute_async_v3``) exists from 8.5 on: bindings are not needed.
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import BackendUnavailableError

TENSORRT = {"tensorrt": None, "tensorrt_dla0": 0, "tensorrt_dla1": 1}
"""TensorRT on the GPU and on the DLA cores of a Jetson, which are separate devices."""

OLDEST = (8, 5)
"""JetPack 5.1; in earlier releases the tensors of an engine have no names."""

FIX = (
    "on Jetson: apt install python3-libnvinfer; else pip install tensorrt, or tensorrt==8.5.3.1 "
    "in CPython 3.10 with nvidia-cudnn-cu11<9, nvidia-cublas-cu11 and nvidia-cuda-runtime-cu11, "
    "their lib folders in LD_LIBRARY_PATH"
)


NO_GPU = "TensorRT needs an NVIDIA GPU, and this machine has none"


def has_gpu(root: Path = Path("/")) -> bool:
    """Whether there is an NVIDIA GPU, or a Jetson's, by the device files of its driver."""
    dev = root / "dev"
    return any(any(dev.glob(name)) for name in ("nvidia[0-9]*", "nvhost-*gpu", "nvgpu", "dxg"))


def import_tensorrt() -> Any:
    """Import TensorRT; `BackendUnavailableError` where it is missing, broken or too old."""
    try:
        with warnings.catch_warnings():  # wheels of one version warn about the next
            warnings.simplefilter("ignore")
            module = importlib.import_module("tensorrt")
        version = read_version(module)
    except Exception as error:  # a broken installation raises OSError, AttributeError and others
        text = f"TensorRT cannot be imported ({error})"
        raise BackendUnavailableError(f"{text}; {FIX}" if has_gpu() else NO_GPU) from error
    if version < OLDEST:
        raise BackendUnavailableError(
            f"TensorRT {module.__version__} is too old, 8.5 (JetPack 5.1) or later is needed"
        )
    return module


def read_version(module: Any) -> tuple[int, int]:
    """Major and minor number."""
    major, minor = str(module.__version__).split(".")[:2]
    return int(major), int(minor)


def is_strongly_typed(module: Any) -> bool:
    """Whether the types in the network are the types it is computed in: from 11 on."""
    return not hasattr(module.BuilderFlag, "FP16")


_MOST_LINES = 100


class LogLines:
    """Lines that TensorRT logged in some period, each once."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []


class Log:
    """TensorRT's log and its listeners.

    `logger` is the ``ILogger``: one per process, because TensorRT keeps the first it is given.
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
        """Collect lines logged meanwhile on any thread: TensorRT has threads of its own."""
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
    """Call ``Builder`` or ``Runtime``, which raise an unhelpful `TypeError` without a driver."""
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


# Messages of TensorRT 8.5 to 11, and the fix; the first match counts.
_FIXES = (
    (
        r"CUDA initialization failure with error: 35|driver version is insufficient",
        "the NVIDIA driver is missing or older than this TensorRT's CUDA: install a newer one, or "
        "the TensorRT of your JetPack",
    ),
    (
        r"CUDA initialization failure|no CUDA-capable device",
        "check the driver with nvidia-smi; in docker: --gpus all (on Jetson: --runtime nvidia)",
    ),
    (
        r"does not support this compute capability|Target GPU SM \d+ is not supported",
        "this TensorRT is not for this GPU: install another one, or use torch (`full@torch-fp16`)",
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
        "give it more memory: raise workspace_mib, stop other programs on the GPU, or cut the "
        "model into more stages",
    ),
    (
        r"No importer registered|[Uu]nsupported|UNSUPPORTED|not supported|Plugin not found",
        "TensorRT cannot run this operator: use another back end for this stage",
    ),
    (r"DLA", "the DLA supports few layers: leave dla_core out, or check which layers it refuses"),
)


def find_fix(text: str) -> str:
    """The fix for a message; empty where none is known."""
    return next((fix for pattern, fix in _FIXES if re.search(pattern, text)), "")


def explain(what: str, log: LogLines, details: tuple[str, ...] = ()) -> str:
    """Error message in one line: what failed, the model, TensorRT's own message, and the fix.

    `details` are other facts, mainly layers. 8.x logs a missing driver as a warning: warnings
    count where there is no error.
    """
    lines = [*details, *(log.errors or log.warnings[-3:])]
    text = "; ".join(" ".join(line.split()) for line in dict.fromkeys(lines)) or "no reason given"
    fix = find_fix(text)
    return f"{what}: {text}" + (f". {fix[0].upper()}{fix[1:]}" if fix else "")
