# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""SubFlow: the largest part of the network that fits when a frame begins."""

from __future__ import annotations

import pytest
from cohorts import (
    MS,
    check_pure,
    drive_policy,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)

from jetson_dnn_rt.coordinator.policies.subflow import SubFlow
from jetson_dnn_rt.tasks import Outcome

TIMES_MS = ((4.0, 4.0), (2.0, 3.0), (1.5, 1.0))  # 8, 5 and 2.5 ms


def subflow_of(*, deadline_ms=10.0, frames=(1.0,), tasks=1, confidence=0.999, **fields):
    tables = [
        make_table(f"task-{i}", times_ms=TIMES_MS, frames=frames, deadline_ms=deadline_ms)
        for i in range(tasks)
    ]
    cohort = make_cohort(
        make_clock_table(),
        [make_member(table, **fields) for table in tables],
        workers=2,
        interference=(1.0, 1.5),
    )
    return make_policy(SubFlow, cohort, confidence=confidence), cohort


@pytest.mark.parametrize(
    ("left_ms", "variant"), [(8.0, 0), (7.999999, 1), (5.0, 1), (4.999999, 2), (2.5, 2), (1.0, 2)]
)
def test_the_most_accurate_that_fits_what_is_left(left_ms, variant):
    policy, cohort = subflow_of()
    decision = check_pure(policy, cohort, round((10.0 - left_ms) * MS))
    assert (decision.variants, decision.clocks) == ((variant,), cohort.clocks_target)


def test_the_time_is_a_quantile_of_frames_at_the_present_clocks_beside_others():
    frames = (1.0,) * 98 + (1.5, 2.0)
    chosen = [
        check_pure(*subflow_of(frames=frames, confidence=share)).variants[0]
        for share in (0.5, 0.99, 0.999)
    ]
    assert chosen == [0, 1, 1]  # 8, 12 and 16 ms; the next one takes 7.5 and 10
    policy, cohort = subflow_of()
    cohort.clocks = 1  # half as fast
    assert check_pure(policy, cohort).variants == (1,)
    assert check_pure(*subflow_of(tasks=2)).variants[0] == 1  # 12 ms


def test_a_frame_keeps_what_it_was_given():
    policy, cohort = subflow_of(stage=1, variant=0)
    assert check_pure(policy, cohort, 9 * MS).variants == (0,)
    assert policy.candidates(cohort, 0) == (0,)
    cohort.members[0].usable = (False, True, True)  # it was withdrawn on the way
    assert check_pure(policy, cohort, 5 * MS).variants == (1,)
    assert list(policy.candidates(cohort, 0)) == [1, 2]
    cohort.members[0].started = False
    assert list(policy.candidates(cohort, 0)) == [1, 2]


def test_on_the_engine_what_waited_gets_less():
    times_ms = ((4.0, 4.0), (2.0, 1.0))
    tables = [
        make_table(name, times_ms=times_ms, deadline_ms=deadline_ms)
        for name, deadline_ms in (("a", 12.0), ("b", 13.0))
    ]

    def execution_ms(job):
        return times_ms[job.variant != "full"][job.next_stage]

    records = drive_policy(SubFlow, tables, [(0, "a"), (0, "b")], execution_ms)
    # After 8 ms 5 are left for b: 8 do not fit.
    assert [
        (one.task, [stage.variant for stage in one.stages], one.outcome, one.completion_ns)
        for one in records
    ] == [
        ("a", ["full", "full"], Outcome.MET, 8 * MS),
        ("b", ["fast-1", "fast-1"], Outcome.MET, 11 * MS),
    ]
