"""A PC: its cores through cpufreq, its power through RAPL and, with an NVIDIA GPU, NVML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jetson_dnn_rt.platforms.controls import CPUS, find_cpu_controls
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.power import Meter, RaplMeter, SumMeter
from jetson_dnn_rt.platforms.settable import SettablePlatform, WriteSession


def has_clocks_or_power(files: SystemFiles) -> bool:
    """Whether there is cpufreq, or a counter of energy."""
    return bool(files.glob(f"{CPUS}/cpufreq/policy[0-9]*")) or RaplMeter(files).found


class LinuxPlatform(SettablePlatform):
    """A PC with cpufreq. Cores are not switched off: other programs run on them too.

    For `allow_writes` and `state_dir` see `WriteSession`; `meters` are those besides RAPL.
    """

    def __init__(
        self,
        files: SystemFiles,
        *,
        allow_writes: bool = False,
        state_dir: Path | None = None,
        meters: Sequence[Meter] = (),
        notes: Sequence[str] = (),
    ) -> None:
        session = WriteSession(files, asked=allow_writes, folder=state_dir)
        rapl = RaplMeter(files)
        used = [rapl, *meters] if rapl.found else [*meters]
        missing = [] if used else ["power: no RAPL counters in /sys/class/powercap"]
        super().__init__(
            "linux",
            _read_processor(files),
            files,
            find_cpu_controls(files, switch_cores=False),
            SumMeter(used),
            session,
            notes=[*missing, *notes],
        )


def _read_processor(files: SystemFiles) -> str:
    for line in (files.read("proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "a Linux machine"
