"""The order of ready jobs."""

import pytest

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.lab.evaluate import command as evaluate
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import ReadyQueue


def make_job(harness, name, deadline, ready=0):
    job = Job(name, 0, 0, 0, deadline, harness.work(), "full@null")
    job.ready_ns = ready
    return job


def fill(harness, queue, *jobs):
    """Push (name, deadline, ready, changes of its task)."""
    for name, deadline, ready, changes in jobs:
        queue.push(make_job(harness, name, deadline, ready), harness.task(name, 100, **changes), 0)


def drain(queue):
    order = []
    while (job := queue.pop()) is not None:
        order.append(job.task)
    return order


def test_disciplines(harness):
    jobs = [
        ("a", 30, 1, {"priority": 0}),
        ("b", 20, 3, {"priority": 5}),
        ("c", 10, 2, {"priority": 0}),
        ("d", 25, 0, {"priority": 5}),
    ]
    orders = {}
    for discipline in DISCIPLINES:
        queue = ReadyQueue(discipline)
        fill(harness, queue, *jobs)
        waiting = [job.task for job in queue.waiting()]
        order = drain(queue)
        assert waiting == order
        orders[discipline] = "".join(order)
    assert orders == {"edf": "cbda", "fifo": "dacb", "priority": "bdca"}


def test_ties_of_priorities_are_decided_like_those_of_edf(harness):
    queue = ReadyQueue("priority")
    fill(harness, queue, ("late", 30, 0, {"precedence": 1}), ("x", 30, 0, {"precedence": 0}))
    started = make_job(harness, "started", 30)
    started.start_ns = 0
    queue.push(started, harness.task("started", 100, precedence=2), 0)
    queue.push(make_job(harness, "missed", 30), harness.task("missed", 100, precedence=3), 2)
    assert drain(queue) == ["started", "missed", "x", "late"]


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_job_that_was_put_back_keeps_its_place(harness, discipline):
    queue = ReadyQueue(discipline)
    fill(harness, queue, *((name, 10, 0, {}) for name in "abc"))
    first, second = queue.pop(), queue.pop()
    for job in (second, first):
        queue.put_back(job, harness.task(job.task, 100), 0)
    assert drain(queue) == ["a", "b", "c"]


def test_a_job_that_was_taken_out_of_turn_does_not_come_again(harness):
    queue = ReadyQueue()
    fill(harness, queue, *((name, 10, 0, {}) for name in "abc"))
    b = queue.waiting()[1]
    queue.take(b)
    assert [job.task for job in queue.waiting()] == ["a", "c"]
    assert queue.pop().task == "a"
    # It becomes ready again: its old entry does not count.
    b.absolute_deadline_ns = 20
    queue.push(b, harness.task("b", 100), 0)
    assert drain(queue) == ["c", "b"]


def test_ended_jobs_are_passed_over(harness):
    queue = ReadyQueue()
    fill(harness, queue, *((name, 10, 0, {}) for name in "ab"))
    queue.waiting()[0].ended = True
    assert drain(queue) == ["b"]


def test_an_unknown_discipline_is_refused():
    with pytest.raises(ValueError, match=r"edf.*fifo.*priority"):
        ReadyQueue("lifo")


def test_the_command_line_offers_the_same_disciplines():
    assert evaluate.DISCIPLINES == DISCIPLINES
