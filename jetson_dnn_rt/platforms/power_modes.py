"""The power modes of a Jetson, from its ``/etc/nvpmodel.conf``.

The file names files of the kernel (PARAM), then says for every mode (POWER_MODEL) what is written
into them. A limit of -1, 0 or 2147483647 is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jetson_dnn_rt.platforms.boards import PowerMode
from jetson_dnn_rt.platforms.clocks import ClockOption, ClockSpace
from jetson_dnn_rt.platforms.files import SystemFiles

CONFIGURATION = "etc/nvpmodel.conf"
STATUS = "var/lib/nvpmodel/status"

_HEADER = re.compile(r"<\s*(PARAM|POWER_MODEL|PM_CONFIG|FAN_CONFIG)\b([^>]*)>")
_CPU = re.compile(
    r"/sys/devices/system/cpu/(?:cpu|cpufreq/policy)(\d+)/(online|(?:cpufreq/)?scaling_max_freq)"
)
_NO_LIMIT = (-1, 0, 2**31 - 1)


@dataclass(slots=True)
class NvpMode:
    """What one mode sets.

    Attributes
    ----------
    number : int
        For ``nvpmodel -m``.
    name : str
    online : dict of int to bool
        By core.
    cpu_limits_hz : dict of int to int
        By the core whose file is written; the limit is that of its cluster. 0 = none.
    gpu_limit_hz, emc_limit_hz : int
        0 = none.
    """

    number: int
    name: str
    online: dict[int, bool] = field(default_factory=dict)
    cpu_limits_hz: dict[int, int] = field(default_factory=dict)
    gpu_limit_hz: int = 0
    emc_limit_hz: int = 0


def parse_modes(text: str) -> list[NvpMode]:
    """Read a nvpmodel.conf; what is not understood is left out."""
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
        mode.cpu_limits_hz[int(cpu[1])] = limit * 1000
    elif parameter == "GPU" and argument == "MAX_FREQ":
        mode.gpu_limit_hz = limit
    elif parameter == "EMC" and argument == "MAX_FREQ":
        mode.emc_limit_hz = limit


def to_power_mode(
    mode: NvpMode, space: ClockSpace, cpus: Mapping[str, Sequence[int]]
) -> PowerMode:
    """A mode in terms of a board's domains.

    Parameters
    ----------
    mode : NvpMode
    space : ClockSpace
        Of the board.
    cpus : mapping of str to sequence of int
        Cores of each CPU domain.
    """
    limits: dict[str, ClockOption] = {}
    for domain in space.domains:
        fastest = domain.options[-1]
        if domain.name in cpus:
            numbers = cpus[domain.name]
            count = sum(mode.online.get(cpu, True) for cpu in numbers)
            least = min(
                (mode.cpu_limits_hz[cpu] for cpu in numbers if mode.cpu_limits_hz.get(cpu)),
                default=fastest.frequency_hz,
            )
            cores = count if fastest.cores else 0
            limits[domain.name] = ClockOption(least, cores) if count else ClockOption(0)
        else:
            limit = mode.gpu_limit_hz if domain.name == "gpu" else mode.emc_limit_hz
            limits[domain.name] = ClockOption(limit or fastest.frequency_hz)
    return PowerMode(mode.name, MappingProxyType(limits))


def find_active_mode(files: SystemFiles, modes: Sequence[NvpMode]) -> str:
    """Name of the mode that nvpmodel set last; empty when that cannot be seen."""
    found = re.fullmatch(r"pmode:(\d+).*", files.read(STATUS) or "", re.DOTALL)
    if found is None:
        return ""
    return next((mode.name for mode in modes if mode.number == int(found[1])), "")
