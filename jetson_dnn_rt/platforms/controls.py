# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Controls of clock domains: options, reading and setting through the kernel.

A clock is set by narrowing the kernel's limits to one value (lowest = highest), with any governor:
this changes less, and leaves less to restore, than the governor ``userspace``. No value above the
limit found at the start is ever set: that limit belongs to the power mode (nvpmodel), on which the
power supply may depend. For the same reason no core that was off is switched on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.boards import make_options
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption
from jetson_dnn_rt.platforms.files import EMC, Limits, SystemFiles

CPUS = "sys/devices/system/cpu"
EMC_CAP = "sys/kernel/nvpmodel_emc_cap/emc_iso_cap"

CPU_STEPS, CPU_STEP_KHZ = 8, 100_000
"""Number of frequencies offered where the driver has no table, and their rounding."""


class Control(ABC):
    """Reads and sets one domain; PlatformError when the kernel refuses."""

    domain: ClockDomain
    paths: tuple[str, ...]  # every file that `write` may change

    @abstractmethod
    def read(self) -> ClockOption:
        """The present option, throttled or not."""

    @abstractmethod
    def setting(self) -> ClockOption | None:
        """The option set in the kernel; None where the clock is not set to one value."""

    @abstractmethod
    def write(self, option: ClockOption) -> None:
        """Set an option."""


@dataclass(frozen=True, slots=True)
class CpuPolicy:
    """Cores that share a clock in the kernel, as far as they were on at the start."""

    path: str  # its folder
    cpus: tuple[int, ...]

    @property
    def limits(self) -> Limits:
        """Its two files."""
        return Limits(f"{self.path}/scaling_min_freq", f"{self.path}/scaling_max_freq", 1000)


class CpuControl(Control):
    """Cores of one kind: one frequency for all of them, and how many are on.

    With `switch_cores` cores may be switched off, except the machine's first one and any other
    that the kernel keeps on.
    """

    def __init__(
        self,
        files: SystemFiles,
        name: str,
        policies: Sequence[CpuPolicy],
        frequencies_hz: Iterable[int],
        *,
        switch_cores: bool,
    ) -> None:
        self._files = files
        self._policies = tuple(policies)
        self.cpus = tuple(sorted(cpu for policy in policies for cpu in policy.cpus))
        switches = [f"{CPUS}/cpu{cpu}/online" for cpu in self.cpus] if switch_cores else []
        self._switches = {
            cpu: path
            for cpu, path in zip(self.cpus, switches, strict=False)
            # The boot core has such a file on some kernels, and may not be switched off on most.
            if cpu != 0 and files.exists(path)
        }
        # Cores that are always on come first, so that n cores are the first n.
        self._order = sorted(self.cpus, key=lambda cpu: (cpu in self._switches, cpu))
        fixed = len(self.cpus) - len(self._switches)
        counts = range(max(1, fixed), len(self.cpus) + 1) if switch_cores else (0,)
        mhz = [frequency / 1e6 for frequency in frequencies_hz]
        off = switch_cores and fixed == 0
        self.domain = ClockDomain(name, make_options(mhz, counts, off=off))
        limits = [path for p in self._policies for path in (p.limits.least, p.limits.greatest)]
        self.paths = (*self._switches.values(), *limits)
        self._counts_cores = switch_cores

    def read(self) -> ClockOption:
        """The slowest clock of the cores that are on, and their number."""
        on = self._find_on()
        clocks = [
            _read(self._files, f"{policy.path}/scaling_cur_freq") * 1000
            for policy in self._policies
            if not on.isdisjoint(policy.cpus)
        ]
        return self._option(min(clocks, default=0), on)

    def setting(self) -> ClockOption | None:
        """The clock to which all active cores are set, and their number."""
        on = self._find_on()
        pinned = {
            policy.limits.pinned_hz(self._files)
            for policy in self._policies
            if not on.isdisjoint(policy.cpus)
        }
        if not pinned:
            return ClockOption(0)
        frequency = pinned.pop()
        return None if pinned or frequency is None else self._option(frequency, on)

    def write(self, option: ClockOption) -> None:
        """Cores on, then the clock, then cores off: a core switched on has the old limits."""
        wanted = set(self._order[: option.cores] if self._counts_cores else self.cpus)
        self._switch(wanted, on=True)
        for policy in self._policies:
            if wanted & set(policy.cpus):
                policy.limits.pin(self._files, option.frequency_hz)
        self._switch(set(self._switches) - wanted, on=False)

    def _switch(self, cpus: set[int], *, on: bool) -> None:
        for cpu in self._order if on else reversed(self._order):
            if cpu in cpus and cpu in self._switches and self._is_on(cpu) != on:
                self._files.write(self._switches[cpu], int(on))

    def _is_on(self, cpu: int) -> bool:
        path = self._switches.get(cpu)
        return path is None or self._files.read_int(path) == 1

    def _find_on(self) -> set[int]:
        return {cpu for cpu in self.cpus if self._is_on(cpu)}

    def _option(self, frequency_hz: int, on: set[int]) -> ClockOption:
        return ClockOption(frequency_hz if on else 0, len(on) if self._counts_cores else 0)


class GpuControl(Control):
    """A GPU behind devfreq; `path` is its folder in ``sys/class/devfreq``."""

    def __init__(self, files: SystemFiles, path: str, frequencies_hz: Iterable[int]) -> None:
        self._files = files
        self._path = path
        self._limits = Limits(f"{path}/min_freq", f"{path}/max_freq")
        self.domain = ClockDomain("gpu", make_options(hz / 1e6 for hz in frequencies_hz))
        self.paths = (self._limits.least, self._limits.greatest)

    def read(self) -> ClockOption:
        """The frequency now; 0 while the GPU is gated."""
        return ClockOption(_read(self._files, f"{self._path}/cur_freq"))

    def setting(self) -> ClockOption | None:
        """The one frequency that the limits allow."""
        value = self._limits.pinned_hz(self._files)
        return None if value is None else ClockOption(value)

    def write(self, option: ClockOption) -> None:
        """Narrow the limits."""
        self._limits.pin(self._files, option.frequency_hz)


class EmcControl(Control):
    """The memory's clock, in the firmware's debug files.

    The rate is locked: otherwise the kernel's bandwidth manager changes it at its next request.
    """

    def __init__(self, files: SystemFiles, frequencies_hz: Iterable[int]) -> None:
        self._files = files
        self.domain = ClockDomain("emc", make_options(hz / 1e6 for hz in frequencies_hz))
        self.paths = (f"{EMC}/rate", f"{EMC}/state", f"{EMC}/mrq_rate_locked")

    def read(self) -> ClockOption:
        """The rate now."""
        return ClockOption(_read(self._files, f"{EMC}/rate"))

    def setting(self) -> ClockOption | None:
        """The rate, where it is locked."""
        return self.read() if self._files.read_int(f"{EMC}/mrq_rate_locked") == 1 else None

    def write(self, option: ClockOption) -> None:
        """Lock the rate, then set it."""
        for name in ("mrq_rate_locked", "state"):
            if self._files.read_int(f"{EMC}/{name}") != 1:
                self._files.write(f"{EMC}/{name}", 1)
        self._files.write(f"{EMC}/rate", option.frequency_hz)


def _read(files: SystemFiles, path: str) -> int:
    value = files.read_int(path)
    if value is None:
        raise PlatformError(f"cannot read {path}")
    return value


def find_cpu_controls(files: SystemFiles, *, switch_cores: bool) -> list[CpuControl]:
    """Make one control for each kind of core: same part number, same table of frequencies.

    One is named "cpu", two "little" and "big", more "cpu0", "cpu1", ...
    """
    kinds: dict[tuple[str, tuple[int, ...]], list[CpuPolicy]] = {}
    for path in files.glob(f"{CPUS}/cpufreq/policy[0-9]*"):
        # Cores that are on: those that the power mode has switched off stay off.
        cpus = [int(word) for word in (files.read(f"{path}/affected_cpus") or "").split()]
        table = _read_table(files, path)
        if cpus and table:
            key = (_read_make(files, cpus[0]), table)
            kinds.setdefault(key, []).append(CpuPolicy(path, tuple(cpus)))

    def rank(kind: tuple[str, tuple[int, ...]]) -> tuple[bool, int, bool]:
        # The Denver cores of the TX2 have the same clocks as its A57, but are faster.
        return "denver" in kind[0], kind[1][-1], kinds[kind][0].cpus[0] != 0

    controls = []
    names = _name_domains(len(kinds))
    for name, kind in zip(names, sorted(kinds, key=rank), strict=True):
        policies = kinds[kind]
        limit = min(policy.limits.greatest_hz(files) or kind[1][-1] * 1000 for policy in policies)
        allowed = [khz * 1000 for khz in kind[1] if khz * 1000 <= limit] or [kind[1][0] * 1000]
        controls.append(CpuControl(files, name, policies, allowed, switch_cores=switch_cores))
    return controls


def _read_table(files: SystemFiles, path: str) -> tuple[int, ...]:
    """Frequencies, kHz, rising; evenly spaced ones where the driver has no table."""
    words = (files.read(f"{path}/scaling_available_frequencies") or "").split()
    if words and all(word.isdigit() for word in words):
        return tuple(sorted({int(word) for word in words}))
    least = files.read_int(f"{path}/cpuinfo_min_freq")
    greatest = files.read_int(f"{path}/cpuinfo_max_freq")
    if not least or not greatest or greatest < least:
        return ()
    steps = range(CPU_STEPS)
    raw = [least + (greatest - least) * step / (CPU_STEPS - 1) for step in steps]
    inner = {round(khz / CPU_STEP_KHZ) * CPU_STEP_KHZ for khz in raw[1:-1]}
    return tuple(sorted({least, greatest, *(khz for khz in inner if least < khz < greatest)}))


def _read_make(files: SystemFiles, cpu: int) -> str:
    for path in ("of_node/compatible", "regs/identification/midr_el1"):
        text = files.read(f"{CPUS}/cpu{cpu}/{path}")
        if text:
            return text
    return ""


def _name_domains(count: int) -> Sequence[str]:
    if count <= 1:
        return ("cpu",)[:count]
    return ("little", "big") if count == 2 else [f"cpu{number}" for number in range(count)]
