"""NeuOS for least energy (M_P)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.neuos import Candidate, NeuOS

_power_up = attrgetter("power_up")


class NeuOSMinEnergy(NeuOS):
    """``argmin over delta_i in Delta of PowerUp_i(delta_i)`` (Bateni & Liu 2020, section 4.3).

    Each candidate is judged by the PowerUp table of the instance that it suits. The others make
    up for the time with approximation.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate of the least PowerUp."""
        return min(delta, key=_power_up).clocks
