# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A Jetson: cores, GPU and memory through files of the kernel, power modes, power by INA3221."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jetson_dnn_rt.platforms.boards import Board, PowerMode, find_board
from jetson_dnn_rt.platforms.clocks import ClockOption, ClockSpace
from jetson_dnn_rt.platforms.controls import (
    EMC_CAP,
    Control,
    EmcControl,
    GpuControl,
    find_cpu_controls,
)
from jetson_dnn_rt.platforms.files import EMC, SystemFiles
from jetson_dnn_rt.platforms.power import Ina3221Meter
from jetson_dnn_rt.platforms.settable import SettablePlatform, WriteSession

_GPUS = ("gp10b", "gv11b", "ga10b", "gb10b", "gpu")
_SAME_RATE = 0.001

_HEADER = re.compile(r"<\s*(PARAM|POWER_MODEL|PM_CONFIG|FAN_CONFIG)\b([^>]*)>")
_CPU = re.compile(
    r"/sys/devices/system/cpu/(?:cpu|cpufreq/policy)(\d+)/(online|(?:cpufreq/)?scaling_max_freq)"
)
_NO_LIMIT = (-1, 0, 2**31 - 1)


def is_jetson(files: SystemFiles) -> bool:
    """Whether the device tree, or the release file, is that of a Tegra."""
    compatible = files.read("proc/device-tree/compatible") or ""
    return "nvidia,tegra" in compatible or files.exists("etc/nv_tegra_release")


class JetsonPlatform(SettablePlatform):
    """A Jetson.

    `session` is opened before anything is read: a killed process may have left cores off.
    Switching cores off takes tens of milliseconds, and threads bound to such a core lose their
    binding: `switch_cores` allows it.
    """

    def __init__(self, files: SystemFiles, session: WriteSession, *, switch_cores: bool) -> None:
        model = files.read("proc/device-tree/model") or ""
        self.board: Board = find_board(model)
        notes: list[str] = []
        cpus = find_cpu_controls(files, switch_cores=switch_cores)
        refused = files.find_unwritable(path for cpu in cpus for path in cpu.paths)
        if refused and switch_cores:
            # The right to set frequencies alone is useful, too.
            plain = find_cpu_controls(files, switch_cores=False)
            if not files.find_unwritable(path for cpu in plain for path in cpu.paths):
                cpus = plain
                notes.append(f"cpu: cores are not switched, {refused} cannot be written")
        controls: list[Control] = [*cpus]
        no_emc = (
            f"emc: /{EMC} cannot be read, memory clocks are left alone (debugfs is for root only; "
            "see docs/platforms.md)"
        )
        for control, note in (
            (_find_gpu(files), "gpu: none of Tegra's GPUs in /sys/class/devfreq"),
            (_find_emc(files, self.board), no_emc),
        ):
            if control is None:
                notes.append(note)
            else:
                controls.append(control)
        modes = parse_modes(files.read("etc/nvpmodel.conf") or "")
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
    # The firmware writes its limits as 1866000000 or 1865991000: treat close values as equal.
    inner = {hz for hz in rates if least * (1 + _SAME_RATE) < hz < greatest * (1 - _SAME_RATE)}
    return EmcControl(files, sorted({least, greatest, *inner}))


# -- power modes of nvpmodel ------------------------------------------------------------------


@dataclass(slots=True)
class NvpMode:
    """A power mode of ``/etc/nvpmodel.conf``; a limit of 0 means none."""

    number: int  # argument of ``nvpmodel -m``
    name: str
    online: dict[int | str, bool] = field(default_factory=dict)  # cores that are on
    limits_hz: dict[int | str, int] = field(default_factory=dict)
    """Limits by the core whose file is written, each for its whole cluster; "gpu", "emc".
    """


def parse_modes(text: str) -> list[NvpMode]:
    """Parse a nvpmodel.conf; unknown entries are ignored.

    The file lists kernel files (PARAM), then the values to write into them for every mode
    (POWER_MODEL). A limit of -1, 0 or 2147483647 means none.
    """
    paths: dict[tuple[str, str], str] = {}
    modes: list[NvpMode] = []
    section = ""
    parameter = ""
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        header = _HEADER.match(line)
        if header:
            section = header[1]
            fields = dict(re.findall(r"(\w+)=(\S+)", header[2]))
            parameter = fields.get("NAME", "")
            if section == "POWER_MODEL" and fields.get("ID", "").isdigit():
                modes.append(NvpMode(int(fields["ID"]), parameter))
            continue
        words = line.split()
        if section == "PARAM" and len(words) == 2:
            paths[parameter, words[0]] = words[1]
        elif section == "POWER_MODEL" and len(words) == 3 and modes:
            _set(modes[-1], words[0], words[1], paths.get((words[0], words[1]), ""), words[2])
    return modes


def _set(mode: NvpMode, parameter: str, argument: str, path: str, text: str) -> None:
    try:
        value = int(text)
    except ValueError:
        return
    limit = 0 if value in _NO_LIMIT else value
    cpu = _CPU.fullmatch(path)
    if cpu and cpu[2] == "online":
        mode.online[int(cpu[1])] = value == 1
    elif cpu:
        mode.limits_hz[int(cpu[1])] = limit * 1000
    elif parameter in ("GPU", "EMC") and argument == "MAX_FREQ":
        mode.limits_hz[parameter.lower()] = limit


def to_power_mode(
    mode: NvpMode, space: ClockSpace, cpus: Mapping[str, Sequence[int]]
) -> PowerMode:
    """Convert a mode to a board's domains; `cpus` has the cores of each CPU domain."""
    limits: dict[str, ClockOption] = {}
    for domain in space.domains:
        fastest = domain.options[-1]
        parts: Sequence[int | str] = cpus.get(domain.name, (domain.name,))
        count = sum(mode.online.get(part, True) for part in parts)
        found = (mode.limits_hz.get(part) or fastest.frequency_hz for part in parts)
        frequency_hz, cores = min(found), count if fastest.cores else 0
        limits[domain.name] = ClockOption(frequency_hz, cores) if count else ClockOption(0)
    return PowerMode(mode.name, MappingProxyType(limits))


def find_active_mode(files: SystemFiles, modes: Sequence[NvpMode]) -> str:
    """Name of the mode that nvpmodel set last; empty when unknown."""
    status = files.read("var/lib/nvpmodel/status") or ""
    found = re.fullmatch(r"pmode:(\d+).*", status, re.DOTALL)
    number = int(found[1]) if found else None
    return next((mode.name for mode in modes if mode.number == number), "")
