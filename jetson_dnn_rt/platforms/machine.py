# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Description of the machine that a figure was measured on."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from jetson_dnn_rt import __version__

_PACKAGES = (
    *("numpy", "torch", "onnxruntime", "openvino", "tensorrt", "pyarrow"),
    *("apache-tvm", "opencv-python-headless", "ros-rclpy", "trackforge"),
)
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def describe_machine(root: Path = Path("/")) -> dict[str, Any]:
    """CPU, GPU, memory, system, versions, load, date and the command line of this process."""
    return {
        "cpu": describe_cpu(root),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": describe_gpu(),
        "memory_gib": _memory_gib(root),
        "os": platform.platform(),
        "python": platform.python_version(),
        "versions": describe_versions(),
        "ros_distro": os.environ.get("ROS_DISTRO", ""),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["jetson-dnn-rt", *sys.argv[1:]]),
    }


def describe_cpu(root: Path = Path("/")) -> str:
    """Model of the CPU; on ARM boards, where Linux does not know it, of the board."""
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
def hash_cpu_features(root: Path = Path("/")) -> str:
    """Short digest of the CPU's features, as Linux lists them."""
    features = {
        line.partition(":")[2].strip()
        for line in (root / "proc/cpuinfo").read_text(errors="replace").splitlines()
        if line.partition(":")[0].strip() in ("flags", "Features")  # of x86 and ARM
    }
    return hashlib.sha256("\n".join(sorted(features)).encode()).hexdigest()[:12]


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


def describe_versions() -> dict[str, str]:
    """Versions of this package and of the installed libraries that matter for times."""
    versions = {"jetson_dnn_rt": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _memory_gib(root: Path) -> float | None:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None
