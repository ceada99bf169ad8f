"""Detection of the machine."""

from __future__ import annotations

from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.jetson import JetsonPlatform, is_jetson
from jetson_dnn_rt.platforms.linux import LinuxPlatform, has_clocks_or_power
from jetson_dnn_rt.platforms.nvml import NvmlPlatform, load_nvml
from jetson_dnn_rt.platforms.platform import FixedPlatform, Platform

THIS_MACHINE = Path("/")
NO_CLOCKS = "no clocks are visible (virtual machine?)"


def detect(
    root: Path = THIS_MACHINE,
    *,
    allow_writes: bool = False,
    state_dir: Path | None = None,
    switch_cores: bool = True,
    files: SystemFiles | None = None,
) -> Platform:
    """Open this machine: a Jetson, a PC with cpufreq or RAPL, a GPU alone, or fixed clocks.

    `close` the platform, or use it in a ``with`` statement. `root` is that of the kernel's files,
    which `files` reads and writes; another folder stands for another machine. With `allow_writes`
    clocks can be set, where this process has the right to; without it nothing is ever written.
    From a file in `state_dir`, by default ``/run/jetson_dnn_rt`` below the root, the clocks are
    restored after the process. `switch_cores`: cores of a Jetson may be switched off.
    """
    files = SystemFiles(root) if files is None else files
    if is_jetson(files):
        return JetsonPlatform(
            files, allow_writes=allow_writes, state_dir=state_dir, switch_cores=switch_cores
        )
    gpu, lack = None, ""
    if files.glob("dev/nvidia[0-9]*"):
        try:
            gpu = NvmlPlatform(load_nvml())
        except PlatformError as error:
            lack = str(error)
    if has_clocks_or_power(files):
        return LinuxPlatform(
            files,
            allow_writes=allow_writes,
            state_dir=state_dir,
            meters=[] if gpu is None else [gpu],
            notes=[f"power of the GPU: {lack}"] if lack else [],
        )
    if gpu is not None:
        return gpu
    return FixedPlatform(f"no cpufreq, and the GPU cannot be read: {lack}" if lack else NO_CLOCKS)
