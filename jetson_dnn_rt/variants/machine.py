"""What a variant was built for and measured on."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from jetson_dnn_rt import __version__
from jetson_dnn_rt.backends.registry import BACKENDS, TENSORRT, inspect_backend
from jetson_dnn_rt.variants.library_entry import EntryKey

_PACKAGES = ("numpy", "torch", "onnxruntime", "openvino", "tensorrt")
_CAPABILITY = (75, 76)
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


def describe_cpu(root: Path = Path("/")) -> str:
    """Model of the CPU; on ARM boards, where Linux does not know it, of the board.

    Parameters
    ----------
    root : Path
        Where ``proc`` is.
    """
    for line in (root / "proc/cpuinfo").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware") and value.strip():
            return value.strip()
    try:
        board = (root / "proc/device-tree/model").read_text(errors="replace").strip("\0 \n")
    except OSError:
        board = ""
    return f"{board} {platform.machine()}".strip()


@functools.cache
def describe_gpu() -> str:
    """Name and compute capability of the first GPU, ``NVIDIA H200, 9.0``; empty without one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return ""
    capability = [ctypes.c_int(), ctypes.c_int()]
    for value, attribute in zip(capability, _CAPABILITY, strict=True):
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return ""
    if cuda.cuDeviceGetName(name, len(name), device):
        return ""
    return f"{name.value.decode(errors='replace')}, {capability[0].value}.{capability[1].value}"


def describe_device(device: str) -> str:
    """Name of ``cpu`` or ``cuda`` on this machine, as keys of the library have it."""
    return describe_gpu() if device == "cuda" else describe_cpu()


def device_of(backend: str) -> str:
    """``cpu`` or ``cuda``: where a back end runs here."""
    if backend == "torch":
        from jetson_dnn_rt.backends.torch import choose_device

        return choose_device()
    return "cuda" if backend in TENSORRT else "cpu"


def describe_machine() -> dict[str, Any]:
    """Devices, system and versions, for those who read a measurement elsewhere."""
    versions = {"jetson_dnn_rt": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": describe_cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": describe_gpu(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
    }


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
