# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The coordinator's view of a machine: its clocks and its power."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.boards import PowerMode, find_mode
from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockSpace


@dataclass(frozen=True, slots=True)
class Power:
    """Present power, in watts."""

    total_w: float | None = None
    """Power of the whole board, or of all that is metered (see the platform); None = unknown."""
    rails: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Power by rail. Their sum is not the total where one feeds another."""


class Platform(ABC):
    """A machine. Leaving its ``with`` block closes it."""

    name: str  # "jetson", "linux", "nvml" or "unknown"
    title: str  # its name for people
    space: ClockSpace
    """Its clock configurations; a single one where nothing is visible or selectable."""
    writable: bool = False  # whether `apply` works
    reason: str = ""  # why not, with the fix; empty when writable
    permitted: bool = False
    """Whether this process has the rights that `apply` needs, requested or not."""
    notes: tuple[str, ...] = ()  # limitations of reading, measuring and setting, with the fix
    modes: tuple[PowerMode, ...] = ()  # named power modes
    active_mode: str = ""
    """The mode that was set last; empty when there is none, or it is not visible."""

    @abstractmethod
    def read(self) -> ClockConfiguration:
        """The present clocks; frequencies need not be options: `ClockSpace.nearest` finds one."""

    def apply(self, index: int) -> ClockConfiguration:
        """Set the clocks and return those that the kernel set (it rounds, and may refuse).

        `index` is the number of a configuration in `space`. Clocks take effect
        `ClockSpace.delay_ns` later. May be called from any thread. PlatformError: the platform is
        not writable, or the kernel refused. Changes made before the error stay until the next
        `apply` or `restore`.
        """
        raise PlatformError(f"clocks of {self.title} cannot be set: {self.reason}")

    def power(self) -> Power:
        """Present power; no rails and no total where nothing is metered."""
        return Power()

    def energy_j(self) -> float | None:
        """Energy used since some time in the past; None where there is no counter."""
        return None

    def restore(self) -> None:  # noqa: B027  nothing was set
        """Restore the clocks from before the first `apply`."""

    def close(self) -> None:
        """Restore the clocks and release them. May be called more than once."""
        self.restore()

    def __enter__(self) -> Platform:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def mode_index(self, name: str) -> int:
        """The configuration nearest to a power mode; ValueError when there is no such mode."""
        return find_mode(self.modes, name, self.title).index(self.space)


class UnknownPlatform(Platform):
    """A machine whose clocks can be neither read nor set: a container, a virtual machine."""

    name = "unknown"

    title = "a machine without visible clocks"
    space = ClockSpace([])

    def __init__(self, reason: str = "its clocks are unknown") -> None:
        self.reason = reason

    def read(self) -> ClockConfiguration:
        """The only configuration."""
        return ()
