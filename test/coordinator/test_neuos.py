# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Algorithms 1 and 2 and the three modes, calculated by hand, and on any cohort."""

from __future__ import annotations

import numpy as np
import pytest
from cohorts import (
    MS,
    POWERS_W,
    SPEEDS,
    check_pure,
    cohorts,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.cohort import FrameSample, StageSample
from jetson_dnn_rt.coordinator.policies.neuos import (
    NeuOSBalanced,
    NeuOSMaxAccuracy,
    NeuOSMinEnergy,
    SpeedUpTable,
)

MODES = [NeuOSMinEnergy, NeuOSMaxAccuracy, NeuOSBalanced]


def begin_frame(member, lag_ms):
    """A member whose frame is about to begin, after one that ended with this LAG."""
    response_ns = member.deadline_ns - round(lag_ms * MS)
    member.last_frame = FrameSample(lag_ms >= 0, response_ns, response_ns)
    member.started, member.stage, member.lag_ns = False, 0, round(lag_ms * MS)
    return member


def cohort_of(*lags_ms, clocks=1, deadlines_ms=()):
    """Members that have finished one stage of three with these LAGs; the first one begins."""
    deadlines = deadlines_ms or (10.0,) * len(lags_ms)
    members = [
        make_member(make_table(f"task-{i}", deadline_ms=deadline), lag_ms=lag, stage=1)
        for i, (lag, deadline) in enumerate(zip(lags_ms, deadlines, strict=True))
    ]
    begin_frame(members[0], lags_ms[0])
    return make_cohort(make_clock_table(), members, clocks=clocks)


# -- Algorithm 1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lag_ms", "sigma", "clocks"),
    [
        (0.0, 1.0, 1),  # in time: the present ones
        (-2.0, 1.2, 2),  # 2 * 1.2 = 2.4 is covered by 4 only
        (-10.0, 2.0, 2),  # exactly twice as fast
        (-30.0, 4.0, 2),  # more than there is: the fastest
        (5.0, 0.5, 0),  # exactly half
        (4.9, 0.51, 1),  # 2 * 0.51 = 1.02 is above 1
        (9.0, 0.1, 0),  # less than there is: the slowest
    ],
)
def test_delta_is_the_nearest_speed_up_that_covers(lag_ms, sigma, clocks):
    cohort = cohort_of(0.0, lag_ms)
    policy = make_policy(NeuOSMinEnergy, cohort)
    candidate = policy.clock_candidates(cohort)[1]
    assert candidate.sigma == pytest.approx(sigma)
    assert candidate.clocks == clocks
    assert candidate.power_up == POWERS_W[clocks] / POWERS_W[0]
    assert candidate.needed == pytest.approx(SPEEDS[1] * sigma)


def test_a_task_between_two_frames_stays_in_the_cohort():
    cohort = cohort_of(0.0, 0.0, 0.0)
    idle, new = cohort.members[1:]
    begin_frame(idle, -10.0)
    idle.active, idle.stage = False, 3  # as its last frame left it
    new.active, new.last_frame = False, None
    policy = make_policy(NeuOSMaxAccuracy, cohort)
    delta = policy.clock_candidates(cohort)
    assert [candidate.member for candidate in delta] == [0, 1]
    assert delta[1].clocks == 2
    assert policy.decide(cohort, 0).clocks == 2


def test_lag_asks_for_a_change_from_the_clocks_it_came_about_under():
    cohort = cohort_of(5.0, clocks=0)  # slower clocks have come into effect since
    cohort.members[0].last_stage = StageSample(0, 2, 1, 1)
    policy = make_policy(NeuOSMinEnergy, cohort)
    assert check_pure(policy, cohort).clocks == 0  # half of 2, not of 1
    cohort.members[0].lag_ns = -5 * MS
    assert policy.decide(cohort, 0).clocks == 2  # 1.5 times 2, not 1
    cohort.members[0].last_stage = None
    assert policy.decide(cohort, 0).clocks == 1


def test_what_a_frame_is_behind_is_owed_in_the_next_one():
    member = make_member(make_table(deadline_ms=10.0))
    cohort = make_cohort(make_clock_table(), [member], clocks=1)
    policy = make_policy(NeuOSMinEnergy, cohort)
    known = []
    for end_ms, next_ms in ((-3.0, -1.0), (+1.0, 0.5), (+5.0, 2.0), (-15.0, 1.0)):
        begin_frame(member, end_ms)
        member.frames_done += 1
        cohort.deciding = -1
        cohort.memory = check_pure(policy, cohort).memory
        known.append(policy.clock_candidates(cohort)[0].lag_ns / MS)
        member.started, member.stage, member.lag_ns = True, 1, round(next_ms * MS)
        known.append(policy.clock_candidates(cohort)[0].lag_ns / MS)
    # 3 behind: owed beside what the next frame is behind. It gives 1 back: 2 are left. 5 ahead is
    # 3 ahead in all, which the frame after that cannot use. A deadline is the most that is owed.
    assert known == [-3.0, -4.0, -2.0, -1.5, 3.0, 2.0, -10.0, -9.0]


def test_speed_ups_are_those_of_the_next_layer():
    speeds = ((1.0, 1.1, 1.2), (1.0, 3.0, 9.0))
    table = make_table(times_ms=((1.0, 1.0),), speeds=speeds)
    member = begin_frame(make_member(table), -2.0)
    cohort = make_cohort(make_clock_table(), [member], clocks=0)
    policy = make_policy(NeuOSMinEnergy, cohort)
    assert policy.decide(cohort, 0).clocks == 2  # 1.2 of the first layer
    member.stage, member.started, member.lag_ns = 1, True, -2 * MS
    assert policy.clock_candidates(cohort)[0].clocks == 1  # 3 of the second one


# -- Algorithm 2 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lag_ms", "variant"),
    [
        (1.0, 0),
        (0.0, 0),
        (-0.1, 1),  # a = 0.01
        (-2.5, 1),  # a = 0.25, exactly what variant 1 gains
        (-2.6, 2),
        (-10.0, 2),  # a = 1, exactly
        (-11.0, 2),  # more than there is: what gains most
    ],
)
def test_between_boundaries_variants_follow_lag(lag_ms, variant):
    table = make_table(times_ms=((1.0, 1.0), (0.8, 0.8), (0.5, 0.5)))
    cohort = make_cohort(
        make_clock_table(), [make_member(table, lag_ms=lag_ms, stage=1)], clocks=2
    )
    decision = check_pure(make_policy(NeuOSMinEnergy, cohort), cohort)
    assert decision.variants == (variant,)
    assert decision.clocks == cohort.clocks_target


def test_the_chosen_clocks_count_for_those_who_would_need_others():
    # Task 1 is ahead and wants the slow clocks; task 0 then lacks a = 1.1 / 0.5 - 1 = 1.2.
    cohort = cohort_of(-1.0, 6.0)
    policy = make_policy(NeuOSMinEnergy, cohort)
    delta = policy.clock_candidates(cohort)
    assert [candidate.clocks for candidate in delta] == [2, 0]
    assert policy.share(delta[0], 0) == pytest.approx(1.2)
    assert policy.share(delta[1], 0) == pytest.approx(0.4 / 0.5 - 1.0)
    decision = check_pure(policy, cohort)
    assert decision.clocks == 0
    assert decision.variants == (1, 0)  # twice as fast is the most there is


def test_what_may_not_run_is_not_chosen():
    table = make_table(times_ms=((1.0,) * 2, (0.8,) * 2, (0.5,) * 2))
    member = make_member(table, lag_ms=-0.1, stage=1, usable=(True, False, True))
    cohort = make_cohort(make_clock_table(), [member], clocks=2)
    policy = make_policy(NeuOSMinEnergy, cohort)
    assert policy.decide(cohort, 0).variants == (2,)
    member.usable = (False, True, True)
    member.lag_ns = 0
    assert policy.decide(cohort, 0).variants == (1,)
    assert policy.candidates(cohort, 0) == [1, 2]


# -- modes ----------------------------------------------------------------------------------------


def test_modes_differ_as_the_paper_says():
    # Delta = {present, fastest, slowest}; PowerUp 3, 10, 1.
    cohort = cohort_of(0.0, -6.0, 6.0, deadlines_ms=(10.0, 10.0, 10.0))
    chosen = {mode: make_policy(mode, cohort).decide(cohort, 0).clocks for mode in MODES}
    assert chosen[NeuOSMinEnergy] == 0
    assert chosen[NeuOSMaxAccuracy] == 2
    # mean(I) = 1, so m = 0 <= t: the group of the smallest LAG, which is task 0 alone.
    assert chosen[NeuOSBalanced] == 1


def test_max_accuracy_takes_the_frugal_one_of_those_that_leave_nothing():
    # Both behind by as much; the second one's layer draws less at the same clocks.
    cohort = cohort_of(-10.0, -10.0)
    speeds = (1.0, 2.0, 4.0)
    cohort.members[1].table = make_table("task-1", speeds=speeds, powers_w=(2.0, 3.0, 4.0))
    policy = make_policy(NeuOSMaxAccuracy, cohort)
    delta = policy.clock_candidates(cohort)
    assert {candidate.clocks for candidate in delta} == {2}
    assert policy.pick(delta, cohort) == 2
    # One that needs the fastest, one in time: only the fastest leaves nothing to approximate.
    cohort = cohort_of(-10.0, 0.0)
    policy = make_policy(NeuOSMaxAccuracy, cohort)
    delta = policy.clock_candidates(cohort)
    assert policy.approximation(delta, 1) == pytest.approx(1.0)
    assert policy.approximation(delta, 2) == 0.0
    assert policy.decide(cohort, 0).clocks == 2


@pytest.mark.parametrize(
    ("threshold", "clocks"),
    # LAG 1, -4, -9 of 10: sigma 0.9, 1.4, 1.9; m = 0.4. Groups 1, 2, 3; delta 1, 2, 2. Not 0.4
    # itself: Python rounds a sum otherwise from 3.12 on.
    [(0.1, 2), (0.19, 2), (0.3, 2), (0.41, 1), (0.5, 1)],
)
def test_a_small_threshold_leads_to_faster_clocks(threshold, clocks):
    cohort = cohort_of(1.0, -4.0, -9.0)
    policy = make_policy(NeuOSBalanced, cohort, threshold=threshold)
    assert check_pure(policy, cohort).clocks == clocks


def test_threshold_is_the_standard_deviation_by_default():
    # sigma 1.1, 1.3: m = 0.2, t = std = 0.1: not above 2t, so the middle group, which is empty;
    # 0.3 is the next larger one (abs(LAG) 3 of 3), delta = fastest.
    cohort = cohort_of(-1.0, -3.0, clocks=0)
    policy = make_policy(NeuOSBalanced, cohort)
    assert policy.decide(cohort, 0).clocks == 1  # 1.3 is covered by 2
    alone = cohort_of(-3.0, clocks=0)  # t = 0: the group of the largest, which it is itself
    assert make_policy(NeuOSBalanced, alone).decide(alone, 0).clocks == 1


# -- any cohort -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=200)
@given(cohort=cohorts())
def test_never_outside_the_candidate_set(mode, cohort):
    policy = make_policy(mode, cohort)
    decision = check_pure(policy, cohort)
    deciding = cohort.deciding
    if deciding < 0 or cohort.members[deciding].started:
        assert decision.clocks == cohort.clocks_target
    else:
        assert decision.clocks in {c.clocks for c in policy.clock_candidates(cohort)}
    if deciding >= 0:
        assert cohort.members[deciding].usable[decision.variants[deciding]]


@given(cohort=cohorts())
def test_delta_covers_at_the_least_power(cohort):
    policy = make_policy(NeuOSMinEnergy, cohort)
    for candidate in policy.clock_candidates(cohort):
        member = cohort.members[candidate.member]
        stage = member.stage if member.active else 0
        slowdown, power_w = member.table.slowdown[0, stage], member.table.power_w[0, stage]
        speeds, powers = slowdown[0] / slowdown, power_w / power_w[0]
        # Not more than a whole deadline is owed from the frame before.
        in_frame = member.active and member.stage > 0
        lag_ns = member.lag_ns if in_frame else max(-member.deadline_ns, member.lag_ns)
        before = cohort.clocks if member.last_stage is None else member.last_stage.clocks
        needed = speeds[before] * (1.0 - lag_ns / member.deadline_ns)
        assert candidate.needed == pytest.approx(needed)
        covering = np.flatnonzero(speeds >= candidate.needed)
        if len(covering):
            assert speeds[candidate.clocks] >= candidate.needed
            assert powers[candidate.clocks] == powers[covering].min()
        else:
            assert speeds[candidate.clocks] == speeds.max()


@given(cohort=cohorts())
def test_max_accuracy_leaves_the_least_to_approximate(cohort):
    policy = make_policy(NeuOSMaxAccuracy, cohort)
    delta = policy.clock_candidates(cohort)
    if delta:
        totals = {
            c.clocks: sum(max(0.0, policy.share(other, c.clocks)) for other in delta)
            for c in delta
        }
        assert totals[policy.pick(delta, cohort)] == pytest.approx(min(totals.values()))


@given(
    st.lists(st.tuples(st.floats(1.0, 50.0), st.floats(0.1, 30.0)), min_size=1, max_size=300),
    st.floats(0.0, 60.0),
)
def test_look_up_in_any_table(rows, needed):
    speeds, powers = np.array(rows).T
    clocks, power = SpeedUpTable(speeds, powers).cover(needed)
    assert powers[clocks] == power
    covering = speeds >= needed
    if covering.any():
        assert speeds[clocks] >= needed
        assert power == powers[covering].min()
    else:
        assert speeds[clocks] == speeds.max()


def test_no_power_figures_do_no_harm():
    table = make_table(powers_w=(0.0, 0.0, 0.0))
    cohort = make_cohort(make_clock_table(), [begin_frame(make_member(table), -10.0)], clocks=0)
    for mode in MODES:
        assert make_policy(mode, cohort).decide(cohort, 0).clocks in (1, 2)
