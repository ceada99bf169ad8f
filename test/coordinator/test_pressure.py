# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How much slower than profiled the machine is: what counts, and what is explained otherwise."""

from __future__ import annotations

import pytest
from cohorts import MS, make_clock_table, make_cohort, make_member, make_table

from jetson_dnn_rt.coordinator.cohort import FrameSample
from jetson_dnn_rt.coordinator.policies.horizon.pressure import (
    ATTACK,
    CAUTION,
    DECAY,
    FOLLOW,
    PressureGauge,
    find_surprise,
)

NOISE = [0.95, 0.98, 1.0, 1.02, 1.05]


def make(count=1, interference=(1.0, 1.5)):
    table = make_table(frames=NOISE)
    members = [make_member(table, last_release_ns=0) for _ in range(count)]
    return make_cohort(make_clock_table(), members, interference=interference)


def gauge_of(cohort):
    tables = [member.table for member in cohort.members]
    return PressureGauge(tables, cohort.interference[: len(tables)], range(3), 0.5)


def end_frame(member, ratio):
    member.frames_done += 1
    member.last_frame = FrameSample(True, 1, 1)
    member.slowdown.observe(ratio)
    member.stage, member.started, member.pace = 0, False, 1.0


def test_surprise_is_what_no_profiled_frame_shows():
    surprise = find_surprise(make_table(frames=NOISE))
    assert surprise[0] == 1.0
    assert surprise[1:] == pytest.approx([1.0488] * 3, abs=1e-3)


def test_noise_is_followed_slowly_and_a_surprise_fast():
    cohort = make()
    gauge = gauge_of(cohort)
    end_frame(cohort.members[0], 1.02)
    memory = gauge.learn(cohort)
    assert memory.pressure[0] == pytest.approx(1.0 + DECAY * 0.02)
    cohort.memory = memory
    end_frame(cohort.members[0], 2.0)
    after = gauge.learn(cohort)
    before = memory.pressure[0]
    assert after.pressure[0] == pytest.approx(before + ATTACK * (2.0 - before))


def test_responses_are_followed():
    cohort = make()
    gauge = gauge_of(cohort)
    member = cohort.members[0]
    end_frame(member, 1.0)
    for response_ms, fraction in ((8, 0.8), (25, 1.0)):
        member.last_frame = FrameSample(True, response_ms * MS, 1)
        expected = 0.5 + FOLLOW * (fraction - 0.5)
        assert gauge.learn(cohort).response[0] == pytest.approx(expected)


def test_frames_make_up_for_what_others_lost_beyond_the_floor():
    cohort = make()  # its second variant loses 0.01 a stage
    member = cohort.members[0]
    gauge = PressureGauge([member.table], (1.0,), range(3), 0.5, loss_allowed=0.02)
    memory, debts = gauge.start, []
    cohort.deciding = 0
    for variant in (1, 1, 0):
        for stage in range(3):
            member.stage, member.started, member.variant = stage, stage > 0, variant
            memory = gauge.note(memory, cohort, variant, 1.0)
        assert gauge.lost(0, member, memory) == pytest.approx(0.02 * variant)
        end_frame(member, 1.0)
        cohort.memory = memory
        memory = gauge.learn(cohort)
        debts.append(memory.debt[0])
    assert debts == pytest.approx([0.01, 0.02, 0.0])


def test_nobody_makes_up_for_frames_under_another_policy():
    cohort = make()
    member = cohort.members[0]
    member.variant = 1
    end_frame(member, 1.0)
    cohort.memory = None
    gauge = PressureGauge([member.table], (1.0,), range(3), 0.5, loss_allowed=0.0)
    assert gauge.learn(cohort).debt == (0.0,)


def run_frame(gauge, cohort, memory, pace):
    """Member 0 goes through its three stages while member 1 runs."""
    member = cohort.members[0]
    cohort.members[1].running_since_ns = 0
    cohort.deciding = 0
    for stage in range(3):
        member.stage, member.started = stage, stage > 0
        member.pace = pace if stage else 1.0
        memory = gauge.note(memory, cohort, 0, 1.0)
    return memory


def test_what_others_explain_is_no_pressure():
    cohort = make(2)
    gauge = gauge_of(cohort)
    cohort.memory = run_frame(gauge, cohort, gauge.start, 1.5)
    end_frame(cohort.members[0], 1.5)
    memory = gauge.learn(cohort)
    assert memory.pressure[0] == pytest.approx(1.0)
    assert gauge.trust(0, cohort.members[0], memory) == pytest.approx(1.0)


def test_a_frame_shows_its_own_slow_down_before_it_ends():
    cohort = make(2)
    gauge = gauge_of(cohort)
    memory = run_frame(gauge, cohort, gauge.start, 3.0)
    member = cohort.members[0]
    surprise = find_surprise(member.table)[2]
    assert gauge.shown(0, member, memory) == pytest.approx(3.0 / 1.5 / surprise)
    assert gauge.trust(0, member, memory) == pytest.approx(1.5 * surprise / 3.0)
    # What one has met counts for all.
    memory = gauge.start._replace(newest=2.0)
    assert gauge.trust(1, cohort.members[1], memory) == pytest.approx(0.5)


def test_after_misses_there_is_less_time():
    cohort = make()
    gauge = gauge_of(cohort)
    member = cohort.members[0]
    trusts = []
    for misses in range(7):
        member.misses_in_a_row = misses
        trusts.append(gauge.trust(0, member, gauge.start))
    assert trusts[:3] == pytest.approx([1.0, CAUTION, CAUTION**2])
    assert trusts[4] == trusts[6] > 0.0
