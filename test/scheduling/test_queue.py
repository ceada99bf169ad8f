# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The order of ready jobs, and those on spare time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.lab.evaluate import command as evaluate
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import ReadyQueue, SpareQueue
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.tasks import Admission


def make_job(name, deadline, ready=0, place=0):
    return Job(name, 0, 0, 0, deadline, make_work(), "full@null", ready_ns=ready, place=place)


def fill(queue, *jobs):
    """Push (name, deadline, ready, changes of its task)."""
    for name, deadline, ready, changes in jobs:
        queue.push(make_job(name, deadline, ready), make_task(name, 100, **changes), 0)


def drain(queue):
    order = []
    while (job := queue.pop()) is not None:
        order.append(job.task)
    return order


def test_disciplines():
    jobs = [
        ("a", 30, 1, {"priority": 0}),
        ("b", 20, 3, {"priority": 5}),
        ("c", 10, 2, {"priority": 0}),
        ("d", 25, 0, {"priority": 5}),
    ]
    orders = {}
    for discipline in DISCIPLINES:
        queue = ReadyQueue(discipline)
        fill(queue, *jobs)
        waiting = [job.task for job in queue.waiting()]
        order = drain(queue)
        assert waiting == order
        orders[discipline] = "".join(order)
    assert orders == {"edf": "cbda", "fifo": "dacb", "priority": "bdca"}


def test_ties_of_priorities_are_decided_like_those_of_edf():
    queue = ReadyQueue("priority")
    fill(queue, ("late", 30, 0, {"precedence": 1}), ("x", 30, 0, {"precedence": 0}))
    started = make_job("started", 30)
    started.start_ns = 0
    queue.push(started, make_task("started", 100, precedence=2), 0)
    queue.push(make_job("missed", 30), make_task("missed", 100, precedence=3), 2)
    assert drain(queue) == ["started", "missed", "x", "late"]


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_job_that_was_put_back_keeps_its_place(discipline):
    queue = ReadyQueue(discipline)
    fill(queue, *((name, 10, 0, {}) for name in "abc"))
    first, second = queue.pop(), queue.pop()
    for job in (second, first):
        queue.put_back(job, make_task(job.task, 100), 0)
    assert drain(queue) == ["a", "b", "c"]


def test_a_job_that_was_taken_out_of_turn_does_not_come_again():
    queue = ReadyQueue()
    fill(queue, *((name, 10, 0, {}) for name in "abc"))
    b = queue.waiting()[1]
    b.queued = False
    assert [job.task for job in queue.waiting()] == ["a", "c"]
    assert queue.pop().task == "a"
    # It becomes ready again: its old entry does not count.
    b.absolute_deadline_ns = 20
    queue.push(b, make_task("b", 100), 0)
    assert drain(queue) == ["c", "b"]


def test_ended_jobs_are_passed_over():
    queue = ReadyQueue()
    fill(queue, *((name, 10, 0, {}) for name in "ab"))
    queue.waiting()[0].ended = True
    assert drain(queue) == ["b"]


def test_the_command_line_offers_the_same_disciplines():
    assert evaluate.DISCIPLINES == DISCIPLINES


class AskedAnew(StaticSelector):
    """Chooses the same, but the engine does not know: it looks at every job at every boundary."""


def test_first_in_rank_comes_first_and_overdue_ones_before_their_turn():
    queue, order = SpareQueue(), ReadyQueue()
    jobs = {name: make_job(name, 100 + i, place=i + 1) for i, name in enumerate("abcd")}
    for name, limit_ns in zip("abcd", (50, 20, 30, 40), strict=True):
        task = make_task(name, 100)
        queue.push(jobs[name], order.rank(jobs[name], task, 0, 0, started=False), limit_ns)
    assert queue.pop_overdue(20) is None
    assert queue.pop_overdue(31) is jobs["b"]
    assert queue.pop_overdue(31) is jobs["c"]
    assert queue.pop_overdue(31) is None
    jobs["a"].ended = True  # superseded meanwhile
    assert queue.pop() is jobs["d"]
    assert queue.pop() is None
    assert queue.pop_overdue(1000) is None


def test_what_ended_does_not_pile_up():
    queue, order = SpareQueue(), ReadyQueue()
    for place in range(1, 100):
        job = make_job("a", 100 + place, place=place)
        queue.push(job, order.rank(job, make_task("a", 100), 0, 0, started=False), 50 + place)
        job.ended = True
    assert len(queue.entries) == 1


def run(arrivals, tasks, workers, discipline, *, asked_anew):
    """The tasks' budgets are twice what their jobs take, so that there is much spare time."""
    engine = Engine(workers, discipline)
    if asked_anew:
        engine.selector = AskedAnew()
    for name, (cost, deadline) in tasks.items():
        task = make_task(name, deadline, stages=("one", "two"), budget_quantile=1.0)
        engine.add_task(task)
        # The budgets hold: the window is never full.
        engine.seed_budgets(name, task.variant, [(cost, cost), (cost, cost), (4 * cost, 4 * cost)])
    return drive(engine, arrivals, lambda job: tasks[job.task][0])


@settings(max_examples=60)
@given(
    tasks=st.lists(st.tuples(st.integers(1, 12), st.integers(10, 80)), min_size=1, max_size=6),
    times=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 5)), min_size=1, max_size=40),
    workers=st.integers(1, 3),
    discipline=st.sampled_from(["edf", "fifo", "priority"]),
)
def test_the_same_jobs_run_as_if_each_was_asked_at_every_boundary(
    tasks, times, workers, discipline
):
    named = {f"task-{i}": task for i, task in enumerate(tasks)}
    arrivals = sorted((time_ns, f"task-{i % len(tasks)}") for time_ns, i in times)
    aside, anew = (
        run(arrivals, named, workers, discipline, asked_anew=asked) for asked in (False, True)
    )
    assert aside == anew


def test_there_is_spare_time_in_what_is_compared():
    tasks = {f"task-{i}": (5, 40) for i in range(4)}
    arrivals = [(time_ns, name) for time_ns in range(0, 200, 40) for name in tasks]
    records = run(arrivals, tasks, 1, "edf", asked_anew=False)
    assert sum(record.admission is Admission.SPARE for record in records) > 5


def test_those_put_aside_come_back_when_a_coordinator_takes_over():
    engine = Engine()
    tasks = [make_task("busy", 100), *(make_task(name, 15) for name in "ab")]
    for task, times in zip(tasks, ([10], [10, 10, 40], [10, 10, 40]), strict=True):
        engine.add_task(task)
        engine.seed_budgets(task.name, task.variant, [(time_ns,) for time_ns in times])
    engine.release("a", 0, 0, make_work())
    engine.release("b", 0, 0, make_work())
    engine.release("busy", 0, 0, make_work())
    job = engine.next(0)
    assert job is not None
    assert job.task == "busy"  # admitted: before the two that are put aside
    assert engine.has_ready
    engine.selector = AskedAnew()
    engine.boundary(job, 2, 0, 2)
    other = engine.next(2)
    assert other is not None
    assert (other.task, other.admission) == ("a", Admission.SPARE)


@pytest.mark.parametrize(
    "push",
    [
        lambda job, task: ReadyQueue().push(job, task, 0),
        lambda job, task: SpareQueue().push(job, (0, 0, False, 0, 0), 5),
    ],
)
def test_a_job_that_the_heap_had_no_memory_for_is_not_believed_to_be_in_it(monkeypatch, push):
    """Campaign of faults: it was queued for ever, and its task with it."""
    job, task = make_job("a", 10), make_task("a", 100)

    def fail(*args):
        raise MemoryError

    monkeypatch.setattr("heapq.heappush", fail)
    with pytest.raises(MemoryError):
        push(job, task)
    assert not job.queued
