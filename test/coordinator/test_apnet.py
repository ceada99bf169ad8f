# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ApNet: plans from the original to the fastest, and the look-up."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from cohorts import check_pure, make_clock_table, make_cohort, make_member, make_policy, make_table
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jetson_dnn_rt.coordinator.policies.apnet import ApNet, make_plans

TIMES_MS = ((4.0, 4.0), (2.0, 3.0), (1.5, 1.0))
LOSS = ((0.0, 0.0), (0.01, 0.02), (0.03, 0.03))


def test_plans_by_time_saved_per_score_lost():
    table = make_table(times_ms=TIMES_MS, loss=LOSS)
    times_ns, plans = make_plans(table, 0.999)
    # Stage 0: 2 ms for 0.01, then 0.5 for 0.02. Stage 1: 1 ms for 0.02 is below the line to
    # 3 ms for 0.03, so variant 1 is no step there.
    assert plans == [(0, 0), (1, 0), (1, 2), (2, 2)]
    assert [-time / 1e6 for time in times_ns] == [8.0, 6.0, 3.0, 2.5]


@pytest.mark.parametrize(
    ("deadline_ms", "plan"),
    [(8.0, (0, 0)), (7.99, (1, 0)), (6.0, (1, 0)), (5.0, (1, 2)), (2.6, (2, 2)), (1.0, (2, 2))],
)
def test_the_least_approximation_that_fits(deadline_ms, plan):
    member = make_member(make_table(times_ms=TIMES_MS, loss=LOSS, deadline_ms=deadline_ms))
    cohort = make_cohort(make_clock_table(), [member])
    policy = make_policy(ApNet, cohort)
    for stage, variant in enumerate(plan):
        member.stage, member.started = stage, stage > 0
        decision = check_pure(policy, cohort)
        assert decision.variants == (variant,)
        assert decision.clocks == cohort.clocks_target


def test_worst_case_is_the_profiled_quantile():
    table = make_table(times_ms=TIMES_MS, loss=LOSS, frames=(1.0,) * 98 + (1.5, 2.0))
    assert make_plans(table, 0.5)[0][0] == -8_000_000
    assert make_plans(table, 0.99)[0][0] == -12_000_000
    assert make_plans(table, 0.999)[0][0] == -16_000_000


def test_clocks_and_neighbours_make_everything_slower():
    tables = [
        make_table(f"task-{i}", times_ms=TIMES_MS, loss=LOSS, deadline_ms=12.0) for i in range(3)
    ]
    cohort = make_cohort(
        make_clock_table(),
        [make_member(table) for table in tables],
        workers=2,
        interference=(1.0, 1.5, 9.0),
    )
    # Three tasks, but two workers: 1.5. 8 ms take 12: it just fits.
    assert make_policy(ApNet, cohort).decide(cohort, 0).variants == (0, 0, 0)
    cohort.clocks = 1  # half as fast: 24, 18, 9 and 7.5 ms
    cohort.members[0].stage = 1
    assert make_policy(ApNet, cohort).decide(cohort, 0).variants == (2, 1, 1)


@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_no_plan_as_fast_is_more_accurate_than_the_line(stages, variants, data):
    """On the greedy line each plan is the best of all for its time (a convex hull of them)."""
    shape = (variants, stages)
    times = data.draw(hnp.arrays(float, shape, elements=st.floats(0.5, 9.0)))
    loss = data.draw(hnp.arrays(float, shape, elements=st.floats(0.001, 0.1))).cumsum(axis=0)
    table = make_table(times_ms=times, loss=loss.tolist())
    times_ns, plans = make_plans(table, 0.999)
    assert all(a < b for a, b in pairwise(times_ns))
    worst = table.quantile_ns(0.999)
    assert -times_ns[-1] == worst.min(axis=0).sum()
    columns = np.arange(stages)
    for time, plan in zip(times_ns, plans, strict=True):
        assert worst[list(plan), columns].sum() == -time
        lost = loss[list(plan), columns].sum()
        for other in product(range(variants), repeat=stages):
            if worst[list(other), columns].sum() <= -time:
                assert lost <= loss[list(other), columns].sum() + 1e-9
