# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""POET: filter, controller and hull, against plain calculations."""

from __future__ import annotations

import numpy as np
import pytest
from cohorts import MS, decide, make_clock_table, make_cohort, make_member, make_policy, make_table
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.cohort import FrameSample, StageSample
from jetson_dnn_rt.coordinator.policies import poet
from jetson_dnn_rt.coordinator.policies.poet import (
    PERIOD,
    Poet,
    SpeedHull,
    estimate_base_speed,
    next_speed_up,
    response_in_deadlines,
    slower_share,
    speeds_and_costs,
)

COSTS = (1.0, 1.5, 8.0)


def cohort_of(*, members=1, clocks=2):
    """Speeds 1, 2 and 4 at powers 1, 1.5 and 8: energy per work 1, 0.75 and 2."""
    made = [
        make_member(make_table(f"task-{i}", powers_w=COSTS, deadline_ms=10.0))
        for i in range(members)
    ]
    return make_cohort(make_clock_table(), made, clocks=clocks)


def end_frame(cohort, response_ms, *, member=0):
    state = cohort.members[member]
    response_ns = round(response_ms * MS)
    state.last_stage = StageSample(0, len(state.table.stages) - 1, cohort.clocks, 1)
    state.last_frame = FrameSample(response_ns <= state.deadline_ns, response_ns, response_ns)
    state.frames_done += 1


@given(st.lists(st.tuples(st.floats(1.0, 20.0), st.floats(0.05, 5.0)), min_size=1, max_size=40))
def test_kalman_filter_against_its_matrix_form(steps):
    base_speed, variance = poet.FIRST_BASE_SPEED, poet.FIRST_VARIANCE
    x, p = np.array([[0.2]]), np.array([[1.0]])
    q, r = np.array([[1e-5]]), np.array([[0.01]])
    for speed_up, rate in steps:
        base_speed, variance = estimate_base_speed(base_speed, variance, speed_up, rate)
        h = np.array([[speed_up]])
        predicted = p + q
        gain = predicted @ h.T @ np.linalg.inv(h @ predicted @ h.T + r)
        x = x + gain @ (np.array([[rate]]) - h @ x)
        p = (np.eye(1) - gain @ h) @ predicted
        assert base_speed == pytest.approx(x.item(), rel=1e-9)
        assert variance == pytest.approx(p.item(), rel=1e-6)


def test_filter_and_controller_find_the_speed_that_is_needed():
    # A task at rate 0.4 per speed-up: 2.5 brings it to one frame a deadline.
    base_speed, variance, speed_up = poet.FIRST_BASE_SPEED, poet.FIRST_VARIANCE, 1.0
    for _ in range(30):
        rate = 0.4 * speed_up
        base_speed, variance = estimate_base_speed(base_speed, variance, speed_up, rate)
        speed_up = next_speed_up(speed_up, base_speed, rate, 4.0)
    assert base_speed == pytest.approx(0.4, rel=1e-3)
    assert speed_up == pytest.approx(2.5, rel=1e-3)


def test_speed_up_is_clipped():
    assert next_speed_up(2.0, 0.5, 0.5, 4.0) == 3.0
    assert next_speed_up(2.0, 0.1, 0.5, 4.0) == 4.0
    assert next_speed_up(2.0, 0.1, 1.5, 4.0) == 1.0


def test_share_of_the_slower_one():
    # 1 / 3 = x / 2 + (1 - x) / 4
    assert slower_share(2.0, 4.0, 3.0) == pytest.approx(1.0 / 3.0)
    assert slower_share(2.0, 4.0, 4.0) == 0.0
    assert slower_share(2.0, 4.0, 2.0) == 1.0


def test_speeds_and_costs_of_the_whole_network():
    # Layers of 1, 2, 1 ms at the fastest clocks, all 4 times as fast as at the slowest.
    speeds, costs = speeds_and_costs(make_table(powers_w=(2.0, 6.0, 20.0)))
    assert speeds.tolist() == [1.0, 2.0, 4.0]
    assert costs.tolist() == [1.0, 3.0, 10.0]
    table = make_table(
        times_ms=((1.0, 1.0),), speeds=((1.0, 2.0), (1.0, 4.0)), powers_w=((1.0, 2.0), (2.0, 7.0))
    )
    speeds, costs = speeds_and_costs(table)
    assert speeds[1] == pytest.approx((2 + 4) / 2)
    # (2 ms of 1 W + 4 ms of 2 W) / 6 ms against (1 of 2 + 1 of 7) / 2
    assert costs[1] == pytest.approx(4.5 / (10 / 6))


def test_the_cheapest_is_the_slowest_of_the_hull():
    hull = SpeedHull(np.array([1.0, 2.0, 4.0]), np.array(COSTS))
    assert hull.clocks == [1, 2]
    assert hull.mix(1.0) == (1, 1, 0.0)
    assert hull.mix(3.0) == (1, 2, pytest.approx(1.0 / 3.0))
    assert hull.mix(4.0) == (1, 2, 0.0)
    assert hull.mix(5.0) == (2, 2, 0.0)


@given(
    st.lists(st.tuples(st.floats(1.0, 20.0), st.floats(0.1, 30.0)), min_size=1, max_size=12),
    st.floats(0.0, 1.0),
)
def test_no_pair_of_all_is_cheaper(rows, where):
    """The search of the original, over all pairs, finds nothing that costs less."""
    speeds, costs = np.array(rows).T
    hull = SpeedHull(speeds, costs)
    target = speeds.min() + where * (speeds.max() - speeds.min())
    slower, faster, share = hull.mix(target)

    def cost(lower, upper, lower_share):
        rest = (1.0 - lower_share) * costs[upper] / speeds[upper]
        return float(lower_share * costs[lower] / speeds[lower] + rest)

    mine = cost(slower, faster, share)
    assert share / speeds[slower] + (1.0 - share) / speeds[faster] <= (1.0 + 1e-9) / target
    for upper in range(len(speeds)):
        for lower in range(len(speeds)):
            if speeds[lower] <= target <= speeds[upper]:
                part = 0.0
                if speeds[lower] < speeds[upper]:
                    part = slower_share(speeds[lower], speeds[upper], target)
                assert mine <= cost(lower, upper, part) * (1.0 + 1e-9)


def test_control_acts_once_a_period():
    cohort = cohort_of()
    policy = make_policy(Poet, cohort)
    assert decide(policy, cohort).clocks == 2  # where the clocks were
    for _ in range(PERIOD - 1):
        end_frame(cohort, 5.0)
        assert decide(policy, cohort).clocks == 2
    end_frame(cohort, 5.0)  # a period at u = 4 with rate 2
    decision = decide(policy, cohort)
    base_speed, variance = estimate_base_speed(0.2, 1.0, 4.0, 2.0)
    speed_up = next_speed_up(4.0, base_speed, 2.0, 4.0)
    mine = decision.memory[0]
    assert (mine.base_speed, mine.variance, mine.speed_up) == pytest.approx(
        (base_speed, variance, speed_up)
    )
    assert 1.99 < speed_up < 2.01  # half of the speed is enough


def test_slower_frames_of_a_period_come_first():
    cohort = cohort_of()
    policy = make_policy(Poet, cohort)
    decide(policy, cohort)
    for _ in range(PERIOD):
        end_frame(cohort, 7.5)  # rate 4 / 3: u = 3 is enough
        decision = decide(policy, cohort)
    mine = decision.memory[0]
    assert mine.speed_up == pytest.approx(3.0, rel=1e-3)
    assert (mine.slower, mine.faster, mine.slower_frames) == (1, 2, PERIOD // 3)
    clocks = [decision.clocks]
    for _ in range(PERIOD - 1):
        end_frame(cohort, 7.5)
        clocks.append(decide(policy, cohort).clocks)
    assert clocks == [1] * (PERIOD // 3) + [2] * (PERIOD - PERIOD // 3)


def test_each_task_has_its_loop_and_clocks_change_at_its_frames():
    cohort = cohort_of(members=2)
    policy = make_policy(Poet, cohort)
    decide(policy, cohort)
    for _ in range(PERIOD):
        end_frame(cohort, 4.0, member=1)  # rate 2.5: u = 1.6, below the cheapest
        decide(policy, cohort)
    cohort.deciding = 1
    assert decide(policy, cohort).clocks == 1
    cohort.deciding = 0
    assert decide(policy, cohort).clocks == 2
    cohort.deciding, cohort.clocks_target = -1, 0
    assert decide(policy, cohort).clocks == 0


def test_response_of_a_frame_that_was_given_up_is_projected():
    member = make_member(make_table(deadline_ms=10.0))  # sub-deadlines 2.5, 5, 2.5
    member.last_frame = FrameSample(True, 5 * MS, 4 * MS)
    assert response_in_deadlines(member) == 0.5
    member.last_frame = FrameSample(False, 9 * MS, 4 * MS)
    member.last_stage = StageSample(0, 1, 0, 1)
    assert response_in_deadlines(member) == pytest.approx(0.9 * 10 / 7.5)
    member.last_stage = StageSample(0, 2, 0, 1)
    member.last_frame = FrameSample(False, 12 * MS, 4 * MS)
    assert response_in_deadlines(member) == pytest.approx(1.2)
