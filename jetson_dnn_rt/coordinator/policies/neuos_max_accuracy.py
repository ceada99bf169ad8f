"""NeuOS for most accuracy (M_A)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.neuos import Candidate, NeuOS


class NeuOSMaxAccuracy(NeuOS):
    """``argmin over delta in Delta of sum_j max(0, a_j(delta))`` (Bateni & Liu 2020, section 4.3).

    The candidate that leaves the cohort the least to approximate. Several may leave nothing; of
    them the one of the least PowerUp is taken. That is a reading: the paper does not say.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate that asks for the least approximation."""
        powers: dict[int, float] = {}
        for candidate in delta:
            clocks, power = candidate[:2]
            if power < powers.get(clocks, inf):
                powers[clocks] = power
        # Faster clocks leave less: with the fastest ones first, the others are soon too much.
        best = max(powers)
        least = self.approximation(delta, best)
        for clocks, power in powers.items():
            total = self.approximation(delta, clocks, least)
            if total < least or (total == least and power < powers[best]):
                best, least = clocks, total
        return best
