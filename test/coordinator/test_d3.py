# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""D3: deadlines of stages, worked out by hand, and the variants that fit them."""

from __future__ import annotations

import pytest
from cohorts import (
    MS,
    check_pure,
    cohorts,
    drive_policy,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.policies.d3 import D3
from jetson_dnn_rt.tasks import Outcome

TIMES_MS = ((4.0, 4.0), (2.0, 3.0), (1.5, 1.0))
LOSS = ((0.0, 0.0), (0.01, 0.02), (0.03, 0.03))


def choose(deadline_ms, *, now_ms=0.0, stage=0, clocks=2, tasks=1, workers=1, **fields):
    tables = [
        make_table(f"task-{i}", times_ms=TIMES_MS, loss=LOSS, deadline_ms=deadline_ms)
        for i in range(tasks)
    ]
    members = [make_member(table, stage=stage, **fields) for table in tables]
    cohort = make_cohort(
        make_clock_table(), members, clocks=clocks, workers=workers, interference=(1.0, 1.5, 9.0)
    )
    decision = check_pure(make_policy(D3, cohort), cohort, round(now_ms * MS))
    assert decision.clocks == cohort.clocks_target
    return decision.variants[0]


@pytest.mark.parametrize(
    ("deadline_ms", "variant"),
    # Half of what is left belongs to the first of two equal stages.
    [(8.0, 0), (7.999999, 1), (4.0, 1), (3.999998, 2), (3.0, 2), (1.0, 2)],
)
def test_the_most_accurate_that_fits_the_stage_s_deadline(deadline_ms, variant):
    assert choose(deadline_ms) == variant


@pytest.mark.parametrize(
    ("now_ms", "variant"),
    # All that is left of 8 ms belongs to the last stage: late, in time and early.
    [(7.5, 2), (5.0, 1), (4.000001, 1), (4.0, 0), (2.0, 0)],
)
def test_deadlines_downstream_follow_what_is_left(now_ms, variant):
    assert choose(8.0, now_ms=now_ms, stage=1) == variant


def test_shares_are_those_of_the_profiled_times():
    table = make_table(times_ms=((6.0, 3.0, 1.0), (3.0, 1.0, 0.5)), deadline_ms=9.0)
    cohort = make_cohort(make_clock_table(), [make_member(table)])
    policy = make_policy(D3, cohort)
    member = cohort.members[0]
    chosen = []
    # Of 9 ms: 5.4 for the first. Of 6 ms left: 4.5 of 4. Of 1.01 left all.
    for stage, now_ns in enumerate((0, 3 * MS, 7_990_000)):
        member.stage = stage
        chosen.append(policy.decide(cohort, now_ns).variants[0])
    assert chosen == [1, 0, 0]


def test_the_profiled_time_is_a_quantile_at_the_present_clocks_beside_others():
    assert choose(16.0, clocks=1) == 0  # half as fast: 16 ms in all
    assert choose(15.9, clocks=1) == 1
    # Three tasks on two workers: 1.5 times as long.
    assert choose(12.0, tasks=3, workers=2) == 0
    assert choose(11.9, tasks=3, workers=2) == 1
    table = make_table(times_ms=TIMES_MS, loss=LOSS, frames=(1.0,) * 98 + (1.5, 2.0))
    cohort = make_cohort(make_clock_table(), [make_member(table)])  # of 10 ms
    chosen = [
        make_policy(D3, cohort, confidence=share).decide(cohort, 0).variants[0]
        for share in (0.5, 0.99, 0.999)
    ]
    assert chosen == [0, 1, 1]


def test_variants_that_are_not_there_are_passed_over():
    assert choose(7.0, usable=(True, False, True)) == 2
    assert choose(1.0, usable=(True, True, False)) == 1
    assert choose(8.0, usable=(False, True, True)) == 1


def test_a_deadline_that_changes_counts_at_once():
    assert choose(20.0, absolute_deadline_ns=5 * MS) == 1


def test_on_the_engine_an_early_stage_leaves_its_time_to_the_next():
    table = make_table("a", times_ms=((4.0, 4.0), (2.0, 1.0)), deadline_ms=7.0)
    times_ms = {("full", 0): 4.0, ("full", 1): 4.0, ("fast-1", 0): 2.0, ("fast-1", 1): 1.0}

    def execution_ms(job):
        slow = 2.5 if (job.sequence, job.next_stage) == (1, 0) else 0.0
        return times_ms[job.variant, job.next_stage] + slow

    records = drive_policy(D3, [table], [(0, "a"), (20, "a")], execution_ms)
    # 3.5 ms for the first stage: fast, 2 ms. 5 are left. The second time it takes 4.5: 2.5 left.
    assert [
        ([stage.variant for stage in one.stages], one.outcome, one.completion_ns)
        for one in records
    ] == [
        (["fast-1", "full"], Outcome.MET, 6 * MS),
        (["fast-1", "fast-1"], Outcome.MET, 25_500_000),
    ]


@given(cohort=cohorts(), now_ms=st.integers(0, 40))
def test_no_more_accurate_variant_fits(cohort, now_ms):
    policy = make_policy(D3, cohort)
    chosen = check_pure(policy, cohort, now_ms * MS).variants
    if cohort.deciding < 0:
        return
    member = cohort.members[cohort.deciding]
    stage, table, variant = member.stage, member.table, chosen[cohort.deciding]
    times = table.quantile_ns(0.999)[:, stage:] * table.slowdown[:, stage:, cohort.clocks]
    left_ns = member.absolute_deadline_ns - now_ms * MS
    deadline_ns = left_ns * times[0, 0] / times[0].sum()
    there = [v for v, usable in enumerate(member.usable) if usable]
    better = [v for v in there if table.loss[v, stage] < table.loss[variant, stage]]
    assert all(times[v, 0] > deadline_ns * (1 - 1e-9) for v in better)
    if times[variant, 0] > deadline_ns * (1 + 1e-9):
        assert times[variant, 0] == min(times[v, 0] for v in there)
