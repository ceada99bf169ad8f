"""Ladders and grids: the best plan for a given time, by bisection and for all clocks at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from cohorts import MS, make_clock_table, make_table
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tables import tables

from jetson_dnn_rt.coordinator.policies.horizon.frontier import build_rests
from jetson_dnn_rt.coordinator.policies.horizon.ladder import (
    LEVELS,
    STEP,
    Objective,
    build_grid,
    build_ladder,
    plan_costs,
)
from jetson_dnn_rt.coordinator.tables.tables import TaskTable

OBJECTIVE = Objective(reference_j=0.02, joules=1.0, shared_joules=1.0, loss=10.0)


@settings(deadline=None, max_examples=40)
@given(tables(), st.floats(0.0, 60.0), st.floats(1.0, 1.5))
def test_bisection_is_brute_force(table: TaskTable, time_ms: float, reserve: float) -> None:
    rest = build_rests(table, make_clock_table(), 0.999, 0.8)[0]
    costs = plan_costs(rest, OBJECTIVE, 1.0)
    for clocks in range(3):
        ladder = build_ladder(rest, clocks, costs, reserve)
        assert ladder.need_ns == sorted(ladder.need_ns)
        steps = [costs[plan, clocks] for plan in ladder.plans]
        assert all(low > high for low, high in pairwise(steps))
        need = rest.need_ns(reserve)[:, clocks]
        fits = need <= time_ms * MS
        found = ladder.find(time_ms * MS)
        if fits.any():
            best = costs[fits, clocks].min()
            assert costs[ladder.plans[found], clocks] <= best + 1e-9
            assert need[ladder.plans[found]] <= time_ms * MS
        else:
            assert need[ladder.plans[found]] == need.min()


@settings(deadline=None, max_examples=30)
@given(tables(), st.integers(0, LEVELS - 1))
def test_a_grid_says_what_the_ladders_say(table: TaskTable, level: int) -> None:
    rest = build_rests(table, make_clock_table(), 0.999, 0.8)[0]
    costs = plan_costs(rest, OBJECTIVE, 1.0)
    ladders = [build_ladder(rest, clocks, costs) for clocks in range(3)]
    grid = build_grid(rest, ladders, costs, table.deadline_ns, OBJECTIVE.reference_j)
    time_ns = table.deadline_ns * STEP * level
    for clocks, ladder in enumerate(ladders):
        if ladder.need_ns[0] <= time_ns:
            plan = ladder.plans[ladder.find(time_ns)]
            assert grid[level, clocks] == pytest.approx(costs[plan, clocks])
        else:
            assert grid[level, clocks] > costs.max()
    assert (np.diff(grid, axis=0) <= 1e-9).all()


def test_accuracy_below_the_floor_is_the_last_choice() -> None:
    table = make_table(times_ms=[[4.0], [1.0]], loss=[[0.0], [0.1]])
    rest = build_rests(table, make_clock_table(), 0.9, 0.5)[0]
    free = plan_costs(rest, Objective(0.02, 1.0, 1.0, loss=0.001), 1.0)
    floor = plan_costs(rest, Objective(0.02, 1.0, 1.0, loss=0.001, loss_allowed=0.05), 1.0)
    assert free[1, 0] < free[0, 0]
    assert floor[1, 0] > floor[0, 0]
