# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reduction of a board's clock configurations to the few that are worth choosing.

Nearly all of the tens of thousands of configurations are beaten by another one that is faster and
costs less. The others are the Pareto front of time and cost, and within it the lower convex hull:
the configurations that are best for some price of time. TX2's 11,760 and Xavier's 51,968 become a
few tens, which a policy can go through at a boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, Integers, TaskTable


def new_minima(values: Floats, margin: float = 0.0) -> npt.NDArray[np.bool_]:
    """Mask of values that are below all before them, by more than a margin."""
    new = np.ones(len(values), bool)
    new[1:] = values[1:] < np.minimum.accumulate(values)[:-1] - margin
    return new


def pareto_front(time: npt.ArrayLike, cost: npt.ArrayLike) -> Integers:
    """Return the positions of points, [N] each, that no other beats in both time and cost.

    In rising order of time, and so in falling order of cost. Infinite or NaN: cannot be chosen. Of
    points equal in both the first one is kept (symmetric core masks).
    """
    times, costs = np.asarray(time, np.float64), np.asarray(cost, np.float64)
    if times.ndim != 1 or times.shape != costs.shape:
        raise ValueError(f"time and cost must be equally long: {times.shape}, {costs.shape}")
    usable = np.flatnonzero(np.isfinite(times) & np.isfinite(costs))
    order = usable[np.lexsort((costs[usable], times[usable]))]
    front: Integers = order[new_minima(costs[order])].astype(np.int64)
    return front


def lower_hull(time: npt.ArrayLike, cost: npt.ArrayLike) -> Integers:
    """Return the positions of the lower convex hull of the Pareto front, in rising order of time.

    For every price w >= 0 of time, one of them has the least ``cost + w * time`` of all; a mixture
    of two neighbours beats every point between them. The fastest and the cheapest are the ends.
    """
    front = pareto_front(time, cost)
    times = np.asarray(time, np.float64)[front].tolist()
    costs = np.asarray(cost, np.float64)[front].tolist()
    hull: list[int] = []  # Andrew's monotone chain
    for i in range(len(front)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            turn = (times[b] - times[a]) * (costs[i] - costs[a])
            turn -= (costs[b] - costs[a]) * (times[i] - times[a])
            if turn > 0.0:
                break
            hull.pop()
        hull.append(i)
    return front[hull]


def reduce_clocks(
    clocks: ClockTable, tables: Sequence[TaskTable], *, tolerance: float = 0.03
) -> tuple[ClockTable, list[TaskTable]]:
    """Keep the configurations that are worth choosing for some task in some variant.

    With the default: for any time limit of a frame, a remaining one meets it for at most 3 % more
    than the best of all. Cost is counted in three ways: energy of a frame, energy of a frame above
    the least that the board takes idle, and mean power (for a cap); for each task, variant and
    cost the Pareto front of time and cost is kept. Of these, one is dropped where remaining ones
    are as fast and at most `tolerance` more expensive on every front that it is on; 0 keeps them
    all. The board's slowest and fastest configuration and its presets Max-N and Max-Q always stay,
    so that every policy finds its own. The result is ordered by rising speed (mean over tasks and
    variants).
    """
    if not tolerance >= 0.0:
        raise ValueError(f"tolerance must be >= 0: {tolerance}")
    if not tables or any(table.slowdown.shape[2] != len(clocks) for table in tables):
        raise ValueError(f"tables must be at least one, of {len(clocks)} clocks each")
    curves = [(time, cost, pareto_front(time, cost)) for time, cost in _curves(clocks, tables)]
    always = sorted({clocks.slowest, clocks.fastest, clocks.max_n, clocks.max_q})
    chosen = always + _cover(curves, always, tolerance)
    slowness = sum(np.log(time / time.min()) for time, _, _ in curves)
    chosen.sort(key=lambda position: (-slowness[position], position))
    return clocks.take(chosen), [table.take_clocks(chosen) for table in tables]


def _curves(clocks: ClockTable, tables: Sequence[TaskTable]) -> Iterator[tuple[Floats, Floats]]:
    """Time and cost of a frame at all clocks, [C] each: tasks x variants x costs."""
    idle_w = float(clocks.idle_w.min())
    for table in tables:
        for variant in range(len(table.variants)):
            time, energy = table.frame_costs(variant)
            with np.errstate(invalid="ignore"):  # infinite where the task cannot run
                costs = energy, energy - idle_w * time, energy / time
            for cost in costs:
                yield time, cost


def _cover(
    curves: Sequence[tuple[Floats, Floats, Integers]], always: Sequence[int], tolerance: float
) -> list[int]:
    """Points of all curves without those that others replace (greedy set cover)."""
    candidates = np.unique(np.concatenate([points for _, _, points in curves]))
    if tolerance == 0.0:
        return [position for position in candidates.tolist() if position not in always]

    def covers(positions: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether a position can replace a point, [points of all curves, positions]."""
        by = np.asarray(positions, np.int64)
        return np.concatenate(
            [
                (time[by] <= time[points, np.newaxis])
                # Above 0, or a share more expensive would mean cheaper.
                & (
                    cost[by]
                    <= cost[points, np.newaxis] + tolerance * abs(cost[points, np.newaxis])
                )
                for time, cost, points in curves
            ]
        )

    by_candidate = covers(candidates)
    to_do = ~covers(always).any(axis=1)
    chosen: list[int] = []
    while to_do.any():
        best = int(by_candidate[to_do].sum(axis=0).argmax())
        chosen.append(int(candidates[best]))
        to_do &= ~by_candidate[:, best]
    return chosen
