"""The order of ready jobs."""

import pytest
from virtual_drive import make_task, make_work

from jetson_dnn_rt.lab.evaluate import command as evaluate
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.queue import DISCIPLINES, ReadyQueue


def make_job(name, deadline, ready=0):
    job = Job(name, 0, 0, 0, deadline, make_work(), "full@null")
    job.ready_ns = ready
    return job


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


def test_an_unknown_discipline_is_refused():
    with pytest.raises(ValueError, match=r"edf.*fifo.*priority"):
        ReadyQueue("lifo")


def test_the_command_line_offers_the_same_disciplines():
    assert evaluate.DISCIPLINES == DISCIPLINES
