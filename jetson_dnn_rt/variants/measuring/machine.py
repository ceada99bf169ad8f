# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The machine that a variant was built for and measured on."""

from __future__ import annotations

import functools
import os

from jetson_dnn_rt.backends.registry import (
    BACKENDS,
    PLUG_INS,
    TENSORRT,
    inspect_backend,
    load_backend,
)
from jetson_dnn_rt.platforms.machine import describe_cpu, describe_gpu, hash_cpu_features
from jetson_dnn_rt.variants.library.entry import EntryKey


def describe_device(device: str) -> str:
    """Name of ``cpu`` or ``cuda`` on this machine, as keys of the library have it."""
    return describe_gpu() if device == "cuda" else describe_cpu()


def describe_cores() -> str:
    """Features and number of the cores that this process may use: times depend on both."""
    return f"{hash_cpu_features()}x{len(os.sched_getaffinity(0))}"


def device_of(backend: str) -> str:
    """``cpu`` or ``cuda``: where a back end runs here."""
    if backend == "torch":
        from jetson_dnn_rt.backends.torch import choose_device

        return choose_device()
    if backend in PLUG_INS:
        device: str = load_backend(backend).find_device()
        return device
    return "cuda" if backend in TENSORRT else "cpu"


def find_stale(key: EntryKey) -> str:
    """Why an entry is of no use on this machine as it is; empty where it may be of use.

    One of a back end that is not installed here may be of use to another installation. Only the
    back ends that occur are imported, each once.
    """
    version = _find_version(key.backend)
    if version and version != key.backend_version:
        return f"made by {key.backend} {key.backend_version}, here is {version}"
    if key.device and key.device not in (describe_cpu(), describe_gpu()):
        return f"made for {key.device}, which is not here"
    return ""


@functools.cache
def _find_version(backend: str) -> str:
    if backend == "onnx":  # exported by torch
        version = inspect_backend("torch").version
        return f"torch {version}" if version else ""
    return inspect_backend(backend).version if backend in BACKENDS else ""
