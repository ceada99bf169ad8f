"""What a figure was measured on: without it the figure says nothing."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from jetson_dnn_rt import __version__

_PACKAGES = ("numpy", "torch", "onnxruntime", "openvino", "opencv-python-headless", "ros-rclpy")


def describe_machine(root: Path = Path("/")) -> dict[str, object]:
    """CPU, cores, memory, versions, load and the command line of this process.

    Parameters
    ----------
    root : Path
        Where ``proc`` is.
    """
    return {
        "cpu": _cpu_model(root),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _memory_gib(root),
        "os": platform.platform(),
        "python": platform.python_version(),
        "versions": {"jetson_dnn_rt": __version__, **_versions()},
        "ros_distro": os.environ.get("ROS_DISTRO", ""),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["jetson-dnn-rt", *sys.argv[1:]]),
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_model(root: Path) -> str:
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware"):
            return value.strip()
    return platform.machine()


def _memory_gib(root: Path) -> float | None:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 2**20, 1)
    return None
