# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Drift of a task's execution times from its profile, per variant and clock configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jetson_dnn_rt.coordinator.tables.files import TableFile, load_tables
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.traces.drift import LEAST_TIMES, DriftMonitor, TimeProfile

TABLES = "tables.json"  # in a folder of ``profile --output``
# Of a task: variants, alone and joined inside frames, times clock configurations.
MOST_MONITORS = 64


@dataclass(frozen=True)
class TimeProfiles:
    """Profiles that the times of a task are compared with.

    `source` is the path of the file; empty = the first frames are the profile. `by_variant` has
    profiles by the clock configuration in words; a file made at a single configuration applies to
    any clocks: its key is empty.
    """

    source: str = ""
    by_variant: Mapping[str, Mapping[str, TimeProfile]] = field(default_factory=dict)

    @property
    def by_clocks(self) -> bool:
        """Whether the profile that applies depends on the clocks."""
        return any(clocks for found in self.by_variant.values() for clocks in found)

    def find(self, variant: str, clocks: str) -> TimeProfile | None:
        """Profile of a variant at clocks; None where there is none."""
        profiles = self.by_variant.get(variant, {})
        return profiles.get("") or profiles.get(clocks)


def load_time_profiles(path: str, task: str) -> TimeProfiles:
    """Read the profiles of a task from the tables of ``jetson-dnn-rt profile``.

    `path` is the file or its folder; empty = no profile. A file with the tables of one task only
    is used whatever that task's name is. Raises `ConfigurationError` when the file cannot be read,
    lacks the task, or was made with too few runs.
    """
    if not path:
        return TimeProfiles()
    file = Path(path).expanduser()
    file = file / TABLES if file.is_dir() else file
    tables = load_tables(file)
    try:
        return TimeProfiles(str(file), _read(tables, task))
    except (KeyError, ValueError) as error:
        raise ConfigurationError(f"profile {file}: {error.args[0]}") from error


def _read(tables: TableFile, task: str) -> dict[str, dict[str, TimeProfile]]:
    table = tables.tables[0] if len(tables.tables) == 1 else tables.table(task)
    frames = table.times_ns.shape[2]
    if frames < LEAST_TIMES:
        raise ValueError(
            f"{frames} frames of {table.task} have no p99: profile with --runs {LEAST_TIMES} or "
            "more"
        )
    several = len(tables.clocks) > 1
    found: dict[str, dict[str, TimeProfile]] = {}
    for v, variant in enumerate(table.variants):
        profiles = found.setdefault(variant, {})
        for position in range(len(tables.clocks)):
            # [K, S] by [K]: what each frame takes at these clocks, all stages together.
            times_ns = table.slowdown[v, :, position] @ table.times_ns[v]
            clocks = tables.clocks.describe(position) if several else ""
            profiles[clocks] = TimeProfile.of(np.ceil(times_ns).astype(np.int64).tolist())
    return found


@dataclass(frozen=True)
class DriftState:
    """Drift of one variant at one clock configuration."""

    variant: str
    clocks: str  # in words; empty = any
    p99_ms: float  # of the profile; NaN while it is learned
    profiled: int  # frames behind the profile; so far, while it is learned
    judged: int  # frames compared with it
    recent: float  # share of about the last 512 frames that took longer; NaN before any
    level: float  # of the CUSUM, relative to its limit: an alarm from 1 until it is 0 again
    alarm: bool
    alarms: int  # how often an alarm began

    @property
    def title(self) -> str:
        """``full@torch-fp32``, with the clocks where they matter."""
        return _title(self.variant, self.clocks)


def _title(variant: str, clocks: str) -> str:
    return f"{variant} at {clocks}" if clocks else variant


@dataclass(frozen=True)
class DriftSnapshot:
    """Drift of a task: its profile's path, what was compared, and what was not profiled."""

    source: str = ""
    states: tuple[DriftState, ...] = ()  # in the order in which the variants first ran
    unknown: tuple[str, ...] = ()

    @property
    def level(self) -> float:
        """Highest level of all; NaN while nothing is compared."""
        levels = [state.level for state in self.states if not math.isnan(state.level)]
        return max(levels, default=math.nan)


class DriftWatch:
    """A monitor for each variant and clock configuration that has a profile. Not thread-safe.

    Without `profiles` the first frames of each are the profile. `clocks` gives the configuration
    in effect at a steady time in ns, in words; empty = unknown. Where the first frames are the
    profile it must be what was *set*: otherwise a board that throttles would get a profile of its
    throttled state.
    """

    def __init__(
        self, profiles: TimeProfiles | None = None, clocks: Callable[[int], str] = lambda ns: ""
    ) -> None:
        self._profiles = profiles or TimeProfiles()
        any_clocks = self._profiles.source and not self._profiles.by_clocks
        self._clocks = (lambda ns: "") if any_clocks else clocks
        self._monitors: dict[tuple[str, str], DriftMonitor | None] = {}
        # Charts take milliseconds to design and are cached: now, not on the delivery thread.
        DriftMonitor()
        for found in self._profiles.by_variant.values():
            for profile in found.values():
                DriftMonitor(profile)

    def observe(self, variant: str, start_ns: int, time_ns: int) -> None:
        """Compare the execution time of a frame that ended."""
        key = (variant, self._clocks(start_ns))
        try:
            monitor = self._monitors[key]
        except KeyError:
            if len(self._monitors) >= MOST_MONITORS:
                return
            monitor = None
            if not self._profiles.source:
                monitor = DriftMonitor()
            elif (profile := self._profiles.find(*key)) is not None:
                monitor = DriftMonitor(profile)
            self._monitors[key] = monitor
        if monitor is not None:
            monitor.observe(time_ns)

    def snapshot(self) -> DriftSnapshot:
        """All figures at this moment."""
        states, unknown = [], []
        for key, monitor in self._monitors.items():
            if monitor is None:
                unknown.append(_title(*key))
                continue
            profile = monitor.profile
            states.append(
                DriftState(
                    *key,
                    math.nan if profile is None else profile.p99_ns / 1e6,
                    monitor.learned if profile is None else profile.count,
                    monitor.judged,
                    monitor.recent,
                    monitor.level,
                    monitor.alarm,
                    monitor.alarms,
                )
            )
        return DriftSnapshot(self._profiles.source, tuple(states), tuple(unknown))
