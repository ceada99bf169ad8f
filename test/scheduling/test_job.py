# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Budgets, LAG and the record of a job's end."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raising import InjectedError, InterruptedWindow
from virtual_drive import make_task, make_work

from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import lag_ns, sub_deadlines_ns
from jetson_dnn_rt.scheduling.task_state import BudgetEstimator
from jetson_dnn_rt.tasks import Outcome


def test_reset_forgets():
    estimator = BudgetEstimator(0.99)
    estimator.reset([1000])
    estimator.reset([3, 4])
    assert (estimator.budget_ns, estimator.median_ns) == (4, 3)


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=100),
    st.integers(1, 20),
    st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_equals_the_quantile_of_the_window(times, window, quantile):
    estimator = BudgetEstimator(quantile, window)
    for time_ns in times:
        estimator.observe(time_ns)
    recent = sorted(times[-window:])
    assert estimator.budget_ns == recent[math.ceil(quantile * len(recent)) - 1]
    assert estimator.median_ns == recent[(len(recent) - 1) // 2]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.sampled_from(["", "", "before", "behind"]))),
    st.integers(1, 20),
)
def test_an_interrupted_observation_spoils_no_later_one(times, window):
    """Campaign of faults: what was in half of the window was missed when it left that, for ever.

    Each frame of the task failed from then on: one exception had become one for each frame.
    """
    estimator = BudgetEstimator(0.9, window)
    estimator._recent = recent = InterruptedWindow(maxlen=window)
    for time_ns, where in times:
        recent.where = where
        with contextlib.suppress(InjectedError):
            estimator.observe(time_ns)
    recent.where = ""
    estimator.observe(7)
    last = sorted(recent)
    assert 7 in last
    assert estimator._sorted == last
    assert estimator.budget_ns == last[math.ceil(0.9 * len(last)) - 1]


profiles = st.lists(st.integers(0, 10**9), min_size=1, max_size=12).filter(any)


def test_sub_deadlines_are_shares_of_the_deadline_by_profiled_time():
    assert sub_deadlines_ns(100, (10, 30, 10)) == (20, 60, 20)


def test_lag_is_negative_when_behind():
    sub_deadlines = sub_deadlines_ns(100, (10, 30, 10))
    assert lag_ns(sub_deadlines, 1, 25) == -5
    assert lag_ns(sub_deadlines, 2, 70) == 10
    assert lag_ns(sub_deadlines, 0, 0) == 0


@given(st.integers(1, 10**10), profiles)
def test_sub_deadlines_add_up_to_the_deadline_and_prefixes_round_down(deadline, profile):
    sub_deadlines = sub_deadlines_ns(deadline, profile)
    assert sum(sub_deadlines) == deadline
    for stage in range(len(profile)):
        exact = deadline * sum(profile[: stage + 1])
        assert sum(sub_deadlines[: stage + 1]) == exact // sum(profile)


@pytest.mark.parametrize("profile", [(), (0, 0), (5, -1)])
def test_a_profile_that_says_nothing_is_refused(profile):
    with pytest.raises(ValueError, match="profile_ns"):
        sub_deadlines_ns(100, profile)


def end_one(engine, *times_ns):
    """Run a job's stages, one after the other."""
    task = make_task("a", 100, stages=("one", "two"))
    engine.add_task(task)
    engine.seed_budgets("a", task.variant, [(10, 30)])
    engine.release("a", 0, 0, make_work())
    begin_ns = 0
    for time_ns in times_ns:
        job = engine.next(begin_ns)
        assert job is not None
        engine.boundary(job, begin_ns + time_ns, begin_ns, begin_ns + time_ns)
        begin_ns += time_ns
    [ending] = engine.take_endings()
    assert engine.take_endings() == []
    return ending


def test_lag_is_that_of_the_moment_of_the_end():
    """80 for the first stage: the second does not fit any more. Medians are 10 and 30 then, so
    that the first stage's share of the deadline is 25.
    """
    engine = Engine()
    ending = end_one(engine, 80)
    before = ending.make_record()
    assert (before.outcome, before.lag_ns) == (Outcome.ABORTED, 25 - 80)
    # What is observed later does not change it.
    for _ in range(5):
        engine.tasks["a"].observe("full@null", 0, 90)
    assert ending.make_record() == before


def test_record_says_the_outcome_and_the_stages():
    ending = end_one(Engine(), 20, 81)
    record = ending.make_record()
    assert (record.outcome, record.completion_ns, record.reason) == (Outcome.LATE, 101, "")
    assert [stage.execution_time_ns for stage in record.stages] == [20, 81]
    assert ending.work is ending.job.work


def test_a_job_that_never_began_has_no_lag():
    engine = Engine()
    task = make_task("a", 10)
    engine.add_task(task)
    engine.seed_budgets("a", task.variant, [(30,)])
    engine.release("a", 0, 0, make_work())
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason, record.lag_ns) == (Outcome.SKIPPED, "budget", 0)
    assert record.start_ns is None
