"""Compares the times of a task with its profile, per variant and clock configuration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from jetson_dnn_rt.nodes.reports.time_profiles import TimeProfiles
from jetson_dnn_rt.traces.drift import DriftMonitor

MOST_MONITORS = 64
"""Of one task: variants, alone and joined inside frames, times clock configurations."""


def no_clocks(time_ns: int) -> str:
    """Nobody sets the clocks."""
    return ""


@dataclass(frozen=True)
class DriftState:
    """What is known of one variant at one clock configuration.

    Attributes
    ----------
    variant, clocks : str
        Which; `clocks` in words, empty = whatever they are.
    p99_ms : float
        Of the profile; NaN while it is learned.
    profiled : int
        Times behind it; so far, while it is learned.
    judged : int
        Frames compared with it.
    recent : float
        Share of about the last 512 frames that took longer; NaN before any.
    level : float
        Of the CUSUM, relative to its limit: an alarm from 1 until it is 0 again.
    alarm, alarms : bool, int
        Whether the times no longer match, and how often that began.
    """

    variant: str
    clocks: str
    p99_ms: float
    profiled: int
    judged: int
    recent: float
    level: float
    alarm: bool
    alarms: int

    @property
    def title(self) -> str:
        """``full@torch-fp32``, with the clocks where they count."""
        return f"{self.variant} at {self.clocks}" if self.clocks else self.variant


@dataclass(frozen=True)
class DriftSnapshot:
    """What is known of a task.

    Attributes
    ----------
    source : str
        Path of the profile; empty = the first frames.
    states : tuple of DriftState
        In the order in which the variants first ran.
    unknown : tuple of str
        Variants that ran and were not profiled, with their clocks.
    """

    source: str = ""
    states: tuple[DriftState, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def level(self) -> float:
        """Highest level of all; NaN while nothing is compared."""
        levels = [state.level for state in self.states if not math.isnan(state.level)]
        return max(levels, default=math.nan)


class DriftWatch:
    """A monitor for each variant and clock configuration that has a profile. Not thread-safe.

    Parameters
    ----------
    profiles : TimeProfiles
        What to compare with; without any, the first frames of each.
    clocks : callable
        Configuration that held at a steady time in ns, in words; empty = not known. Where the
        first frames are the profile, it must be what was *set*: a board that throttles would else
        have a profile for being slow.
    """

    def __init__(
        self, profiles: TimeProfiles | None = None, clocks: Callable[[int], str] = no_clocks
    ) -> None:
        self._profiles = profiles or TimeProfiles()
        whatever = self._profiles.source and not self._profiles.by_clocks
        self._clocks = no_clocks if whatever else clocks
        self._monitors: dict[tuple[str, str], DriftMonitor | None] = {}
        # Charts take milliseconds to design and are kept: now, not on the delivery thread.
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
            monitor = self._monitors[key] = self._make(*key)
        if monitor is not None:
            monitor.observe(time_ns)

    def _make(self, variant: str, clocks: str) -> DriftMonitor | None:
        if not self._profiles.source:
            return DriftMonitor()
        profile = self._profiles.find(variant, clocks)
        return None if profile is None else DriftMonitor(profile)

    def snapshot(self) -> DriftSnapshot:
        """Everything that is known."""
        states, unknown = [], []
        for (variant, clocks), monitor in self._monitors.items():
            if monitor is None:
                unknown.append(f"{variant} at {clocks}" if clocks else variant)
                continue
            profile = monitor.profile
            states.append(
                DriftState(
                    variant,
                    clocks,
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
