# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Registry of back ends: look them up by name and make runners.

A new back end is one module with ``inspect(name) -> BackendInfo`` and ``create(part, name,
precision, threads, clock) -> Runner``, its name in `BACKENDS` and one test; plug-ins register
theirs in `jetson_dnn_rt.plugins`.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from jetson_dnn_rt.backends.base import BackendInfo, CompiledStore, Runner
from jetson_dnn_rt.backends.tensorrt.api import TENSORRT as TENSORRT
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.plugins import collect

PRECISIONS = ("fp32", "fp16", "bf16", "int8")

PLUG_INS = tuple(collect("BACKENDS"))
"""Back ends of plug-ins, see `jetson_dnn_rt.plugins`."""

BUILT_BEFOREHAND = (*TENSORRT, *PLUG_INS)
"""Back ends that need minutes to prepare a network: the library stores the result."""

ON_ANY_CPU = ("openvino", "onnxruntime", "torch")
"""Back ends that run in fp32 on every machine."""

KEEPS_COMPILED = ("openvino", "onnxruntime")
"""Back ends that can store what they compile, and load that faster than they compile it."""

BACKENDS = (*ON_ANY_CPU, *TENSORRT, *PLUG_INS, "null")


def load_backend(name: str) -> ModuleType:
    """Import the module of a back end."""
    if name in PLUG_INS:
        return importlib.import_module(collect("BACKENDS")[name])
    module = "tensorrt.runner" if name in TENSORRT else name
    return importlib.import_module(f"jetson_dnn_rt.backends.{module}")


def list_backends() -> list[BackendInfo]:
    """Inspect every back end, importing those installed; DLA cores only where present."""
    infos = [inspect_backend(name) for name in BACKENDS]
    return [info for info in infos if info.available or TENSORRT.get(info.name) is None]


def inspect_backend(name: str) -> BackendInfo:
    """Inspect one back end."""
    info: BackendInfo = load_backend(name).inspect(name)
    return info


def is_installed(name: str) -> bool:
    """Whether a back end's library is installed, without importing it."""
    library = "tensorrt" if name in TENSORRT else name
    return name == "null" or importlib.util.find_spec(library) is not None


def require_backend(backend: str, precision: str) -> BackendInfo:
    """Inspect a back end that must be available and support a precision.

    `BackendUnavailableError` where it is missing, with the fix, or lacks that precision.
    """
    info = inspect_backend(backend)
    if not info.available:
        others = [name for name in ON_ANY_CPU if name != backend and is_installed(name)]
        use = f"use full@{others[0]}-fp32" if others else ""
        raise BackendUnavailableError(
            "; ".join(filter(None, (f"back end {backend}: {info.reason}", info.fix, use)))
        )
    if precision not in info.precisions:
        raise BackendUnavailableError(
            f"back end {backend} computes in {', '.join(info.precisions)} on this machine, not in "
            f"{precision}{f' ({info.reason})' if info.reason else ''}; use "
            f"{backend}-{info.precisions[0]}, as in full@{backend}-{info.precisions[0]}"
        )
    return info


def create_runner(
    part: Part,
    backend: str,
    precision: str,
    *,
    threads: int,
    clock: Clock | None = None,
    compiled: CompiledStore | None = None,
) -> Runner:
    """Make a network, or a run of its stages, ready to run.

    `backend` and `precision` are parts of a variant's name: ``openvino`` and ``bf16`` of
    ``full@openvino-bf16``. One run uses `threads`, >= 1. The null back end waits on `clock`, by
    default the steady one. One of `KEEPS_COMPILED` finds what it compiled before in `compiled`,
    and else stores it there.

    Raises
    ------
    ConfigurationError
        When the back end or the precision is unknown.
    BackendUnavailableError
        When it is missing, with the fix, or does not compute in that precision. Always for a
        plug-in: its tuned kernels are in a library (`variants.running.engines`).
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
            "slower and are never run; run jetson-dnn-rt build, which stores its work in the "
            "library"
        )
    clock = clock or SteadyClock()
    kept = {"compiled": compiled} if backend in KEEPS_COMPILED else {}
    runner: Runner = load_backend(backend).create(part, backend, precision, threads, clock, **kept)
    return runner
