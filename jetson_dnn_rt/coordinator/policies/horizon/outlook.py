# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Look-up tables of `horizon`: everything that can be computed before the first frame.

For one task, boundary and clock configuration a *ladder* is a list of steps, each a plan: with
more time there is a better one. The plan for a given time is found by bisection. The *grid* has
the costs for all clock configurations at once, for times in fixed steps, so that the cost of a
whole cohort at every clock configuration is a sum of rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.policies.horizon.frontier import Rest, build_rests, tail_quantile
from jetson_dnn_rt.coordinator.tables.hull import new_minima
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, TaskTable

LEVELS = 512  # steps of a grid
STEP = 2.0 / LEVELS
"""Step in relative deadlines. No frame has more than two: one for itself, and as much again when
the machine turns out to be twice as fast as profiled."""

IMPOSSIBLE = 1e3
"""Cost of a deadline that cannot be met, in frames' energies: more than all other costs."""
SHORT = 100.0
"""Extra cost per missing multiple of the time needed: one percent costs as much as a frame's
energy. It decides between clocks of which none is safe, where the last percent is not worth any
price."""
FORBIDDEN = 1e2  # cost of accuracy below the floor, a whole frame's, in frames' energies
USUAL = 0.8  # quantile of a plan's time that has to fit, beside the safe one of its next stage

DELAY_PARTS = 8  # steps in which the rest of an actuation delay is counted

LOSS_WEIGHTS = {"min_energy": 1e-3, "max_accuracy": 1e2, "streaming": 1e2}
"""Weight of accuracy by mode, `Horizon.energy_per_accuracy` in ``balanced``. The small value only
breaks ties."""


@dataclass(frozen=True)
class Objective:
    """Weights of the cost of a plan, in joules."""

    joules: float  # weight of energy among the plans of a frame, at given clocks
    shared_joules: float  # weight of energy between clock configurations
    loss: float  # weight of accuracy: a whole frame's is worth this many frames' energies
    loss_allowed: float = 1.0  # accuracy that a frame may lose without costing `FORBIDDEN`
    reference_j: float = 1.0  # energy of a frame, the unit of the accuracy's costs
    aging_per_ns: float = 0.0  # accuracy lost by a nanosecond of the plan's usual time


@dataclass(frozen=True, slots=True)
class Ladder:
    """Plans for one boundary at one clock configuration, by rising time and quality."""

    need_ns: list[float]
    """Time that each step needs, rising. Below the first one nothing is safe, and the first is
    used."""
    plans: list[int]  # rows of `Rest.plans`
    variants: list[int]  # variants of their next stages

    def find(self, time_ns: float) -> int:
        """Step for this much time."""
        return max(0, bisect_right(self.need_ns, time_ns) - 1)


def plan_costs(rest: Rest, objective: Objective, joules: float) -> Floats:
    """Cost of every plan at every clock configuration with this weight of energy, [P, C].

    `objective` is that of the rest of the frame, see `at_boundaries`.
    """
    unit = objective.reference_j
    excess = np.maximum(0.0, rest.loss - objective.loss_allowed - 1e-12)
    lost = unit * (objective.loss * rest.loss + FORBIDDEN * excess)
    aged = unit * objective.loss * objective.aging_per_ns * rest.usual_ns
    return np.asarray(joules * rest.energy_j + lost[:, None] + aged)


def at_boundaries(objective: Objective, rests: Sequence[Rest]) -> list[Objective]:
    """Objectives from each boundary on.

    Derived: of the accuracy that the frame may lose, the finished stages have used their share.
    What a frame has really lost is known at its own boundaries (`horizon.floor`).
    """
    most = max(float(rests[0].loss.max()), 1e-12)
    return [
        replace(objective, loss_allowed=objective.loss_allowed * float(rest.loss.max()) / most)
        for rest in rests
    ]


def build_ladder(rest: Rest, clocks: int, costs: Floats, reserve: float = 1.0) -> Ladder:
    """Steps at a clock configuration: need rises, cost falls. `reserve`: see `Rest.need_ns`."""
    need = rest.need_ns(reserve)[:, clocks]
    # Of equals the one whose next stage is the most accurate: it leaves later choices open.
    order = np.lexsort((rest.plans[:, 0], costs[:, clocks], need))
    kept = order[new_minima(costs[order, clocks], 1e-12)]
    return Ladder(need[kept].tolist(), kept.tolist(), rest.plans[kept, 0].tolist())


def build_grid(
    rest: Rest, ladders: Sequence[Ladder], costs: Floats, deadline_ns: int, reference_j: float
) -> Floats:
    """Costs by time and clock configuration, [LEVELS, C].

    Row g is the cost with g * `STEP` relative deadlines left. Where nothing fits, the cost grows
    with the time that is missing.
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


@dataclass(frozen=True, eq=False)
class Outlook:
    """Possible times and costs of one task's frames, from K boundaries, at C configurations."""

    rests: tuple[Rest, ...]  # plans by boundary
    objectives: list[Objective]  # weights of their costs, by boundary
    ladders: list[list[Ladder]]  # by boundary and clock configuration
    grids: npt.NDArray[np.float32]
    """`build_grid` by boundary, [K + 1, LEVELS, C]; the last one is for a frame that begins at
    these clocks and requests the best ones then."""
    full_ns: Floats  # need of the most accurate plan, [K, C]
    change_ns: Floats
    """Time lost (negative) from each boundary on because work continues at clocks [i] until [j]
    take effect, where those are faster; by the remaining part of the delay, [DELAY_PARTS + 1, K,
    C, C]."""
    reserve: float  # see `expect_others`


def build_outlook(
    table: TaskTable,
    clocks: ClockTable,
    confidence: float,
    weights: Objective,
    slowed: float = 1.0,
    reserve: float = 1.0,
) -> Outlook:
    """Compute a task's look-up tables; for `slowed` and `reserve` see `expect_others`."""
    rests = build_rests(table, clocks, confidence, USUAL)
    objective = replace(weights, reference_j=max(float(rests[0].energy_j[0].min()), 1e-9))
    objectives = at_boundaries(objective, rests)
    ladders, grids, full = [], [], []
    for rest, objective in zip(rests, objectives, strict=True):
        own = plan_costs(rest, objective, objective.joules)
        steps = [build_ladder(rest, position, own, reserve) for position in range(len(clocks))]
        ladders.append(steps)
        costs = plan_costs(rest, objective, objective.shared_joules)
        grids.append(build_grid(rest, steps, costs, table.deadline_ns, objective.reference_j))
        full.append(rest.need_ns(reserve)[int(rest.loss.argmin())])
    frames = table.times_ns[0].sum(axis=0)
    tail = float(tail_quantile(frames.astype(np.float64), confidence))
    change_ns = lost_by_change(table, clocks, slowed) * (reserve * tail / float(np.median(frames)))
    grids.append(_begin_elsewhere(grids[0], change_ns[-1, 0] / table.deadline_ns))
    made = np.stack(grids).astype(np.float32)
    return Outlook(rests, objectives, ladders, made, np.stack(full), change_ns, reserve)


def weigh_energy(
    duty: Sequence[float], workers: int, interference: Sequence[float]
) -> tuple[float, float]:
    """Weights of energy in a cohort: for a frame's plan at given clocks, and between clocks.

    Derived: with concurrent stages the board is busy most of the time, and another stage hardly
    raises the power. Each of n stages that slow each other down by I(n) then costs I(n) / n of its
    cost alone; and a stage made faster saves energy only while no other one runs. `duty` is the
    share of the time that each member is expected to run, `interference` the slow-down with 1, 2,
    ... concurrent stages, one for each member.
    """
    if workers == 1:
        return 1.0, 1.0
    idle = prod(1.0 - share for share in duty)
    alone = idle / max(1.0 - max(duty), 1e-9) if idle else 0.0
    at_once = min(float(workers), max(1.0, sum(duty) / max(1.0 - idle, 1e-9)))
    slowed = float(np.interp(at_once, np.arange(1, len(interference) + 1), interference))
    return max(min(1.0, alone), 1e-3), slowed / at_once


def expect_others(
    member: int,
    duty: Sequence[float],
    workers: int,
    interference: Sequence[float],
    deviations: float,
) -> tuple[float, float]:
    """Return the mean interference of a member by the others, and a reserve as a factor on it.

    Derived: the others run independently, each for its share of the time. The reserve covers a
    number of standard deviations above their mean count.
    """
    others = [share for other, share in enumerate(duty) if other != member]
    mean = min(float(workers), 1.0 + sum(others))
    spread = sum(share * (1.0 - share) for share in others) ** 0.5
    counts = np.arange(1, len(interference) + 1)
    usual = float(np.interp(mean, counts, interference))
    most = float(np.interp(min(float(workers), mean + deviations * spread), counts, interference))
    return usual, most / usual


def lost_by_change(table: TaskTable, clocks: ClockTable, slowed: float = 1.0) -> Floats:
    """Compute `Outlook.change_ns`: the most that any variant loses, in time as if alone.

    While a rise is under way the next stages still run at the slower pace. It matters which ones:
    a memory-bound stage depends on other clocks than a compute-bound one; so the loss is added up
    stage by stage. Where the rest finishes before the change, all of it ran at the slower pace.
    With concurrent stages, `slowed` by them, less of it is done during the delay.
    """
    delays = _delays_ns(clocks) / slowed
    stages = len(table.stages)
    parts = np.arange(DELAY_PARTS + 1)[:, None, None] / DELAY_PARTS
    lost = np.zeros((len(parts), stages, *delays.shape))
    for median_ns, slowdown in zip(table.median_ns, table.slowdown, strict=True):
        stages_ns = median_ns[:, None] * slowdown
        for boundary in range(stages):
            here, left = np.zeros_like(lost[:, 0]), delays * parts
            for times in stages_ns[boundary:]:
                slow = times[:, None]
                here += np.minimum(1.0, left / slow) * (times - slow)
                left = np.maximum(0.0, left - slow)
            np.minimum(lost[:, boundary], here, out=lost[:, boundary])
    return lost


def _delays_ns(clocks: ClockTable) -> Floats:
    """Delay of every change, [C, C]: that of the slowest domain that changes."""
    options = clocks.space.option_indices[clocks.indices]
    delays = np.zeros((len(clocks), len(clocks)))
    for column, domain in enumerate(clocks.space.domains):
        changes = options[:, None, column] != options[None, :, column]
        np.maximum(delays, np.where(changes, float(domain.delay_ns), 0.0), out=delays)
    return delays


def _begin_elsewhere(grid: Floats, change: Floats) -> Floats:
    """Grid of a frame that begins at clocks [c]; `change` is in relative deadlines."""
    lost = np.floor(change / STEP + 1e-9).astype(np.int64)
    levels, columns = np.arange(LEVELS)[:, None], np.arange(grid.shape[1])
    begun = np.empty_like(grid)
    for present in columns:
        left = np.maximum(0, levels + lost[present])
        begun[:, present] = grid[left, columns].min(axis=1)
    return begun


def over_cap(
    clocks: ClockTable,
    tables: Sequence[TaskTable],
    cap_w: float,
    workers: int,
    interference: Sequence[float],
    unit_j: float,
) -> Floats | None:
    """Cost of clock configurations whose power may exceed the cap, [C]; None without one.

    Derived: n concurrent stages run at 1 / I(n) of the speed, so their power is at most n / I(n)
    times one's: an upper bound, since no part of the board is busy more than all the time. When
    even the slowest clocks may exceed it, those that exceed it least remain.
    """
    if not cap_w:
        return None
    rise = max(n / slowed for n, slowed in enumerate(interference[:workers], 1))
    stage_w = np.max([t.power_w.max(axis=(0, 1)) - clocks.idle_w for t in tables], axis=0)
    excess = np.maximum(0.0, clocks.idle_w + rise * np.maximum(stage_w, 0.0) - cap_w)
    excess -= excess.min()
    return np.asarray(np.where(excess > 0.0, 1e3 * IMPOSSIBLE * unit_j * (1.0 + excess), 0.0))
