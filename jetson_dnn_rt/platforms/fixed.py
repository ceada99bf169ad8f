"""A machine whose clocks can neither be seen nor set: a container, a virtual machine."""

from __future__ import annotations

from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockSpace
from jetson_dnn_rt.platforms.platform import Platform


class FixedPlatform(Platform):
    """One clock configuration, no power.

    Parameters
    ----------
    reason : str
        Why nothing can be seen or set.
    """

    name = "fixed"

    def __init__(self, reason: str = "its clocks are fixed") -> None:
        self.title = "a machine with fixed clocks"
        self.space = ClockSpace([])
        self.reason = reason

    def read(self) -> ClockConfiguration:
        """The one configuration there is."""
        return ()
