# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task

from jetson_dnn_rt.scheduling.analysis import TaskDemand, analyse, blocking_ns, demand_ns
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import Outcome


def demand(name, cost, deadline, period, stages=1):
    return TaskDemand(name, cost, cost // stages, stages, deadline, period)


def test_demand_bound_by_hand():
    """dbf of (C, D, T) = (1, 4, 6) and (2, 5, 8) at 4, 5, 10, 13: 1, 3, 4, 6."""
    tasks = [demand("a", 1, 4, 6), demand("b", 2, 5, 8)]
    assert [demand_ns(tasks, t) for t in (3, 4, 5, 10, 13)] == [0, 1, 3, 4, 6]


def test_blocking_is_the_longest_stage_with_a_later_deadline():
    tasks = [demand("a", 1, 4, 6), demand("b", 6, 9, 9, stages=2), demand("c", 2, 20, 20)]
    assert [blocking_ns(tasks, t) for t in (3, 4, 9, 20)] == [3, 3, 2, 0]


def test_overload_is_not_schedulable():
    verdict = analyse([demand("a", 6, 10, 10), demand("b", 6, 10, 10)])
    assert verdict.schedulable is False
    assert verdict.utilization == pytest.approx(1.2)
    assert "NOT schedulable: utilisation 1.20 of 1 worker" in str(verdict)


def test_full_utilisation_with_implicit_deadlines_is_schedulable():
    """Liu and Layland 1973: EDF reaches 100 % (no blocking: equal deadlines)."""
    assert analyse([demand("a", 5, 10, 10), demand("b", 5, 10, 10)]).schedulable is True


def test_blocking_decides():
    """A stage of 8 blocks a task that has 3 to spare; cut into four stages it does not."""
    urgent = demand("urgent", 2, 5, 20)
    verdict = analyse([urgent, demand("long", 8, 40, 40)])
    assert verdict.schedulable is False
    assert "after 0.0 ms of blocking" in verdict.reason
    assert analyse([urgent, demand("long", 8, 40, 40, stages=4)]).schedulable is True


def test_a_task_longer_than_its_deadline_is_named():
    verdict = analyse([TaskDemand("detector", 50_000_000, 50_000_000, 1, 40_000_000, 10**9)])
    assert verdict.reason == "task detector alone needs 50.0 ms of its 40.0 ms"


def test_many_points_give_no_verdict_instead_of_hours():
    tasks = [demand("a", 1, 2, 2), demand("b", 999_998, 1_999_990, 2_000_000)]
    verdict = analyse(tasks)
    assert verdict.schedulable is None
    assert "too many points" in verdict.reason


def test_density_test_for_two_workers():
    assert analyse([demand(n, 5, 10, 10) for n in "abc"], workers=2).schedulable is True
    unproven = analyse([demand(n, 9, 10, 10) for n in "ab"] + [demand("c", 2, 10, 10)], workers=2)
    assert unproven.schedulable is None
    assert "not proven" in str(unproven)


def test_nothing_to_do_is_schedulable():
    assert analyse([]).schedulable is True


@st.composite
def task_sets(draw):
    tasks = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        period = draw(st.integers(4, 40))
        stages = draw(st.integers(1, 3))
        stage = draw(st.integers(1, max(1, period // (2 * stages))))
        cost = stage * stages
        tasks.append(
            TaskDemand(name, cost, stage, stages, draw(st.integers(cost, period)), period)
        )
    gaps = [draw(st.lists(st.integers(0, 10), min_size=12, max_size=12)) for _ in tasks]
    offsets = [draw(st.integers(0, 20)) for _ in tasks]
    return tasks, gaps, offsets, draw(st.integers(1, 2))


@given(sample=task_sets())
@settings(max_examples=400, deadline=None)
def test_what_is_called_schedulable_meets_every_deadline(sample):
    """Any sporadic arrivals, every stage as long as its budget, through the real engine."""
    tasks, gaps, offsets, workers = sample
    if analyse(tasks, workers).schedulable is not True:
        return
    engine, arrivals = Engine(workers), []
    for task, task_gaps, offset in zip(tasks, gaps, offsets, strict=True):
        names = tuple(f"s{i}" for i in range(task.stages))
        engine.add_task(make_task(task.name, task.deadline_ns, task.period_ns, stages=names))
        engine.seed_budgets(task.name, "full@null", [(task.longest_stage_ns,) * task.stages])
        time_ns = offset
        for gap in task_gaps:
            arrivals.append((time_ns, task.name))
            time_ns += task.period_ns + gap
    stage_ns = {task.name: task.longest_stage_ns for task in tasks}
    records = drive(engine, sorted(arrivals), lambda job: stage_ns[job.task])
    assert {record.outcome for record in records} == {Outcome.MET}
