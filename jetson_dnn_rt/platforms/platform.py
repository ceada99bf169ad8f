"""What the coordinator sees of a machine: its clocks and its power."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.boards import PowerMode
from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockSpace


@dataclass(frozen=True, slots=True)
class Power:
    """What is drawn now.

    Attributes
    ----------
    total_w : float or None
        Of the whole board, or of all that is metered (see the platform); None where nothing can
        tell.
    rails : mapping of str to float
        By rail, W. Their sum is not the total where one feeds another.
    """

    total_w: float | None = None
    rails: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Platform(ABC):
    """A machine. Leaving its ``with`` block closes it.

    Attributes
    ----------
    name : str
        "jetson", "linux", "nvml" or "fixed".
    title : str
        What it is, for people.
    space : ClockSpace
        What its clocks can be; one configuration where there is nothing to see or to choose.
    writable : bool
        Whether `apply` works.
    reason : str
        Why not, with the fix; empty when it does.
    permitted : bool
        Whether this process has the rights that `apply` needs, asked for or not.
    notes : tuple of str
        What cannot be seen, measured or set, with the fix.
    modes : tuple of PowerMode
        Power modes that are known by name.
    active_mode : str
        The one that was set last; empty when there is none, or it cannot be seen.
    """

    name: str
    title: str
    space: ClockSpace
    writable: bool = False
    reason: str = ""
    permitted: bool = False
    notes: tuple[str, ...] = ()
    modes: tuple[PowerMode, ...] = ()
    active_mode: str = ""

    @abstractmethod
    def read(self) -> ClockConfiguration:
        """The clocks now: a frequency need not be an option, `ClockSpace.nearest` finds one.

        Raises
        ------
        PlatformError
            They cannot be read.
        """

    def apply(self, index: int) -> ClockConfiguration:
        """Set the clocks, return what the kernel made of them (it rounds, and it may refuse).

        They take effect `ClockSpace.delay_ns` later. May be called from any thread.

        Parameters
        ----------
        index : int
            Number of a configuration in `space`.

        Raises
        ------
        PlatformError
            The platform is not writable, or the kernel refused. What was changed until then
            stays so until the next `apply` or `restore`.
        IndexError
            `index` is not in the space.
        """
        raise PlatformError(f"clocks of {self.title} cannot be set: {self.reason}")

    def power(self) -> Power:
        """What is drawn now; no rails and no total where nothing is metered."""
        return Power()

    def energy_j(self) -> float | None:
        """Energy drawn since some time in the past; None where there is no counter."""
        return None

    def restore(self) -> None:  # noqa: B027  nothing was set, nothing is to be given back
        """Give back the clocks that were there before the first `apply`; then go on."""

    def close(self) -> None:
        """Restore, and let go. May be called more than once."""
        self.restore()

    def __enter__(self) -> Platform:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def mode_index(self, name: str) -> int:
        """The configuration nearest to a power mode.

        Raises
        ------
        ValueError
            There is no such mode.
        """
        for mode in self.modes:
            if mode.name == name:
                return mode.index(self.space)
        known = ", ".join(mode.name for mode in self.modes) or "none"
        raise ValueError(f"power mode {name!r} of {self.title} is not one of: {known}")
