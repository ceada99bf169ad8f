"""Power of the board while stages run, and its integral over virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Quiet = Sequence[float]
"""Share of a stage's time in which GPU, CPU and memory do not work for it."""


class EnergyMeter:
    """Integrates the power exactly: it is constant between two events.

    A part of the board (GPU, CPU, memory) works while any of the stages side by side uses it.
    Their uses are taken as independent: with shares a and b it works 1 - (1 - a)(1 - b) of the
    time, which is a for a stage alone and never more than 1.

    Parameters
    ----------
    now_ns : int
        When counting begins.

    Attributes
    ----------
    power_w : float
        Since the last call of `set_power`.
    """

    def __init__(self, now_ns: int = 0) -> None:
        self.power_w = 0.0
        self._since_ns = now_ns
        self._watt_ns = 0.0

    @property
    def energy_j(self) -> float:
        """Up to the last call of `advance`."""
        return self._watt_ns * 1e-9

    def advance(self, now_ns: int) -> float:
        """Count up to now; returns the energy since the last call, in watt nanoseconds."""
        watt_ns = self.power_w * (now_ns - self._since_ns)
        self._watt_ns += watt_ns
        self._since_ns = now_ns
        return watt_ns


def board_power_w(idle_w: float, dynamic_w: Sequence[float], running: Iterable[Quiet]) -> float:
    """Power while stages run side by side.

    Parameters
    ----------
    idle_w : float
        While none does.
    dynamic_w : sequence of float
        More while GPU, CPU and memory work.
    running : iterable of (float, float, float)
        `Quiet` of each stage.
    """
    gpu = cpu = memory = 1.0
    for quiet in running:
        gpu *= quiet[0]
        cpu *= quiet[1]
        memory *= quiet[2]
    return (
        idle_w
        + dynamic_w[0] * (1.0 - gpu)
        + dynamic_w[1] * (1.0 - cpu)
        + dynamic_w[2] * (1.0 - memory)
    )
