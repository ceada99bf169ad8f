# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detection of the machine."""

from __future__ import annotations

from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.controls import CPUS, find_cpu_controls
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.jetson import JetsonPlatform, is_jetson
from jetson_dnn_rt.platforms.nvml import NvmlPlatform, load_nvml
from jetson_dnn_rt.platforms.platform import Platform, UnknownPlatform
from jetson_dnn_rt.platforms.power import Meter, RaplMeter, SumMeter
from jetson_dnn_rt.platforms.settable import SettablePlatform, WriteSession


def detect(
    root: Path = Path("/"),
    *,
    allow_writes: bool = False,
    state_dir: Path | None = None,
    switch_cores: bool = True,
    files: SystemFiles | None = None,
) -> Platform:
    """Open this machine: a Jetson, a PC with cpufreq or RAPL, a GPU alone, or unknown clocks.

    `close` the platform, or use it in a ``with`` statement. `root` is that of the kernel's files,
    which `files` reads and writes; another folder simulates another machine. With `allow_writes`
    clocks can be set, if this process has the right; without it nothing is ever written. A file in
    `state_dir`, by default ``/run/jetson_dnn_rt`` below the root, is used to restore the clocks
    after the process exits. `switch_cores`: cores of a Jetson may be switched off.
    """
    files = SystemFiles(root) if files is None else files
    if is_jetson(files):
        session = WriteSession(files, asked=allow_writes, folder=state_dir)
        return JetsonPlatform(files, session, switch_cores=switch_cores)
    gpu, lack = None, ""
    if files.glob("dev/nvidia[0-9]*"):
        try:
            gpu = NvmlPlatform(load_nvml())
        except PlatformError as error:
            lack = str(error)
    rapl = RaplMeter(files)
    if rapl.found or files.glob(f"{CPUS}/cpufreq/policy[0-9]*"):
        meters: list[Meter] = [rapl] if rapl.found else []
        meters += [] if gpu is None else [gpu]
        notes = [] if meters else ["power: no RAPL counters in /sys/class/powercap"]
        notes += [f"power of the GPU: {lack}"] if lack else []
        session = WriteSession(files, asked=allow_writes, folder=state_dir)
        # Cores are not switched off: other programs run on them too.
        controls = find_cpu_controls(files, switch_cores=False)
        title = _read_processor(files)
        return SettablePlatform(
            "linux", title, files, controls, SumMeter(meters), session, notes=notes
        )
    if gpu is not None:
        return gpu
    reason = f"no cpufreq, and the GPU cannot be read: {lack}" if lack else ""
    return UnknownPlatform(
        reason or "neither cpufreq nor devfreq is visible (virtual machine or container?)"
    )


def _read_processor(files: SystemFiles) -> str:
    for line in (files.read("proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "a Linux machine"
