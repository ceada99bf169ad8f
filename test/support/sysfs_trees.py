# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Trees of kernel files of four Jetsons, and a fake kernel that reacts to what is written.

The trees hold what the boards have, with the frequency tables of the TX2 and the AGX Xavier from
NeuOS's spaces; rails, paths and modes are those of JetPack 4 (TX2), 5 (both AGX) and 6 (Orin
Nano). Every value is a plain file, links are links as in sysfs.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jetson_dnn_rt.platforms import boards
from jetson_dnn_rt.platforms.files import SystemFiles

BOOT_ID = "3b7f7b5e-9a43-4d6e-8f0b-0a8f5d1c2e77"
CPUS = "sys/devices/system/cpu"
EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
ENDS = ("MAX", "MIN")


@dataclass(frozen=True)
class Tree:
    """A board as its files show it.

    `policies`: cores, make of the cores, table in MHz. `rails`: chips of an INA3221, each with
    (label, mV, mA) for its channels. `emc`: least, greatest rate in MHz.
    """

    name: str
    model: str
    chip: str
    policies: tuple[tuple[tuple[int, ...], str, tuple[float, ...]], ...]
    gpu_folder: str
    gpu_mhz: tuple[float, ...]
    emc: tuple[float, float]
    rails: tuple[tuple[tuple[str, int, int], ...], ...]
    modes: str
    iio: bool = False
    cpu_least_khz: int = 0


_ORIN_CHIP = "nvidia,tegra234"


def _describe_modes(
    cores: Sequence[int], clusters: Mapping[str, int], gpu_folder: str, modes: str
) -> str:
    """A nvpmodel.conf: cores that modes switch, names of clusters with their first core, modes."""
    name = gpu_folder.rpartition("/")[2]
    lines = ["\n< PARAM TYPE=FILE NAME=CPU_ONLINE >"]
    lines += [f"CORE_{core} /{CPUS}/cpu{core}/online" for core in cores]
    for cluster, cpu in clusters.items():
        lines += [f"< PARAM TYPE=CLOCK NAME={cluster} >"]
        lines += [f"{e}_FREQ /{CPUS}/cpu{cpu}/cpufreq/scaling_{e.lower()}_freq" for e in ENDS]
    lines += [
        "",
        "< PARAM TYPE=CLOCK NAME=GPU >",
        f"MAX_FREQ /{gpu_folder}/devfreq/{name}/max_freq",
    ]
    lines += ["< PARAM TYPE=CLOCK NAME=EMC >", "MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap"]
    return "\n".join(lines) + modes


TX2 = Tree(
    name="tx2",
    model="NVIDIA Jetson TX2 Developer Kit",
    chip="nvidia,tegra186",
    policies=(
        ((0, 3, 4, 5), "arm,cortex-a57", boards.TX2_CPU_MHZ),
        ((1, 2), "nvidia,denver", boards.TX2_CPU_MHZ),
    ),
    gpu_folder="sys/devices/17000000.gp10b",
    gpu_mhz=boards.TX2_GPU_MHZ,
    emc=(204.0, 1866.0),
    rails=(
        (("VDD_SYS_GPU", 19072, 120), ("VDD_SYS_SOC", 19072, 38), ("VDD_4V0_WIFI", 4800, 4)),
        (("VDD_IN", 19072, 277), ("VDD_SYS_CPU", 19072, 100), ("VDD_SYS_DDR", 19072, 65)),
    ),
    iio=True,
    modes=_describe_modes(
        range(6),
        {"CPU_A57": 0, "CPU_DENVER": 1},
        "sys/devices/17000000.gp10b",
        """
# as fast as it goes
< POWER_MODEL ID=0 NAME=MAXN >
CPU_ONLINE CORE_1 1
CPU_ONLINE CORE_2 1
CPU_A57 MIN_FREQ 0
CPU_A57 MAX_FREQ 2147483647
CPU_DENVER MAX_FREQ 2147483647
GPU MAX_FREQ 2147483647
EMC MAX_FREQ 0

< POWER_MODEL ID=1 NAME=MAXQ >
CPU_ONLINE CORE_1 0
CPU_ONLINE CORE_2 0
CPU_ONLINE CORE_3 1
CPU_A57 MAX_FREQ 1200000
GPU MAX_FREQ 850000000
EMC MAX_FREQ 1331200000

< PM_CONFIG DEFAULT=0 >
""",
    ),
)

XAVIER = Tree(
    name="agx-xavier",
    model="NVIDIA Jetson AGX Xavier Developer Kit",
    chip="nvidia,tegra194",
    policies=tuple(
        ((first, first + 1), "nvidia,tegra194-carmel", boards.XAVIER_CPU_MHZ)
        for first in (0, 2, 4, 6)
    ),
    gpu_folder="sys/devices/17000000.gv11b",
    gpu_mhz=boards.XAVIER_GPU_MHZ,
    emc=(204.0, 2133.0),
    rails=(
        (("GPU", 19048, 80), ("CPU", 19048, 120), ("SOC", 19048, 110)),
        (("CV", 19048, 10), ("VDDRQ", 19048, 40), ("SYS5V", 19048, 150)),
    ),
    modes=_describe_modes(
        (0, 4, 5, 6, 7),
        {"CPU_DENVER_0": 0, "CPU_DENVER_1": 2},
        "sys/devices/17000000.gv11b",
        """
< PARAM TYPE=FILE NAME=TPC_POWER_GATING >
TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask
< POWER_MODEL ID=0 NAME=MAXN >
CPU_DENVER_0 MAX_FREQ -1
GPU MAX_FREQ -1
EMC MAX_FREQ 0
< POWER_MODEL ID=2 NAME=MODE_15W >
CPU_ONLINE CORE_4 0
CPU_ONLINE CORE_5 0
CPU_ONLINE CORE_6 0
CPU_ONLINE CORE_7 0
TPC_POWER_GATING TPC_PG_MASK 1
CPU_DENVER_0 MAX_FREQ 1200000
CPU_DENVER_1 MAX_FREQ 1200000
GPU MAX_FREQ 670000000
EMC MAX_FREQ 1333000000
< PM_CONFIG DEFAULT=2 >
< FAN_CONFIG DEFAULT=cool >
""",
    ),
    cpu_least_khz=1_190_400,
)

AGX_ORIN = Tree(
    name="agx-orin",
    model="NVIDIA Jetson AGX Orin Developer Kit",
    chip=_ORIN_CHIP,
    policies=tuple(
        (tuple(range(first, first + 4)), "arm,cortex-a78", boards.AGX_ORIN_CPU_MHZ)
        for first in (0, 4, 8)
    ),
    gpu_folder="sys/devices/17000000.ga10b",
    gpu_mhz=boards.AGX_ORIN_GPU_MHZ,
    emc=(204.0, 3199.0),
    rails=(
        (("VDD_GPU_SOC", 19136, 150), ("VDD_CPU_CV", 19136, 40), ("VIN_SYS_5V0", 4968, 700)),
        (("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 4968, 150), ("NC", 0, 0)),
    ),
    modes="",
)

_ORIN_NANO_MHZ = (*(round(115.2 + 76.8 * step, 1) for step in range(19)), 1510.4)

ORIN_NANO = Tree(
    name="orin-nano",
    model="NVIDIA Jetson Orin Nano Developer Kit",
    chip=_ORIN_CHIP,
    policies=(
        ((0, 1, 2, 3), "arm,cortex-a78", _ORIN_NANO_MHZ),
        ((4, 5), "arm,cortex-a78", _ORIN_NANO_MHZ),
    ),
    gpu_folder="sys/devices/platform/bus@0/17000000.gpu",
    gpu_mhz=(306.0, 408.0, 510.0, 612.0, 624.75),
    emc=(204.0, 2133.0),
    rails=((("VDD_IN", 5016, 1100), ("VDD_CPU_GPU_CV", 5016, 300), ("VDD_SOC", 5016, 280)),),
    modes="",
)

TREES = {tree.name: tree for tree in (TX2, XAVIER, AGX_ORIN, ORIN_NANO)}


def write_file(root: Path, path: str, text: object) -> None:
    """One file, as the kernel shows it: with a line end."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def write_tree(root: Path, tree: Tree) -> None:
    """All the files of a board, at full clocks, with no clock set."""
    write_file(root, "proc/sys/kernel/random/boot_id", BOOT_ID)
    for name, text in (("model", tree.model), ("compatible", f"nvidia,board\0{tree.chip}")):
        file = root / "proc/device-tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\0")
    (root / "run").mkdir(parents=True)
    for cpus, make, table in tree.policies:
        write_policy(root, cpus, table, least_khz=tree.cpu_least_khz, make=make)
    _write_gpu(root, tree)
    for name, value in (
        ("rate", tree.emc[1] * 1e6),
        ("min_rate", tree.emc[0] * 1e6),
        ("max_rate", tree.emc[1] * 1e6),
        ("state", 1),
        ("mrq_rate_locked", 0),
    ):
        write_file(root, f"{EMC}/{name}", round(value))
    write_file(root, "sys/kernel/nvpmodel_emc_cap/emc_iso_cap", 0)
    for number, chip in enumerate(tree.rails):
        _write_rails(root, number, chip, iio=tree.iio)
    if tree.modes:
        write_file(root, "etc/nvpmodel.conf", tree.modes)
        write_file(root, "var/lib/nvpmodel/status", "pmode:0000")


def write_policy(
    root: Path,
    cpus: Sequence[int],
    table_mhz: Sequence[float],
    *,
    least_khz: int = 0,
    make: str = "",
) -> None:
    """Cores that are clocked together, all of them on."""
    khz = [round(mhz * 1000) for mhz in table_mhz]
    folder = f"{CPUS}/cpufreq/policy{cpus[0]}"
    for name, value in (
        ("affected_cpus", " ".join(map(str, cpus))),
        ("related_cpus", " ".join(map(str, cpus))),
        ("scaling_available_frequencies", " ".join(map(str, khz)) + " "),
        ("scaling_min_freq", least_khz or khz[0]),
        ("scaling_max_freq", khz[-1]),
        ("scaling_cur_freq", khz[-1]),
        ("cpuinfo_min_freq", khz[0]),
        ("cpuinfo_max_freq", khz[-1]),
        ("scaling_governor", "schedutil"),
    ):
        write_file(root, f"{folder}/{name}", value)
    for cpu in cpus:
        write_file(root, f"{CPUS}/cpu{cpu}/online", 1)
        (root / CPUS / f"cpu{cpu}/cpufreq").symlink_to(f"../cpufreq/policy{cpus[0]}")
        if make:
            write_file(root, f"{CPUS}/cpu{cpu}/of_node/compatible", make)


def _write_gpu(root: Path, tree: Tree) -> None:
    _write_devfreq(root, tree.gpu_folder, [round(mhz * 1e6) for mhz in tree.gpu_mhz])
    # Another device behind devfreq, which is none of our business.
    _write_devfreq(root, "sys/devices/15340000.vic", [115_200_000])


def _write_devfreq(root: Path, device: str, hz: Sequence[int]) -> None:
    name = device.rpartition("/")[2]
    folder = f"{device}/devfreq/{name}"
    for key, value in (
        ("governor", "nvhost_podgov"),
        ("available_frequencies", " ".join(map(str, hz))),
        ("min_freq", hz[0]),
        ("max_freq", hz[-1]),
        ("cur_freq", hz[0]),
    ):
        write_file(root, f"{folder}/{key}", value)
    write_file(root, f"{device}/of_node/name", name.partition(".")[2])
    (root / folder / "device").symlink_to("../..")
    classes = root / "sys/class/devfreq"
    classes.mkdir(parents=True, exist_ok=True)
    (classes / name).symlink_to(os.path.relpath(root / folder, classes))


def _write_rails(
    root: Path, number: int, channels: Sequence[tuple[str, int, int]], *, iio: bool
) -> None:
    if iio:
        folder = f"sys/bus/i2c/drivers/ina3221x/0-004{number}/iio:device{number}"
        for channel, (label, millivolts, milliamperes) in enumerate(channels):
            write_file(root, f"{folder}/rail_name_{channel}", label)
            power = round(millivolts * milliamperes / 1000)
            write_file(root, f"{folder}/in_power{channel}_input", power)
        return
    folder = f"sys/class/hwmon/hwmon{number + 3}"
    write_file(root, f"{folder}/name", "ina3221")
    for channel, (label, millivolts, milliamperes) in enumerate(channels, start=1):
        write_file(root, f"{folder}/in{channel}_label", label)
        write_file(root, f"{folder}/in{channel}_input", millivolts)
        write_file(root, f"{folder}/curr{channel}_input", milliamperes)
    write_file(root, f"{folder}/in7_label", "sum of shunt voltages")
    write_file(root, f"{folder}/in7_input", 1234)


def read_all(root: Path) -> dict[str, str]:
    """Every file below `root` and what is in it."""
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


class FakeKernel(SystemFiles):
    """A fake: plain files that react to a write as the kernel's do.

    Limits are kept within the hardware's and apart (least <= greatest, else EINVAL), the clock
    follows its limits, cores that are off take their policy with them and come back with its
    full range, a rate of the memory that is not locked is changed back. `round_value` is what the
    kernel makes of a limit or rate, `refuse` a pattern of paths below the root that may not be
    written to (EBUSY).
    """

    def __init__(
        self,
        root: Path,
        *,
        round_value: Callable[[int], int] = lambda value: value,
        refuse: str = "",
    ) -> None:
        super().__init__(root)
        self._round = round_value
        self.refuse = refuse
        self.writes: list[tuple[str, int]] = []

    def _store(self, place: Path, text: str) -> None:
        path = place.relative_to(self.root).as_posix()
        if self.refuse and re.search(self.refuse, path):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        value = int(text)
        if place.name in ("scaling_min_freq", "scaling_max_freq"):
            if not (place.parent / "affected_cpus").read_text().strip():
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            value = self._set_limit(place, "scaling_", value)
        elif place.name in ("min_freq", "max_freq"):
            value = self._set_limit(place, "", value)
        elif path == f"{EMC}/rate":
            locked = (place.parent / "mrq_rate_locked").read_text().strip() == "1"
            value = self._round(value) if locked else int(place.read_text())
        self.writes.append((path, int(text)))
        super()._store(place, f"{value}\n")
        if place.name == "online":
            self._switch(place, on=value == 1)

    def _set_limit(self, place: Path, prefix: str, value: int) -> int:
        value = self._clamp(place, self._round(value))
        least, greatest = (
            int((place.parent / f"{prefix}{end}_freq").read_text()) for end in ("min", "max")
        )
        least, greatest = (value, greatest) if "min" in place.name else (least, value)
        if least > greatest:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        current = place.parent / f"{prefix}cur_freq"
        current.write_text(f"{min(max(int(current.read_text()), least), greatest)}\n")
        return value

    def _clamp(self, place: Path, value: int) -> int:
        """Limits outside what the hardware has: the kernel takes the nearest."""
        if place.name.startswith("scaling_"):
            ends = [place.parent / f"cpuinfo_{end}_freq" for end in ("min", "max")]
            least, greatest = (int(end.read_text()) for end in ends)
        else:
            table = (place.parent / "available_frequencies").read_text().split()
            least, greatest = min(map(int, table)), max(map(int, table))
        return min(max(value, least), greatest)

    def _switch(self, place: Path, *, on: bool) -> None:
        cpu = int(place.parent.name[3:])
        for folder in (self.root / CPUS / "cpufreq").iterdir():
            related = [int(word) for word in (folder / "related_cpus").read_text().split()]
            if cpu not in related:
                continue
            before = [int(word) for word in (folder / "affected_cpus").read_text().split()]
            after = sorted({*before, cpu} if on else set(before) - {cpu})
            (folder / "affected_cpus").write_text(" ".join(map(str, after)) + "\n")
            if on and not before:
                for end in ("min", "max"):
                    full = (folder / f"cpuinfo_{end}_freq").read_text()
                    (folder / f"scaling_{end}_freq").write_text(full)

    def read(self, path: str) -> str | None:
        """As the kernel: a policy without a core has no clock to tell."""
        policy = re.match(rf"({CPUS}/cpufreq/policy\d+)/scaling_", path)
        if policy and not super().read(f"{policy[1]}/affected_cpus"):
            return None
        return super().read(path)
