# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`horizon`: decisions calculated by hand, by brute force, and against NeuOS on any cohort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cohorts import (
    MS,
    check_pure,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tables import whole_ns

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.policies.horizon.freshness import find_aging
from jetson_dnn_rt.coordinator.policies.horizon.frontier import build_rests
from jetson_dnn_rt.coordinator.policies.horizon.outlook import (
    LEVELS,
    STEP,
    USUAL,
    build_ladder,
    plan_costs,
)
from jetson_dnn_rt.coordinator.policies.horizon.policy import HYSTERESIS, Horizon
from jetson_dnn_rt.coordinator.policies.neuos import (
    NeuOSBalanced,
    NeuOSMaxAccuracy,
    NeuOSMinEnergy,
)


def alone(**more):
    """One member whose frame begins: 4, 8 or 16 ms at the three clocks; or half of it.

    Above the idle board that is 76, 40 and 16 mJ. A frame in the faster variant has lost 0.3.
    """
    fields = {"deadline_ms": 10.0, "frames": [1.0] * 8, "loss": [[0.0] * 3, [0.1] * 3]}
    table = make_table(**{**fields, **more})
    return make_cohort(make_clock_table(delay_ns=0), [make_member(table, last_release_ns=0)])


class AccurateHorizon(Horizon):
    energy_per_accuracy = 100.0


class FrugalHorizon(Horizon):
    energy_per_accuracy = 3.0


def decide(cohort, now_ns=0, cls=Horizon, **changes):
    policy = make_policy(cls, cohort, **changes)
    decision = check_pure(policy, cohort, now_ns)
    return decision.variants[0], decision.clocks


# -- alone, by hand -------------------------------------------------------------------------------


def test_slowest_clocks_that_are_accurate_and_in_time():
    # 16 ms are too long.
    assert decide(alone()) == (0, 1)
    assert decide(alone(deadline_ms=20.0)) == (0, 0)


def test_faster_variant_where_the_deadline_asks_for_it():
    # 4 ms are too long, 3 ms with the second stage in the faster variant are not: it comes first,
    # for nothing is left to be saved afterwards.
    cohort = alone(deadline_ms=3.1)
    assert decide(cohort)[1] == 2
    plan = [decide(cohort)[0]]
    cohort.clocks = cohort.clocks_target = 2
    for stage, elapsed_ms in ((1, 1.0), (2, 2.0)):
        cohort.members[0].stage, cohort.members[0].started = stage, True
        plan.append(decide(cohort, now_ns=round(elapsed_ms * MS))[0])
    assert plan == [0, 1, 0]


def test_what_is_left_at_a_boundary_decides():
    cohort = alone()
    cohort.clocks = cohort.clocks_target = 1
    member = cohort.members[0]
    member.stage, member.started = 2, True
    # The last stage takes 2 ms here, or half of that.
    for left_ms, variant in ((9.0, 0), (3.0, 0), (1.5, 1)):
        now_ns = member.absolute_deadline_ns - round(left_ms * MS)
        assert decide(cohort, now_ns=now_ns)[0] == variant


def test_clocks_stay_inside_a_frame():
    cohort = alone()
    cohort.members[0].stage = 1
    for clocks in range(3):
        cohort.clocks = cohort.clocks_target = clocks
        assert decide(cohort, now_ns=MS)[1] == clocks


def test_clocks_are_kept_up_for_the_next_frame_if_raising_them_would_take_too_long():
    cohort = alone(deadline_ms=9.0)
    cohort.members[0].active = False
    for delay_ms, clocks in ((0, 0), (8, 1)):
        table = make_clock_table(delay_ns=delay_ms * MS)
        waiting = make_cohort(table, cohort.members, deciding=-1)
        assert decide(waiting, now_ns=20 * MS)[1] == clocks


def test_a_change_under_way_is_waited_for():
    cohort = alone(deadline_ms=9.5)
    slow = make_clock_table(delay_ns=8 * MS)
    cohort = make_cohort(slow, cohort.members, clocks=0)
    # In 1 ms the frame is saved, and asking for the middle clocks would take 8 ms anew.
    cohort.clocks_target, cohort.clocks_at_ns = 2, 1 * MS
    assert decide(cohort, cls=AccurateHorizon) == (0, 2)


def test_after_misses_the_safe_side():
    cohort = alone()
    assert decide(cohort, cls=AccurateHorizon) == (0, 1)
    cohort.members[0].misses_in_a_row = 1
    # 10 ms count as 8: the middle clocks would leave nothing to spare.
    assert decide(cohort, cls=AccurateHorizon) == (0, 2)


def test_slow_downs_are_followed():
    cohort = alone()
    assert decide(cohort) == (0, 1)
    cohort.members[0].slowdown.observe(2.0)
    cohort.members[0].frames_done = 1
    # Planned with twice the time at once: 8 ms become 16.
    assert decide(cohort, cls=AccurateHorizon) == (0, 2)


# -- modes ----------------------------------------------------------------------------------------


def test_min_energy_is_frugal_down_to_the_floor():
    assert decide(alone(), mode="min_energy") == (1, 0)
    assert decide(alone(), mode="min_energy", accuracy_floor=0.95) == (0, 1)


def test_the_floor_counts_what_the_frame_has_lost():
    # Of three stages one may lose 0.1: the first ran in the faster variant, so the others may not,
    # though there is time to spare.
    cohort = alone(deadline_ms=20.0)
    policy = make_policy(Horizon, cohort, mode="min_energy", accuracy_floor=0.85)
    cohort.clocks = cohort.clocks_target = 0
    member, plan = cohort.members[0], []
    for stage in range(3):
        member.stage, member.started = stage, stage > 0
        decision = policy.decide(cohort, 0)
        member.variant = decision.variants[0]
        plan.append(member.variant)
        cohort.memory = decision.memory
    assert sorted(plan) == [0, 0, 1]
    # A late frame is worth less than an inaccurate one: the floor gives way to the deadline.
    member.stage, member.started = 2, True
    late_ns = member.absolute_deadline_ns - round(3.0 * MS)
    assert policy.decide(cohort, late_ns).variants[0] == 1


def test_max_accuracy_pays_any_energy_below_the_cap():
    assert decide(alone(deadline_ms=5.5), mode="max_accuracy") == (0, 2)
    _, clocks = decide(alone(deadline_ms=5.5), mode="max_accuracy", power_cap_w=10.0)
    assert clocks == 1


def test_streaming_takes_the_accurate_variant_where_its_gain_pays_its_delay():
    # At the fastest clocks 4 ms, or half of it for a loss of 0.3: 2 ms of 100 are less, of 2 more.
    for lifetime_ms, variant in ((100.0, 0), (2.0, 1)):
        changes = {"mode": "streaming", "accuracy_lifetime_ms": lifetime_ms}
        assert decide(alone(deadline_ms=20.0), **changes) == (variant, 2)


def test_time_ages_its_own_result_and_those_that_wait_for_it():
    table = alone().members[0].table  # 4 ms at the fastest clocks
    calm = replace(table, period_ns=100 * MS)
    assert find_aging([calm], 1) == 1.0
    assert find_aging([calm] * 3, 1) == 1.0 + 2 * 0.5
    assert find_aging([calm] * 3, 2) == 1.0 + 2 / 2 * 0.5
    # More work than can be done: every result also lasts half as much longer.
    busy = replace(table, period_ns=3 * MS)
    assert find_aging([busy], 1) == 1.5
    assert find_aging([busy] * 3, 1) == 1.5 + 2 * 1.0


def test_balanced_weighs_accuracy_by_the_setting():
    # At the slowest clocks two stages of three have to lose accuracy.
    assert decide(alone(), cls=FrugalHorizon)[1] == 0
    assert decide(alone()) == (0, 1)


# -- cohorts --------------------------------------------------------------------------------------


def test_others_side_by_side_cost_time():
    lonely = alone(deadline_ms=9.0)
    assert decide(lonely) == (0, 1)
    table = lonely.members[0].table
    members = [make_member(replace(table, task=str(i)), last_release_ns=0) for i in range(4)]
    together = make_cohort(
        make_clock_table(delay_ns=0), members, interference=(1.0, 1.5, 2.0, 2.5)
    )
    assert decide(together)[1] == 2


@pytest.mark.parametrize("count", [2, 3])
def test_one_worker_serves_all_in_time(count):
    table = alone(deadline_ms=4.2 * count).members[0].table
    members = [make_member(replace(table, task=str(i)), last_release_ns=0) for i in range(count)]
    cohort = make_cohort(make_clock_table(delay_ns=0), members, workers=1)
    policy = make_policy(AccurateHorizon, cohort)
    decision = check_pure(policy, cohort)
    # Full frames of 4 ms each fit at the fastest clocks, and at no others.
    assert (decision.variants[0], decision.clocks) == (0, 2)


def test_a_queue_that_is_too_long_shortens_all_alike():
    table = alone(deadline_ms=6.0).members[0].table
    members = [make_member(replace(table, task=str(i)), last_release_ns=0) for i in range(2)]
    cohort = make_cohort(make_clock_table(count=1, idle_w=[1.0]), members, workers=1)
    cohort.members = [
        make_member(member.table.take_clocks([2]), last_release_ns=0) for member in members
    ]
    first = make_policy(Horizon, cohort).decide(cohort, 0).variants[0]
    cohort.deciding = 1
    second = make_policy(Horizon, cohort).decide(cohort, 0).variants[1]
    cohort.members[1].active = False
    cohort.deciding = 0
    assert first == second
    assert make_policy(Horizon, cohort).decide(cohort, 0).variants[0] == 0


# -- any cohort -----------------------------------------------------------------------------------


@st.composite
def frames_about_to_begin(draw):
    """One task whose frame begins at clocks that change at once."""
    gains = st.floats(1.05, 1.6)
    stages = draw(st.integers(1, 4))
    times = [[draw(st.floats(0.5, 4.0)) for _ in range(stages)]]
    for _ in range(draw(st.integers(1, 2))):
        times.append([time / draw(gains) for time in times[-1]])
    count = draw(st.integers(2, 6))
    speeds = np.cumprod([draw(gains) for _ in range(count)])
    table = make_table(
        times_ms=times,
        speeds=speeds,
        powers_w=np.cumsum([draw(st.floats(0.5, 5.0)) for _ in range(count)]) + 3.0,
        frames=[1.0, *draw(st.lists(st.floats(0.9, 1.1), min_size=7, max_size=7))],
        deadline_ms=draw(st.floats(2.0, 60.0)),
    )
    lag_ms = draw(st.floats(-0.5, 0.5)) * table.deadline_ns / MS
    member = make_member(table, lag_ms=lag_ms, last_release_ns=0)
    present = draw(st.integers(0, count - 1))
    return make_cohort(make_clock_table(count, delay_ns=0), [member], clocks=present)


@settings(max_examples=120)
@given(frames_about_to_begin(), st.sampled_from([NeuOSMinEnergy, NeuOSMaxAccuracy, NeuOSBalanced]))
def test_never_worse_than_what_neuos_may_choose(cohort, mode):
    """Every candidate of NeuOS that keeps the deadline at the confidence is among those that
    `horizon` chooses from, so that what it chooses costs no more.
    """
    member = cohort.members[0]
    neuos, policy = make_policy(mode, cohort), make_policy(Horizon, cohort)
    outlook = policy._outlooks[0]
    rest = build_rests(member.table, cohort.clock_table, CoordinatorConfig().confidence, USUAL)[0]
    costs = plan_costs(rest, outlook.objectives[0], outlook.objectives[0].shared_joules)
    time_ns = float(member.deadline_ns)
    own = []
    for clocks in range(len(cohort.clock_table)):
        ladder = build_ladder(rest, clocks, plan_costs(rest, outlook.objectives[0], 1.0))
        own.append(costs[ladder.plans[ladder.find(time_ns)], clocks])
    decision = policy.decide(cohort, 0)
    # A step of the grid less: what fits only just may be left out.
    sure_ns = time_ns - 2.0 * STEP * member.deadline_ns
    for candidate in neuos.clock_candidates(cohort):
        for variant in range(len(member.table.variants)):
            throughout = (rest.plans == variant).all(axis=1)
            assert throughout.sum() == 1
            plan = int(throughout.argmax())
            taken_ns = whole_ns(
                member.table, rest.plans[plan], candidate.clocks, CoordinatorConfig().confidence
            )
            if taken_ns <= sure_ns:
                assert rest.need_ns()[plan, candidate.clocks] <= sure_ns
                bound = costs[plan, candidate.clocks] * (1.0 + HYSTERESIS)
                assert own[decision.clocks] <= bound * (1.0 + 1e-5) + 1e-9


@settings(max_examples=60)
@given(frames_about_to_begin())
def test_clocks_of_least_cost_by_brute_force(cohort):
    member = cohort.members[0]
    policy = make_policy(Horizon, cohort)
    outlook = policy._outlooks[0]
    level = min(LEVELS - 1, int(1.0 / STEP))
    by_clocks = outlook.grids[0, level].astype(float)
    chosen = policy.decide(cohort, 0).clocks
    assert by_clocks[chosen] <= by_clocks.min() * (1.0 + HYSTERESIS) * (1.0 + 1e-5)
    assert member.active


def test_ten_thousand_configurations_become_few_and_keep_their_names():
    count = 400
    speeds = np.linspace(1.0, 5.0, count)
    table = make_table(speeds=speeds, powers_w=3.0 + speeds**2, frames=[1.0] * 8)
    clock_table = make_clock_table(count, delay_ns=0)
    cohort = make_cohort(clock_table, [make_member(table, last_release_ns=0)])
    policy = make_policy(Horizon, cohort)
    assert len(policy.clocks) <= 100
    decision = check_pure(policy, cohort)
    index = int(clock_table.indices[decision.clocks])
    assert index in policy.clocks.indices.tolist()
    times = (table.median_ns * table.slowdown[:, :, decision.clocks]).sum(axis=1)
    assert times[decision.variants[0]] <= table.deadline_ns
