# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""PredJoule: slack, history and steps, calculated by hand."""

from __future__ import annotations

import pytest
from cohorts import (
    MS,
    decide,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
    run_stage,
)

from jetson_dnn_rt.coordinator.policies.predjoule import LEVELS_PER_UNIT, PredJoule, usefulness

COUNT = 11_760
SPEEDS = [1.0 + i / COUNT for i in range(COUNT)]


def cohort_of(*, powers_w, clocks=5000, members=1):
    """Layers of sub-deadlines 4, 2 and 4 ms; power rises along a line."""
    low, high = powers_w
    powers = [low + (high - low) * i / (COUNT - 1) for i in range(COUNT)]
    tables = [
        make_table(f"task-{i}", times_ms=((2.0, 1.0, 2.0),), speeds=SPEEDS, powers_w=powers)
        for i in range(members)
    ]
    return make_cohort(
        make_clock_table(COUNT), [make_member(table) for table in tables], clocks=clocks
    )


def test_u_is_the_best_energy_for_time():
    # (E / Emax) / (T / Tmax) = P Tmax / Emax. T 4, 2, 1 and P 2, 6, 20: E 8, 12, 20.
    assert usefulness(make_table()) == pytest.approx([20 * 4 / 20] * 3)
    # P 2, 2.5, 3: E 8, 5, 3.
    assert usefulness(make_table(powers_w=(2.0, 2.5, 3.0))) == pytest.approx([3 * 4 / 8] * 3)
    assert usefulness(make_table(powers_w=(0.0, 0.0, 0.0))) == [1.0] * 3


@pytest.mark.parametrize(("time_ms", "clocks"), [(5.0, 5050), (3.0, 5050), (4.0, 5050)])
def test_faster_for_nothing(time_ms, clocks):
    # T from 2 to 1 and P from 0.1 to 10: U = 10 * 2 / 10 <= 3, so 100 / 2 whether behind or ahead.
    cohort = cohort_of(powers_w=(0.1, 10.0))
    assert usefulness(cohort.members[0].table)[1] == pytest.approx(2.0, rel=1e-3)
    policy = make_policy(PredJoule, cohort)
    assert decide(policy, cohort).clocks == 5000
    run_stage(cohort.members[0], time_ms, clocks=5000)
    assert decide(policy, cohort).clocks == clocks


def test_ahead_and_faster_costs_more():
    speeds = [1.0 + 7.0 * i / (COUNT - 1) for i in range(COUNT)]
    powers = [1.0 + 9.0 * i / (COUNT - 1) for i in range(COUNT)]
    table = make_table(times_ms=((2.0, 1.0, 2.0),), speeds=speeds, powers_w=powers)
    gain = usefulness(table)[1]
    assert gain == pytest.approx(8.0)  # E = 8 at 1 W, 10 at 10 W: 10 * 8 / 10
    cohort = make_cohort(make_clock_table(COUNT), [make_member(table)], clocks=5000)
    policy = make_policy(PredJoule, cohort)
    decide(policy, cohort)
    run_stage(cohort.members[0], 3.0, clocks=5000)
    assert decide(policy, cohort).clocks == 5000 - round(10 / gain)
    run_stage(cohort.members[0], 4.0, clocks=4999)  # d = 2: slack -1 + 2 = 1 ms, behind
    decision = decide(policy, cohort)
    assert decision.memory[0].slack_ns == 1 * MS
    assert decision.clocks == 4999 + round(100 / gain)


def test_a_configuration_of_that_speed_is_used_again():
    cohort = cohort_of(powers_w=(0.1, 10.0))
    policy = make_policy(PredJoule, cohort)
    member = cohort.members[0]
    decide(policy, cohort)
    run_stage(member, 4.0)
    decide(policy, cohort)
    run_stage(member, 1.0, clocks=777)  # layer 1 at twice the speed of its sub-deadline of 2 ms
    decide(policy, cohort)
    run_stage(member, 4.0)
    decide(policy, cohort)
    # The next frame is 2 ms behind after layer 0: need = 2 / (2 + 2), twice the speed.
    run_stage(member, 6.0, clocks=5000)
    decision = decide(policy, cohort)
    assert decision.memory[0].slack_ns == 2 * MS
    assert decision.memory[0].history[1][2 * LEVELS_PER_UNIT] == 777
    assert decision.clocks == 777


def test_slack_is_that_of_the_frame():
    cohort = cohort_of(powers_w=(0.1, 10.0))
    policy = make_policy(PredJoule, cohort)
    slacks = []
    decide(policy, cohort)
    for time_ms in (5.0, 3.0, 4.0, 3.5):
        run_stage(cohort.members[0], time_ms)
        slacks.append(decide(policy, cohort).memory[0].slack_ns / MS)
    assert slacks == [1.0, 2.0, 2.0, -0.5]


def test_the_index_stays_in_the_table():
    cohort = cohort_of(powers_w=(0.1, 10.0), clocks=COUNT - 1)
    policy = make_policy(PredJoule, cohort)
    decide(policy, cohort)
    run_stage(cohort.members[0], 50.0)
    assert decide(policy, cohort).clocks == COUNT - 1


def test_steps_are_in_proportion_to_the_table():
    table = make_table(times_ms=((2.0, 1.0, 2.0),), deadline_ms=5.0)
    cohort = make_cohort(make_clock_table(), [make_member(table)], clocks=0)
    assert usefulness(table) == pytest.approx([4.0] * 3)
    step = 100.0 / 4.0 * 3 / COUNT
    policy = make_policy(PredJoule, cohort)
    member = cohort.members[0]
    decide(policy, cohort)
    for count in range(1, 100):
        run_stage(member, 40.0, clocks=0)
        decision = decide(policy, cohort)
        assert decision.memory[0].place == pytest.approx(count * step)
        assert decision.clocks == round(count * step)
    assert decision.clocks == 1


def test_the_process_at_its_boundary_has_its_way():
    cohort = cohort_of(powers_w=(0.1, 10.0), members=2)
    policy = make_policy(PredJoule, cohort)
    decide(policy, cohort)
    run_stage(cohort.members[1], 9.0, clocks=5000)
    cohort.deciding = 1
    assert decide(policy, cohort).clocks == 5050
    cohort.deciding = 0  # it has seen nothing of that
    assert decide(policy, cohort).clocks == 5000
    cohort.deciding, cohort.clocks_target = -1, 42
    assert decide(policy, cohort).clocks == 42
