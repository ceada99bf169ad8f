# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Plans for the rest of a frame, ladders, grids, windows: what `horizon` looks up."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from cohorts import MS, make_clock_table, make_member, make_table
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plan_tables import build_table, tables, whole_ns

from jetson_dnn_rt.coordinator.policies.horizon.allotment import (
    count_beside,
    count_others,
    find_windows,
    interpolate,
)
from jetson_dnn_rt.coordinator.policies.horizon.floor import build_menus
from jetson_dnn_rt.coordinator.policies.horizon.frontier import build_rests, tail_quantile
from jetson_dnn_rt.coordinator.policies.horizon.outlook import (
    LEVELS,
    STEP,
    Objective,
    build_grid,
    build_ladder,
    build_outlook,
    plan_costs,
)
from jetson_dnn_rt.coordinator.tables.hull import new_minima


@settings(max_examples=40)
@given(tables())
# Without [1, 0, 1], which is better than [1, 1, 1] by 1e-12 and the rounding of its sum.
@example(
    build_table([(1.0, 0.5, 0.014910033682871585), (1.0, 0.75, 1e-12), (1.0, 0.5, 1 / 32)], [])
)
def test_no_plan_beats_those_kept(table):
    for stage, rest in enumerate(build_rests(table, make_clock_table(), 0.999, 0.8)):
        # Every variant throughout is one of them.
        assert sum(len(set(plan)) == 1 for plan in rest.plans) == len(table.variants)
        stages = np.arange(stage, len(table.stages))
        # At each boundary what differs by less than 1e-12 is taken for equal; sums are rounded.
        equal = 1e-12 * len(stages) + 1e-15
        for plan in product(range(2), repeat=len(stages)):
            loss = table.loss[list(plan), stages].sum()
            time = table.median_ns[list(plan), stages].sum()
            times = table.median_ns[rest.plans, stages].sum(axis=1)
            # Whole nanoseconds: medians of scaled frames are rounded.
            assert ((rest.loss <= loss + equal) & (times <= time + len(stages))).any()


@settings(max_examples=40)
@given(tables())
def test_a_way_home_never_takes_longer_than_the_plan(table):
    for rest in build_rests(table, make_clock_table(), 0.999, 0.8):
        for clocks in range(3):
            whole = np.array([whole_ns(table, plan, clocks, 0.999) for plan in rest.plans])
            assert (rest.safe_ns[:, clocks] <= whole + 1.0).all()
            assert (rest.usual_ns[:, clocks] <= whole + 1.0).all()
        assert (rest.need_ns() <= rest.need_ns(1.2)).all()


def test_quantile_is_of_the_sum():
    # Two stages of which one is slow whenever the other is fast: the frame always takes 3 ms.
    table = make_table(times_ms=[[1.0, 1.0]], frames=[1.0] * 100)
    table.times_ns[0, 0] = np.where(np.arange(100) % 2, 1 * MS, 2 * MS)
    table.times_ns[0, 1] = 3 * MS - table.times_ns[0, 0]
    (whole, last) = build_rests(table, make_clock_table(), 0.99, 0.5)
    assert whole.safe_ns[0, -1] == pytest.approx(3 * MS)
    assert last.safe_ns[0, -1] == pytest.approx(2 * MS, rel=0.2)


def test_stages_that_are_accurate_come_first_among_equals():
    table = make_table(
        times_ms=[[2.0, 2.0], [1.0, 1.0]], loss=[[0.0, 0.0], [0.01, 0.01]], frames=[1.0]
    )
    rest = build_rests(table, make_clock_table(), 0.9, 0.5)[0]
    assert [0, 1] in rest.plans.tolist()
    assert [1, 0] not in rest.plans.tolist()


def test_energy_is_what_comes_on_top_of_the_idle_board():
    clocks = make_clock_table(idle_w=[1.0, 1.5, 3.0])
    table = make_table(times_ms=[[2.0, 2.0]], powers_w=(2.0, 6.0, 20.0))
    rest = build_rests(table, clocks, 0.9, 0.5)[0]
    # 4 ms at the fastest clocks, four times that at the slowest.
    assert rest.energy_j[0].tolist() == pytest.approx([0.016, 0.04, 0.076])


@pytest.mark.parametrize("count", [8, 64, 256, 2000])
@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform"])
def test_tail_is_rarely_exceeded(count, draw):
    generator = np.random.default_rng(count)

    def sample(size):
        if draw == "normal":
            return generator.normal(100.0, 3.0, size)
        return 100.0 + 10.0 * getattr(generator, draw)(size=size)

    budgets = tail_quantile(sample((400, count)), 0.99)
    held_out = sample((20_000,))
    exceeded = (held_out[:, None] > budgets).mean()
    # Held out samples scatter too; of 8 samples no more can be asked than being not far off.
    assert exceeded <= (0.03 if count == 8 else 0.012)


def test_tail_of_many_samples_is_the_empirical_one_and_of_a_few_widened():
    assert tail_quantile(np.arange(1.0, 10_001.0), 0.99) == 9_900.0
    assert tail_quantile(np.array([10.0]), 0.999) == 20.0
    assert tail_quantile(np.array([8.0, 9.0, 10.0, 7.0]), 0.999) == 12.5


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=300), st.floats(0.5, 0.998))
def test_tail_rises_with_the_confidence(samples, share):
    times = np.array(samples)
    low, high = tail_quantile(times, share), tail_quantile(times, 0.999)
    assert high >= low - 1e-9
    # A share of count + 1e-16 frames may be rounded either way.
    # As np.quantile with the method inverted_cdf, which numpy 1.21 lacks.
    rank = max(1, math.ceil((share - 1e-9) * len(times)))
    assert low >= np.sort(times)[rank - 1] - 1e-9


def test_new_minima():
    assert new_minima(np.array([3.0, 3.0, 1.0, 2.0])).tolist() == [True, False, True, False]
    assert new_minima(np.array([3.0, 2.9, 1.0]), 0.5).tolist() == [True, False, True]


OBJECTIVE = Objective(reference_j=0.02, joules=1.0, shared_joules=1.0, loss=10.0)


@settings(max_examples=40)
@given(tables(), st.floats(0.0, 60.0), st.floats(1.0, 1.5))
def test_bisection_is_brute_force(table, time_ms, reserve):
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


@settings(max_examples=30)
@given(tables(), st.integers(0, LEVELS - 1))
def test_a_grid_says_what_the_ladders_say(table, level):
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


def test_accuracy_below_the_floor_is_the_last_choice():
    table = make_table(times_ms=[[4.0], [1.0]], loss=[[0.0], [0.1]])
    rest = build_rests(table, make_clock_table(), 0.9, 0.5)[0]
    free = plan_costs(rest, Objective(1.0, 1.0, 0.001), 1.0)
    floor = plan_costs(rest, Objective(1.0, 1.0, 0.001, loss_allowed=0.05), 1.0)
    assert free[1, 0] < free[0, 0]
    assert floor[1, 0] > floor[0, 0]


@settings(max_examples=30)
@given(tables(), st.floats(0.0, 60.0), st.floats(0.0, 0.2))
def test_a_menu_is_brute_force(table, time_ms, allowed):
    outlook = build_outlook(table, make_clock_table(), 0.999, OBJECTIVE)
    for rest, menus in zip(outlook.rests, build_menus(outlook), strict=True):
        free = replace(outlook.objectives[0], loss_allowed=1.0)
        costs = plan_costs(rest, free, free.joules)
        for clocks, menu in enumerate(menus):
            need, cost = rest.need_ns()[:, clocks], costs[:, clocks]
            fits = need <= time_ms * MS
            able = fits & (rest.loss <= allowed)
            if able.any():
                best = able & (cost == cost[able].min())
            elif fits.any():
                best = fits & (rest.loss == rest.loss[fits].min())
            else:
                best = need == need.min()
            assert menu.choose(time_ms * MS, allowed) in rest.plans[best, 0]


NEVER = float("-inf")


def test_window_of_a_frame_in_flight():
    member = make_member(make_table(), stage=1, running_since_ns=3 * MS, last_release_ns=0)
    begin, end, until, again = find_windows([member], 4 * MS, [0.5])[0]
    assert (begin, end) == (-1 * MS, 6 * MS)
    assert (until, again) == (3 * MS, 29 * MS)
    assert find_windows([member], 12 * MS, [0.5])[0][2] == 0.0  # it is late: expected to end now


def test_window_of_the_next_frame():
    member = make_member(make_table(), active=False, last_release_ns=1 * MS)
    assert find_windows([member], 4 * MS, [0.5])[0] == (30 * MS, 40 * MS, NEVER, 30 * MS)
    (late,) = find_windows([member], 50 * MS, [0.5])
    assert late == (0, 10 * MS, NEVER, 0)


def test_a_task_that_stopped_is_expected_after_as_long_again():
    member = make_member(make_table(), active=False, last_release_ns=1 * MS)
    # Due at 34 ms; a period, 33 ms, later it is silent.
    (silent,) = find_windows([member], 74 * MS, [0.5])
    assert silent == (40 * MS, 50 * MS, NEVER, 40 * MS)
    member.last_release_ns = None
    (absent,) = find_windows([member], 74 * MS, [0.5])
    assert absent[0] == 1000 * MS


@pytest.mark.parametrize(
    ("other", "beside"),
    [
        ((0, 10, 5.0, 100), 0.5),  # there for half of the window
        ((0, 30, 30.0, 100), 1.0),  # there all the time
        ((0, 10, 5.0, 5), 0.625),  # and once more, for a quarter of the other half
        ((20, 30, NEVER, 20), 0.0),  # comes afterwards
        ((4, 10, NEVER, 4), 0.15),  # comes meanwhile: a quarter of six tenths
    ],
)
def test_others(other, beside):
    mine = (0, 10, 9.0, 33)
    assert count_others(0, [mine, other], [0.3, 0.25], 2) == pytest.approx(beside)
    assert count_others(1, [other, mine], [0.25, 0.3], 2) == pytest.approx(beside)


def test_no_more_beside_than_workers():
    windows = [(0, 10, 10.0, 100)] * 4
    assert count_others(0, windows, [0.5] * 4, 4) == 3.0
    assert count_others(0, windows, [0.5] * 4, 2) == 1.0


def test_those_who_are_there_when_a_frame_begins():
    windows = [(0, 20, 8.0, 33), (5, 15, NEVER, 5), (6, 9, NEVER, 6), (5, 30, NEVER, 5)]
    assert count_beside(windows, 5) == 3


def test_interference_between_whole_numbers():
    assert interpolate([1.0, 1.4, 2.0], 0.0) == 1.0
    assert interpolate([1.0, 1.4, 2.0], 1.5) == pytest.approx(1.7)
    assert interpolate([1.0, 1.4, 2.0], 2.0) == 2.0
