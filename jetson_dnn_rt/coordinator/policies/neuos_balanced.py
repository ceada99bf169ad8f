"""NeuOS between energy and accuracy (S)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.neuos import Candidate, NeuOS


class NeuOSBalanced(NeuOS):
    """The statistical approach of NeuOS (Bateni & Liu 2020, section 4.3).

    With the influence set ``I = {(D_i + LAG_i) / D_i}`` and the threshold t = std(I), or the
    designer's, instances fall into three groups by abs(LAG), with bounds at one and two thirds
    of the largest.

    A reading: the rule that selects from the groups was lost. Here, with ``m = abs(mean(I) - 1)``,
    m > 2t takes the group of the largest abs(LAG), t < m <= 2t the middle one and m <= t the one
    of the smallest; inside the group the candidate of the least PowerUp. So a small t leads to
    faster configurations, as the paper says. An empty group stands back for the next larger one.
    """

    def pick(self, delta: Sequence[Candidate], cohort: Cohort) -> int:
        """The candidate of the least PowerUp in the group that the cohort's state selects."""
        # (D + LAG) / D = 2 - sigma: distances from the mean are those of sigma.
        count = len(delta)
        mean = sum([candidate.sigma for candidate in delta]) / count
        deviation = abs(mean - 1.0)
        threshold = self._settings.threshold
        if threshold == 0.0:
            threshold = sqrt(sum([(c.sigma - mean) ** 2 for c in delta]) / count)
        wanted = 3 if deviation > 2.0 * threshold else 2 if deviation > threshold else 1
        largest = max([abs(candidate.lag_ns) for candidate in delta])
        clocks, least = delta[0].clocks, (4, 0.0)
        for candidate in delta:
            group = group_of(candidate.lag_ns, largest)
            if group >= wanted and (group, candidate.power_up) < least:
                clocks, least = candidate.clocks, (group, candidate.power_up)
        return clocks


def group_of(lag_ns: int, largest_ns: int) -> int:
    """1, 2 or 3: up to a third of the largest abs(LAG), up to two thirds, above."""
    thrice = 3 * abs(lag_ns)
    return 1 if thrice <= largest_ns else 2 if thrice <= 2 * largest_ns else 3
