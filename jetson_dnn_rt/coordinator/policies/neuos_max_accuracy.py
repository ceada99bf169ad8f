"""NeuOS for most accuracy (M_A)."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.neuos import Candidate, NeuOS


class NeuOSMaxAccuracy(NeuOS):
    """``argmin over delta in Delta of sum_j max(0, a_j(delta))`` (Bateni & Liu 2020, section 4.3).

    The candidate that leaves the cohort the least to approximate. Several may leave nothing; of
    them the one of the least PowerUp is taken. That is a reading: the paper does not say.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate that asks for the least approximation."""
        best, least = delta[0].clocks, (float("inf"), 0.0)
        powers: dict[int, float] = {}
        for candidate in delta:
            power = powers.get(candidate.clocks)
            if power is None or candidate.power_up < power:
                powers[candidate.clocks] = candidate.power_up
        for clocks, power in powers.items():
            shares = self.remaining_speed_ups(delta, cohort.clocks, clocks)
            cost = (sum([share for share in shares if share > 0.0]), power)
            if cost < least:
                best, least = clocks, cost
        return best
