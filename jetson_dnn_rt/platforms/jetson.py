"""A Jetson: cores, GPU and memory through files of the kernel, power through INA3221."""

from __future__ import annotations

from pathlib import Path

from jetson_dnn_rt.platforms.boards import Board, find_board
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.platforms.controls import EMC_CAP, Control, EmcControl, GpuControl
from jetson_dnn_rt.platforms.cpufreq import find_cpu_controls
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.limits import EMC
from jetson_dnn_rt.platforms.power import Ina3221Meter
from jetson_dnn_rt.platforms.power_modes import (
    CONFIGURATION,
    find_active_mode,
    parse_modes,
    to_power_mode,
)
from jetson_dnn_rt.platforms.settable import SettablePlatform, WriteSession

MODEL = "proc/device-tree/model"
COMPATIBLE = "proc/device-tree/compatible"
RELEASE = "etc/nv_tegra_release"
_GPUS = ("gp10b", "gv11b", "ga10b", "gb10b", "gpu")
_SAME_RATE = 0.001


def is_jetson(files: SystemFiles) -> bool:
    """Whether the device tree, or the release file, is that of a Tegra."""
    return "nvidia,tegra" in (files.read(COMPATIBLE) or "") or files.exists(RELEASE)


class JetsonPlatform(SettablePlatform):
    """A Jetson.

    Parameters
    ----------
    files : SystemFiles
        Of the board.
    allow_writes : bool
        Whether clocks shall be set.
    state_dir : pathlib.Path, optional
        See `WriteSession`.
    switch_cores : bool
        Whether cores may be switched off. It takes tens of milliseconds, and threads that are
        bound to such a core lose their binding.

    Attributes
    ----------
    board : Board
    """

    def __init__(
        self,
        files: SystemFiles,
        *,
        allow_writes: bool = False,
        state_dir: Path | None = None,
        switch_cores: bool = True,
    ) -> None:
        # Before anything is looked at: a killed process may have left cores off.
        session = WriteSession(files, asked=allow_writes, folder=state_dir)
        model = files.read(MODEL) or ""
        self.board: Board = find_board(model)
        notes: list[str] = []
        cpus = find_cpu_controls(files, switch_cores=switch_cores)
        refused = files.find_unwritable(path for cpu in cpus for path in cpu.paths)
        if refused and switch_cores:
            # A right to the frequencies alone is of use, too.
            plain = find_cpu_controls(files, switch_cores=False)
            if not files.find_unwritable(path for cpu in plain for path in cpu.paths):
                cpus = plain
                notes.append(f"cpu: cores are not switched, {refused} cannot be written")
        controls: list[Control] = [*cpus]
        gpu = _find_gpu(files)
        if gpu is None:
            notes.append("gpu: none of Tegra's GPUs in /sys/class/devfreq")
        else:
            controls.append(gpu)
        emc = _find_emc(files, self.board)
        if emc is None:
            notes.append(
                f"emc: /{EMC} cannot be read, memory clocks are left alone (debugfs is root's; "
                "docs/platforms.md says what can be done)"
            )
        else:
            controls.append(emc)
        modes = parse_modes(files.read(CONFIGURATION) or "")
        self.active_mode = find_active_mode(files, modes)
        space = ClockSpace(control.domain for control in controls)
        cores = {control.domain.name: control.cpus for control in cpus}
        super().__init__(
            "jetson",
            model or self.board.title,
            files,
            controls,
            Ina3221Meter(files, self.board.total_rails),
            session,
            [to_power_mode(mode, space, cores) for mode in modes] or self.board.modes,
            notes,
        )


def _find_gpu(files: SystemFiles) -> GpuControl | None:
    for path in files.glob("sys/class/devfreq/*"):
        if files.read(f"{path}/device/of_node/name") not in _GPUS:
            continue
        words = (files.read(f"{path}/available_frequencies") or "").split()
        table = sorted({int(word) for word in words if word.isdigit()})
        limit = files.read_int(f"{path}/max_freq")
        if table and limit is not None:
            allowed = [hz for hz in table if hz <= limit] or table[:1]
            return GpuControl(files, path, allowed)
    return None


def _find_emc(files: SystemFiles, board: Board) -> EmcControl | None:
    rate, least, greatest = (
        files.read_int(f"{EMC}/{name}") for name in ("rate", "min_rate", "max_rate")
    )
    if rate is None or least is None or greatest is None or greatest < least:
        return None
    cap = files.read_int(EMC_CAP) or greatest
    greatest = min(greatest, cap)
    rates = {round(mhz * 1e6) for mhz in board.emc_mhz}
    # The firmware's ends are written 1866000000 or 1865991000: near is the same.
    inner = {hz for hz in rates if least * (1 + _SAME_RATE) < hz < greatest * (1 - _SAME_RATE)}
    return EmcControl(files, sorted({least, greatest, *inner}))
