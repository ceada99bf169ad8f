# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ALERT: its filter, and its choice against a search through everything."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from cohorts import (
    MS,
    check_pure,
    cohorts,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.policies.alert import Alert, Filter

CONFIDENCE = 0.99


def cohort_of(*, members=1, deadline_ms=10.0, period_ms=20.0):
    """4 ms at the fastest clocks, 8 and 16 at the others; variant 1 takes half."""
    made = [
        make_member(make_table(f"task-{i}", deadline_ms=deadline_ms, period_ms=period_ms))
        for i in range(members)
    ]
    return make_cohort(make_clock_table(), made, clocks=2)


def alert_of(cohort, **settings):
    return make_policy(Alert, cohort, confidence=CONFIDENCE, **settings)


def slow_of(xi):
    return xi.mean + NormalDist().inv_cdf(CONFIDENCE) * sqrt(xi.variance)


@given(st.lists(st.floats(0.5, 5.0), min_size=1, max_size=50))
def test_filter_step_by_step(ratios):
    xi = Filter()
    mu, variance, k, q = 1.0, 0.001, 0.5, 0.001
    for ratio in ratios:
        xi = xi.observe(ratio)
        y = ratio - mu
        q = max(0.001, 0.3 * q + 0.7 * (k * y) ** 2)
        variance = (1.0 - k) * variance + q
        k = variance / (variance + 0.001)
        mu += k * y
        assert (xi.mean, xi.variance, xi.gain, xi.process_noise) == pytest.approx(
            (mu, variance, k, q)
        )


def test_the_most_accurate_at_the_clocks_of_least_energy():
    cohort = cohort_of()
    # xi is 1 +- 0.03 at first, so 10 ms are as good as 9.3: 8 ms at the middle clocks fit.
    # A period there: 8 ms of 6 W and 12 of 1.5 W; at the fastest 4 of 20 W and 16 of 3 W.
    # With 1 ms left nothing fits: what is fastest.
    for left_ms, variant, clocks in ((10, 0, 1), (8, 0, 2), (3, 1, 2), (1, 1, 2)):
        now_ns = cohort.members[0].absolute_deadline_ns - left_ms * MS
        decision = check_pure(alert_of(cohort), cohort, now_ns)
        assert (decision.variants, decision.clocks) == ((variant,), clocks)


def test_least_energy_above_a_floor():
    cohort = cohort_of()
    # Variant 1 takes 8 ms at the slowest clocks, of 2 W, and idles at 1 W; it loses 0.03 over its
    # three stages.
    for floor, variant, clocks in ((0.0, 1, 0), (0.98, 0, 1), (0.97, 1, 0)):
        policy = alert_of(cohort, mode="min_energy", accuracy_floor=floor)
        decision = check_pure(policy, cohort)
        assert (decision.variants, decision.clocks) == ((variant,), clocks)


def test_clocks_above_the_power_cap_are_left_out():
    cohort = cohort_of(deadline_ms=7.0)
    assert alert_of(cohort).decide(cohort, 0).clocks == 2
    decision = alert_of(cohort, power_cap_w=10.0).decide(cohort, 0)
    assert (decision.variants, decision.clocks) == ((1,), 1)
    # None is below: the one that draws least.
    assert alert_of(cohort, power_cap_w=0.5).decide(cohort, 0).clocks == 0


def test_one_slow_down_for_all():
    cohort = cohort_of(members=2)
    policy = alert_of(cohort)
    cohort.memory = policy.decide(cohort, 0).memory
    for _ in range(10):  # task 1 meets with others on the board
        cohort.members[1].frames_done += 1
        cohort.members[1].slowdown.observe(1.6)
        cohort.deciding = -1
        decision = check_pure(policy, cohort)
        cohort.memory = decision.memory
    assert decision.memory.xi.mean == pytest.approx(1.6, abs=0.01)
    cohort.deciding = 0
    decision = check_pure(policy, cohort)
    # For task 0 as well 8 ms are 12.8 now.
    assert 10 * MS / slow_of(decision.memory.xi) < 8 * MS
    assert (decision.variants[0], decision.clocks) == (0, 2)


def test_a_frame_keeps_what_it_was_given():
    cohort = cohort_of()
    policy = alert_of(cohort)
    cohort.memory = policy.decide(cohort, 9 * MS).memory
    member = cohort.members[0]
    member.started, member.stage, member.variant = True, 1, 1
    decision = check_pure(policy, cohort, now_ns=0)
    assert decision.variants == (1,)
    assert policy.candidates(cohort, 0) == (1,)
    member.usable = (True, False)  # it was withdrawn on the way
    assert list(policy.candidates(cohort, 0)) == [0]
    member.usable, member.started = (True, True), False
    assert list(policy.candidates(cohort, 0)) == [0, 1]


def test_the_fastest_of_the_choices_of_frames_on_their_way():
    cohort = cohort_of(members=2)
    policy = alert_of(cohort)
    cohort.deciding = 1
    cohort.memory = policy.decide(cohort, 3 * MS).memory  # 7 ms left: the fastest
    cohort.deciding = 0
    decision = policy.decide(cohort, 0)
    assert decision.memory.clocks == (1, 2)
    assert decision.clocks == 2
    cohort.members[1].active = False
    assert policy.decide(cohort, 0).clocks == 1


@given(cohort=cohorts(), data=st.data())
def test_choice_is_the_best_of_all(cohort, data):
    mode = data.draw(st.sampled_from(["min_energy", "max_accuracy"]))
    floor = data.draw(st.floats(0.8, 1.0))
    now_ns = data.draw(st.integers(0, 20 * MS))
    decision = check_pure(alert_of(cohort, mode=mode, accuracy_floor=floor), cohort, now_ns)
    deciding = cohort.deciding
    if deciding < 0 or cohort.members[deciding].started:
        return
    member, table = cohort.members[deciding], cohort.members[deciding].table
    xi = decision.memory.xi
    budget = max(0, member.absolute_deadline_ns - now_ns) / slow_of(xi)
    times = (table.median_ns[:, :, None] * table.slowdown).sum(axis=1)
    work = (table.median_ns[:, :, None] * table.slowdown * table.power_w).sum(axis=1)
    energy = work + cohort.clock_table.idle_w * np.maximum(0.0, table.period_ns - times)
    accuracy = np.array([table.accuracy(v) for v in range(len(table.variants))])
    there = np.array(member.usable) & (accuracy >= floor - 1e-9)
    eligible = (times <= budget) & there[:, None]
    variant = decision.variants[deciding]
    clocks = decision.memory.clocks[deciding]
    if not eligible.any():
        allowed = times[list(member.usable)]
        assert times[variant, clocks] == pytest.approx(allowed.min())
        return
    assert eligible[variant, clocks]
    if mode == "min_energy":
        assert energy[variant, clocks] == pytest.approx(energy[eligible].min())
    else:
        best = accuracy[eligible.any(axis=1)].max()
        assert accuracy[variant] == pytest.approx(best)
        assert energy[variant, clocks] == pytest.approx(energy[variant][eligible[variant]].min())
