# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Clockwork: which frame begins, which waits and which is dropped, worked out by hand."""

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
    snapshot,
)
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.cohort import FrameSample
from jetson_dnn_rt.coordinator.policies.clockwork import Clockwork
from jetson_dnn_rt.scheduling.selection import Gate
from jetson_dnn_rt.tasks import Outcome

SHORT_MS = ((0.5, 1.0, 0.5),)  # 2 ms in all; the usual table takes 4


def pair():
    """`long` has to start by 6 ms, `short`, whose deadline is earlier, by 7."""
    members = [
        make_member(make_table("long", deadline_ms=10.0)),
        make_member(make_table("short", times_ms=SHORT_MS, deadline_ms=9.0)),
    ]
    return make_cohort(make_clock_table(), members)


def gates(policy, cohort, now_ns):
    return [policy.gate(cohort, number, now_ns) for number in range(len(cohort.members))]


def measure(policy, cohort, *ratios, member=0):
    """Frames of a member end, after so many times their profiled time."""
    state = cohort.members[member]
    cohort.memory = policy.decide(cohort, 0).memory
    for ratio in ratios:
        state.frames_done += 1
        state.last_frame = FrameSample(met=True, response_ns=4 * MS, execution_ns=4 * MS)
        state.slowdown.observe(ratio)
        cohort.memory = check_pure(policy, cohort).memory


def latest_start_ms(policy, cohort, member=0):
    """The last whole microsecond at which the gate is not closed."""
    low, high = 0, 100_000
    while low < high:
        middle = (low + high + 1) // 2
        if policy.gate(cohort, member, middle * 1000) is Gate.CLOSED:
            high = middle - 1
        else:
            low = middle
    return low / 1000


def test_the_frame_that_has_to_start_first_begins():
    cohort = pair()
    policy = make_policy(Clockwork, cohort)
    assert gates(policy, cohort, 0) == [Gate.OPEN, Gate.HELD]
    assert gates(policy, cohort, 6 * MS) == [Gate.OPEN, Gate.HELD]
    assert gates(policy, cohort, 6 * MS + 1) == [Gate.CLOSED, Gate.OPEN]
    assert gates(policy, cohort, 7 * MS + 1) == [Gate.CLOSED, Gate.CLOSED]


def test_one_at_a_time():
    cohort = pair()
    policy = make_policy(Clockwork, cohort)
    cohort.members[1].started = True
    assert policy.gate(cohort, 0, 0) is Gate.HELD
    assert policy.gate(cohort, 0, 6 * MS + 1) is Gate.CLOSED
    cohort.members[1].active = cohort.members[1].started = False
    assert policy.gate(cohort, 0, 0) is Gate.OPEN


def test_among_equals_the_first_task():
    cohort = make_cohort(make_clock_table(), [make_member(make_table(name)) for name in "ab"])
    assert gates(make_policy(Clockwork, cohort), cohort, 0) == [Gate.OPEN, Gate.HELD]


def test_an_estimate_is_the_largest_of_ten_measurements():
    cohort = pair()
    policy = make_policy(Clockwork, cohort)
    assert latest_start_ms(policy, cohort) == 6.0
    measure(policy, cohort, 1.5)  # 6 ms
    assert latest_start_ms(policy, cohort) == 4.0
    measure(policy, cohort, *[0.75] * 9)
    assert latest_start_ms(policy, cohort) == 4.0
    measure(policy, cohort, 0.75)  # the eleventh: 3 ms are the most
    assert latest_start_ms(policy, cohort) == 7.0
    # Those of the other task are its own.
    assert latest_start_ms(policy, cohort, member=1) == 7.0


def test_measurements_do_not_depend_on_the_clocks():
    cohort = pair()
    policy = make_policy(Clockwork, cohort)
    measure(policy, cohort, 1.25)  # 5 ms
    cohort.clocks = 1  # half as fast
    assert latest_start_ms(policy, cohort) == 0.0
    assert latest_start_ms(policy, cohort, member=1) == 5.0


def test_the_profile_until_something_was_measured():
    table = make_table(frames=(1.0,) * 98 + (1.5, 2.0))
    cohort = make_cohort(make_clock_table(), [make_member(table)])
    policy = make_policy(Clockwork, cohort)
    # Of 100 profiled frames 99 took 6 ms at most; in the faster variant half of that.
    assert latest_start_ms(policy, cohort) == 4.0
    cohort.members[0].configured = 1
    assert latest_start_ms(policy, cohort) == 7.0


def test_a_probe_after_hopeless_estimates_replaces_them():
    cohort = pair()
    policy = make_policy(Clockwork, cohort)
    measure(policy, cohort, 1.0, 3.0)  # 12 ms, of 10: no frame is admitted any more
    assert policy.gate(cohort, 0, 0) is Gate.CLOSED
    measure(policy, cohort, 1.0)
    assert latest_start_ms(policy, cohort) == 6.0


def test_variants_and_clocks_stay():
    cohort = pair()
    cohort.members[1].configured, cohort.clocks_target = 0, 1
    decision = check_pure(make_policy(Clockwork, cohort), cohort)
    assert (decision.variants, decision.clocks) == ((0, 0), 1)


@given(cohort=cohorts(), now_ms=st.integers(0, 40))
def test_one_frame_is_let_in_where_any_would_be_in_time(cohort, now_ms):
    policy = make_policy(Clockwork, cohort)
    waiting = [n for n, one in enumerate(cohort.members) if one.active and not one.started]
    before = snapshot(cohort)
    answers = [policy.gate(cohort, number, now_ms * MS) for number in waiting]
    assert snapshot(cohort) == before
    if any(one.active and one.started for one in cohort.members):
        assert Gate.OPEN not in answers
    else:
        assert answers.count(Gate.OPEN) == (set(answers) - {Gate.CLOSED} != set())


@pytest.mark.parametrize("workers", [1, 2])
def test_on_the_engine_with_a_measured_drop(workers):
    tables = [
        make_table("first", times_ms=((1.0, 1.0),), deadline_ms=15.0),
        make_table("short", times_ms=((1.0, 1.0),), deadline_ms=9.5),
        make_table("long", times_ms=((2.0, 3.0),), deadline_ms=10.0),
    ]
    stages_ms = {("short", 1): (1.5, 1.5), ("long", 0): (2.6, 3.0)}  # others as profiled

    def execution_ms(job):
        usual_ms = (2.0, 3.0) if job.task == "long" else (1.0, 1.0)
        return stages_ms.get((job.task, job.sequence), usual_ms)[job.next_stage]

    arrivals = [(0, "short"), (10, "short"), (20, "first"), (21, "short"), (21, "long")]
    records = drive_policy(
        Clockwork, tables, [*arrivals, (40, "short")], execution_ms, workers=workers
    )
    assert [
        (one.task, one.sequence, one.outcome, one.start_ns, one.completion_ns) for one in records
    ] == [
        ("short", 0, Outcome.MET, 0, 2 * MS),
        ("short", 1, Outcome.MET, 10 * MS, 13 * MS),
        ("first", 0, Outcome.MET, 20 * MS, 22 * MS),
        # It has to start by 26 of 31; the other by 27.5, although its deadline is 30.5.
        ("long", 0, Outcome.MET, 22 * MS, 27_600_000),
        # Once it took 3 ms. Dropped, although the usual 2 ms would fit.
        ("short", 2, Outcome.SKIPPED, None, 27_600_000),
        ("short", 3, Outcome.MET, 40 * MS, 42 * MS),
    ]
    assert records[4].reason == "budget"
