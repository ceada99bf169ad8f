# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Meters: the INA3221 of a Jetson's rails, the RAPL counters of a PC's processor."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.platform import Platform, Power

POWER_NS = 1_000_000_000  # power is a mean over it: Jetsons' sensors average over some 11 ms
_SHORTEST_NS = 1_000_000
_PERIOD_S = 0.02


class Meter(Protocol):
    """Measures power."""

    notes: tuple[str, ...]  # quantities that cannot be measured, with the fix

    def power(self) -> Power:
        """Present power."""

    def energy_j(self) -> float | None:
        """Energy since the meter was made; None where there is no counter."""


@dataclass(frozen=True, slots=True)
class _Channel:
    """One of the three channels of an INA3221."""

    label: str
    voltage: str
    current: str | None  # None where the driver multiplies itself: then `voltage` is in mW


class Ina3221Meter:
    """The rails of a Jetson, sampled about every 11 ms: too slow for the energy of one job.

    The board is the sum of `total_rails`; when one is missing there is no total.
    """

    def __init__(self, files: SystemFiles, total_rails: Sequence[str]) -> None:
        self._files = files
        self._total_rails = tuple(total_rails)
        self._channels = list(_find_hwmon(files)) or list(_find_iio(files))
        self.notes: tuple[str, ...] = ()
        missing = set(total_rails) - {channel.label for channel in self._channels}
        if not self._channels:
            self.notes = ("power: no INA3221 in /sys/class/hwmon",)
        elif missing:
            found = ", ".join(channel.label for channel in self._channels)
            self.notes = (
                f"power: no total without {', '.join(sorted(missing))} (rails: {found})",
            )

    def power(self) -> Power:
        """Power of every rail, and the total by the board's rule."""
        rails: dict[str, float] = {}
        for channel in self._channels:
            value = self._files.read_int(channel.voltage)
            if value is None:
                continue  # a channel that is switched off
            if channel.current is None:
                rails[channel.label] = value * 1e-3
            else:
                current = self._files.read_int(channel.current)
                if current is not None:
                    rails[channel.label] = value * current * 1e-6
        complete = self._total_rails and all(name in rails for name in self._total_rails)
        total = sum(rails[name] for name in self._total_rails) if complete else None
        return Power(total, MappingProxyType(rails))

    def energy_j(self) -> float | None:
        """The chip counts no energy."""
        return None


def _find_hwmon(files: SystemFiles) -> Iterable[_Channel]:
    for folder in files.glob("sys/class/hwmon/hwmon*"):
        if files.read(f"{folder}/name") != "ina3221":
            continue
        # Only three channels are rails: in4 to in7 are shunt voltages.
        for number in (1, 2, 3):
            label = files.read(f"{folder}/in{number}_label")
            if label and label != "NC":
                yield _Channel(label, f"{folder}/in{number}_input", f"{folder}/curr{number}_input")


def _find_iio(files: SystemFiles) -> Iterable[_Channel]:
    # Kernel 4.9 (JetPack 4: TX2, and Xavier before JetPack 5).
    for path in files.glob("sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_[0-2]"):
        label = files.read(path)
        if label and label != "NC":
            folder, _, number = path.rpartition("/rail_name_")
            yield _Channel(label, f"{folder}/in_power{number}_input", None)


class RaplMeter:
    """The energy counters of Intel and AMD processors: packages and their memory.

    The counters wrap around, some after minutes at full load: they have to be read at least once
    in between. `now_ns` is the steady clock.
    """

    def __init__(self, files: SystemFiles, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._files = files
        self._now_ns = now_ns
        self._counters: list[_Counter] = []
        self.notes: tuple[str, ...] = ()
        names: dict[str, str] = {}
        for folder in files.glob("sys/class/powercap/intel-rapl:*"):
            zone = folder.rpartition("/")[2]
            name = files.read(f"{folder}/name") or zone
            names[zone] = name
            parent = names.get(zone.rpartition(":")[0])
            label = name if parent is None else f"{parent}/{name}"
            value = files.read_int(f"{folder}/energy_uj")
            largest = files.read_int(f"{folder}/max_energy_range_uj")
            if value is None or largest is None:
                self.notes = (
                    "power: /sys/class/powercap/*/energy_uj can be read by root only; "
                    "docs/platforms.md has the rule that lets a group read it",
                )
                continue
            # A package includes its cores and its graphics, not its memory; psys includes
            # everything.
            counts = name.startswith("package") or name == "dram"
            self._counters.append(_Counter(f"{folder}/energy_uj", label, counts, largest, value))
        self._since_ns = now_ns()
        self._base = [0 for _ in self._counters]
        self._last = Power()

    @property
    def found(self) -> bool:
        """Whether there are counters at all, readable or not."""
        return bool(self._counters or self.notes)

    def power(self) -> Power:
        """Mean power since the last call, or since the meter was made."""
        self._update()
        now_ns = self._now_ns()
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns < _SHORTEST_NS or not self._counters:
            return self._last
        rails = {
            counter.label: (counter.total_uj - base) * 1e3 / elapsed_ns
            for counter, base in zip(self._counters, self._base, strict=True)
        }
        counted = [rails[counter.label] for counter in self._counters if counter.counts]
        self._since_ns = now_ns
        self._base = [counter.total_uj for counter in self._counters]
        self._last = Power(sum(counted) if counted else None, MappingProxyType(rails))
        return self._last

    def energy_j(self) -> float | None:
        """Energy of packages and memory since the meter was made."""
        self._update()
        counted = [counter.total_uj for counter in self._counters if counter.counts]
        return sum(counted) * 1e-6 if counted else None

    def _update(self) -> None:
        for counter in self._counters:
            value = self._files.read_int(counter.path)
            if value is not None:
                step = value - counter.value
                counter.total_uj += step if step >= 0 else step + counter.largest
                counter.value = value


@dataclass(slots=True)
class _Counter:
    """A counter that wraps to 0 after `largest`."""

    path: str
    label: str
    counts: bool
    largest: int
    value: int
    total_uj: int = 0


class SumMeter:
    """Sum of several meters of different hardware."""

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)
        self.notes = tuple(note for meter in meters for note in meter.notes)

    def power(self) -> Power:
        """All rails; the total of the meters that have one."""
        powers = [meter.power() for meter in self._meters]
        totals = [power.total_w for power in powers if power.total_w is not None]
        rails = {name: watts for power in powers for name, watts in power.rails.items()}
        return Power(sum(totals) if totals else None, MappingProxyType(rails))

    def energy_j(self) -> float | None:
        """Sum over the meters that count energy."""
        energies = [meter.energy_j() for meter in self._meters]
        counted = [energy for energy in energies if energy is not None]
        return sum(counted) if counted else None


def has_power(platform: Platform) -> bool:
    """Whether `measure_mean_power` works there."""
    return platform.energy_j() is not None or platform.power().total_w is not None


def measure_mean_power(platform: Platform, clock: Clock, work: Callable[[], object]) -> float:
    """Measure the mean power of the board, in watts, while `work` is called for `POWER_NS`.

    Without a counter of energy the power is read on a thread of its own: readings between
    frames would be biased, since the GPU idles then. `PlatformError` when there is none.
    """
    before_j = platform.energy_j()
    samples: list[float] = []
    stop = threading.Event()

    def sample() -> None:
        while True:
            total_w = platform.power().total_w
            if total_w is not None:
                samples.append(total_w)
            if stop.wait(_PERIOD_S):
                return

    thread = threading.Thread(target=sample, name="power", daemon=True)
    begin_ns = clock.now_ns()
    try:
        if before_j is None:
            thread.start()
        while clock.now_ns() < begin_ns + POWER_NS:
            work()
    finally:
        stop.set()
        if before_j is None:
            thread.join()
    seconds = (clock.now_ns() - begin_ns) / 1e9
    after_j = platform.energy_j()
    if before_j is not None and after_j is not None:
        return (after_j - before_j) / seconds
    if not samples:
        raise PlatformError(f"{platform.title} gave no power within {seconds:.0f} s")
    return statistics.fmean(samples)
