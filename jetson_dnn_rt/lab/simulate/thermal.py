"""Temperature of a board, and when its kernel throttles."""

from __future__ import annotations

import math

from jetson_dnn_rt.lab.simulate.board import Thermal


class ThermalState:
    """One resistance, one capacity: ``C dT/dt = P - (T - T_air) / R``.

    Between two looks the power counts with its mean, for which the solution is exact.

    Parameters
    ----------
    thermal : Thermal
        The parameters.

    Attributes
    ----------
    temperature_c : float
        Of the chip.
    throttled : bool
        From ``trip_c`` on, until it is ``hysteresis_k`` lower.
    """

    def __init__(self, thermal: Thermal) -> None:
        self._thermal = thermal
        self.temperature_c = thermal.initial_c
        self.throttled = thermal.initial_c >= thermal.trip_c

    def advance(self, time_ns: int, mean_power_w: float) -> bool:
        """Let time pass at a power; whether `throttled` changed."""
        thermal = self._thermal
        time_constant_s = thermal.resistance_k_per_w * thermal.capacity_j_per_k
        final_c = thermal.ambient_c + thermal.resistance_k_per_w * mean_power_w
        decay = math.exp(-time_ns * 1e-9 / time_constant_s)
        self.temperature_c = final_c + (self.temperature_c - final_c) * decay
        before = self.throttled
        if self.temperature_c >= thermal.trip_c:
            self.throttled = True
        elif self.temperature_c <= thermal.trip_c - thermal.hysteresis_k:
            self.throttled = False
        return self.throttled != before
