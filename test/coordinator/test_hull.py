# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The hull against brute force, and boards of real size."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from synthetic_boards import SyntheticBoard

from jetson_dnn_rt.coordinator.tables.hull import lower_hull, pareto_front, reduce_clocks
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.platforms.boards import tx2_space, xavier_space

# Few different values, so that ties and points on a line come often.
COORDINATES = st.integers(1, 12).map(float) | st.floats(0.5, 100.0)
CLOUDS = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, n, elements=COORDINATES),
        hnp.arrays(np.float64, n, elements=COORDINATES),
    )
)


@given(CLOUDS)
def test_the_front_is_what_no_other_beats(cloud):
    times, costs = cloud
    expected = set()
    for i in range(len(times)):
        beaten = (times <= times[i]) & (costs <= costs[i])
        beaten &= (times < times[i]) | (costs < costs[i])
        if not beaten.any():
            expected.add((times[i], costs[i]))
    front = pareto_front(times, costs)
    found = [(times[i], costs[i]) for i in front]
    assert sorted(expected) == found  # in rising time, equal ones once
    assert (np.diff(costs[front]) < 0).all()


@given(CLOUDS)
def test_of_equal_points_the_first_is_kept(cloud):
    times, costs = np.tile(cloud[0], 2), np.tile(cloud[1], 2)
    for position in pareto_front(times, costs):
        same = (times == times[position]) & (costs == costs[position])
        assert np.flatnonzero(same)[0] == position


@given(CLOUDS, st.floats(0.0, 20.0))
def test_the_hull_has_the_best_for_every_price_of_time(cloud, price):
    times, costs = cloud
    hull = lower_hull(times, costs)
    totals = costs + price * times
    assert totals[hull].min() == pytest.approx(totals.min(), rel=1e-12)
    assert set(hull) <= set(pareto_front(times, costs))


@given(CLOUDS)
def test_the_hull_has_nothing_that_a_mixture_of_two_others_beats(cloud):
    times, costs = cloud
    hull = lower_hull(times, costs)
    slopes = np.diff(costs[hull]) / np.diff(times[hull])
    assert (slopes < 0).all()
    assert (np.diff(slopes) > 0).all()  # convex, and three on a line are two
    for i in hull:  # brute force: every pair of points of the cloud
        for a in range(len(times)):
            for b in range(len(times)):
                if times[a] < times[i] < times[b]:
                    share = (times[i] - times[a]) / (times[b] - times[a])
                    assert costs[a] + share * (costs[b] - costs[a]) >= costs[i] - 1e-9 * costs[a]


def test_what_cannot_run_is_never_chosen_and_unequal_lengths_are_refused():
    times = np.array([1.0, np.inf, 0.1, 2.0])
    costs = np.array([5.0, 0.1, np.nan, 1.0])
    assert pareto_front(times, costs).tolist() == [0, 3]
    assert pareto_front([np.inf], [1.0]).tolist() == []
    assert lower_hull([np.inf], [1.0]).tolist() == []
    with pytest.raises(ValueError, match="equally long"):
        pareto_front([1.0, 2.0], [1.0])


# -- whole boards ------------------------------------------------------------------------------


def make_tables(space, tasks=4):
    tables = []
    for task in range(tasks):
        boards = [SyntheticBoard(space, stages=8, seed=10 * task + v) for v in range(3)]
        times = np.stack([board.times_ns().T for board in boards])
        power = np.stack([np.tile(board.power_w(), (8, 1)) for board in boards])
        tables.append(
            TaskTable(
                f"task-{task}", tuple(f"s{k}" for k in range(8)), ("a", "b", "c"),
                30_000_000, 33_000_000, np.full((3, 8, 2), 2_000_000), times / times[..., -1:],
                power, np.zeros((3, 8)),
            )
        )  # fmt: skip
    idle = 0.4 * boards[0].power_w()
    middle = len(space) // 2
    return ClockTable(space, np.arange(len(space)), idle, space.fastest, middle), tables


@pytest.mark.parametrize("space", [tx2_space(), xavier_space()], ids=["tx2", "xavier"])
def test_ten_thousands_become_tens_and_nothing_is_lost(space):
    clocks, tables = make_tables(space)
    assert len(clocks) == {4: 11_760, 2: 51_968}[len(space.domains)]
    begin_s = time.process_time()
    reduced, reduced_tables = reduce_clocks(clocks, tables)
    # A bar of the issue, with a wide margin (0.2 s); processor time, whatever else runs.
    assert time.process_time() - begin_s < 2.0
    assert len(reduced) <= 99
    idle = clocks.idle_w.min()
    for table, few in zip(tables, reduced_tables, strict=True):
        assert few.slowdown.shape == (3, 8, len(reduced))
        for variant in range(3):
            all_times, all_energies = table.frame_costs(variant)
            times, energies = few.frame_costs(variant)
            assert times.min() == all_times.min()
            for limit in np.linspace(1.0, 5.0, 30) * all_times.min():
                fits, all_fit = times <= limit, all_times <= limit
                for few_costs, costs in (
                    (energies, all_energies),
                    (energies / times, all_energies / all_times),
                    (energies - idle * times, all_energies - idle * all_times),
                ):
                    assert few_costs[fits].min() <= 1.03 * costs[all_fit].min() * (1 + 1e-9)


def test_presets_and_ends_are_found_again():
    clocks, tables = make_tables(tx2_space(), tasks=1)
    reduced, (table,) = reduce_clocks(clocks, tables, tolerance=0.05)
    space = clocks.space
    assert reduced.indices[reduced.max_n] == clocks.max_n
    assert reduced.indices[reduced.max_q] == clocks.max_q
    assert reduced.indices[reduced.slowest] == space.slowest
    assert reduced.indices[reduced.fastest] == space.fastest
    assert len(set(reduced.indices.tolist())) == len(reduced)
    np.testing.assert_array_equal(table.slowdown, tables[0].slowdown[:, :, reduced.indices])
    np.testing.assert_array_equal(reduced.idle_w, clocks.idle_w[reduced.indices])
    mean = sum(np.log(table.frame_costs(variant)[0]) for variant in range(3))
    assert (np.diff(mean) <= 1e-12).all()


def test_without_tolerance_all_of_the_front_stays():
    clocks, tables = make_tables(tx2_space(), tasks=1)
    front = reduce_clocks(clocks, tables, tolerance=0.0)[0]
    for variant in range(3):
        times, energies = tables[0].frame_costs(variant)
        assert set(pareto_front(times, energies)) <= set(front.indices)
        # No loss of time or power is one of energy: the front of the power has them all.
        assert set(pareto_front(times, energies)) <= set(pareto_front(times, energies / times))


def test_clocks_at_which_a_task_cannot_run_are_not_chosen_for_it():
    clocks, (table,) = make_tables(tx2_space(), tasks=1)
    off = np.arange(100, 9000)
    slowdown = table.slowdown.copy()
    slowdown[:, :, off] = np.inf
    reduced, _ = reduce_clocks(clocks, [replace(table, slowdown=slowdown)])
    assert not set(reduced.indices) & set(off) - {clocks.max_q}


def test_tables_of_other_clocks_and_a_negative_tolerance_are_refused():
    clocks, tables = make_tables(tx2_space(), tasks=1)
    with pytest.raises(ValueError, match="tolerance must be"):
        reduce_clocks(clocks, tables, tolerance=-1.0)
    with pytest.raises(ValueError, match="11760 clocks"):
        reduce_clocks(clocks, [tables[0].take_clocks([0, 1])])
    with pytest.raises(ValueError, match="at least one"):
        reduce_clocks(clocks, [])
