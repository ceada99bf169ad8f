"""The objective of `horizon` over the plans of a frame: what each amount of time is worth.

For one task, boundary and clock configuration a *ladder* is a list of steps, each a plan: with
more time there is a better one. Finding the plan for a given time is a bisection. The *grid* says
the same for all clock configurations at once, for times in fixed steps, so that the cost of a
whole cohort at every clock configuration is a sum of rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.policies.horizon.frontier import Rest

Floats = npt.NDArray[np.float64]

LEVELS = 512
"""Steps of a grid."""
STEP = 2.0 / LEVELS
"""Of a grid, in relative deadlines. No frame has more than two: one for itself, and as much again
when the machine turns out to be twice as fast as profiled."""

IMPOSSIBLE = 1e3
"""Cost of a deadline that cannot be kept, in frames' energies: more than all the rest."""
SHORT = 100.0
"""And of each whole need that is lacking: one percent counts as much as a frame's energy. It
decides between clocks of which none is safe, where the last percent is not worth any price."""
FORBIDDEN = 1e2
"""Cost of accuracy below the floor, a whole frame's, in frames' energies."""


@dataclass(frozen=True)
class Objective:
    """What a plan costs, in joules.

    Attributes
    ----------
    reference_j : float
        Energy of a frame, the unit of what follows.
    joules : float
        Weight of energy among the plans of a frame, at given clocks.
    shared_joules : float
        Weight of energy between clock configurations.
    loss : float
        Weight of accuracy: a whole frame's is worth so many frames' energies.
    loss_allowed : float
        Accuracy that the rest may lose without its costing `FORBIDDEN`.
    """

    reference_j: float
    joules: float
    shared_joules: float
    loss: float
    loss_allowed: float = 1.0


@dataclass(frozen=True, slots=True)
class Ladder:
    """Steps for one boundary at one clock configuration.

    Attributes
    ----------
    need_ns : list of float
        Time from which on each step can be taken, rising. Below the first one nothing is safe,
        and the first is what there is.
    plans : list of int
        Rows of `Rest.plans`.
    variants : list of int
        Their next stages' variants.
    """

    need_ns: list[float]
    plans: list[int]
    variants: list[int]

    def find(self, time_ns: float) -> int:
        """Step for this much time."""
        return max(0, bisect_right(self.need_ns, time_ns) - 1)


def plan_costs(rest: Rest, objective: Objective, joules: float) -> Floats:
    """Cost of every plan at every clock configuration with this weight of energy, [P, C]."""
    unit = objective.reference_j
    excess = np.maximum(0.0, rest.loss - objective.loss_allowed - 1e-12)
    lost = unit * (objective.loss * rest.loss + FORBIDDEN * excess)
    return np.asarray(joules * rest.energy_j + lost[:, None])


def build_ladder(rest: Rest, clocks: int, costs: Floats, reserve: float = 1.0) -> Ladder:
    """Steps at a clock configuration: need rises, cost falls. `reserve`: see `Rest.need_ns`."""
    need = rest.need_ns(reserve)[:, clocks]
    # Of equals the one whose next stage is the most accurate: it leaves open what comes later.
    order = np.lexsort((rest.plans[:, 0], costs[:, clocks], need))
    least = np.minimum.accumulate(costs[order, clocks])
    keep = np.ones(len(order), dtype=bool)
    keep[1:] = costs[order[1:], clocks] < least[:-1] - 1e-12
    kept = order[keep]
    return Ladder(need[kept].tolist(), kept.tolist(), rest.plans[kept, 0].tolist())


def build_grid(
    rest: Rest, ladders: Sequence[Ladder], costs: Floats, deadline_ns: int, reference_j: float
) -> Floats:
    """Costs by time and clock configuration, [LEVELS, C].

    Row g is what g * `STEP` relative deadlines are worth. Where nothing fits, the cost says by how
    much.
    """
    times = deadline_ns * STEP * np.arange(LEVELS)
    grid = np.empty((LEVELS, len(ladders)))
    for clocks, ladder in enumerate(ladders):
        step = np.searchsorted(ladder.need_ns, times, side="right") - 1
        column = costs[ladder.plans, clocks][np.maximum(step, 0)]
        short = ladder.need_ns[0] / np.maximum(times, deadline_ns * STEP)
        risk = reference_j * (IMPOSSIBLE + SHORT * (short - 1.0))
        grid[:, clocks] = np.where(step < 0, column + risk, column)
    return grid
