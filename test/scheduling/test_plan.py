"""Who is in time when jobs run to their ends; examples by hand."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import make_work

from jetson_dnn_rt.scheduling.batching import Demand, jobs_in_time, one_by_one
from jetson_dnn_rt.scheduling.job import Job


def demand(name, deadline, budget, *, available=0, started=False):
    job = Job(name, 0, 0, 0, deadline, make_work(), "full@null")
    steps = budget if isinstance(budget, tuple) else ((budget, "cpu"),)
    return Demand(job, (0, deadline, not started, 0, 0), steps, started, available)


def names(jobs):
    return "".join(sorted(job.task for job in jobs))


def test_one_worker_takes_them_in_order():
    demands = [demand("c", 30, 10), demand("a", 10, 10), demand("b", 20, 10)]
    assert names(jobs_in_time([0], demands)) == "abc"
    assert names(jobs_in_time([1], demands)) == "bc", "a does not fit, and takes no time"


def test_a_started_job_takes_its_time_all_the_same():
    demands = [demand("a", 10, 10, started=True), demand("b", 20, 10)]
    assert names(one_by_one(1, demands)) == ""
    assert names(jobs_in_time([1], demands)) == "b", "with several workers it is given up"


def test_two_workers_share_them():
    demands = [demand(name, 20, 10) for name in "abcde"]
    assert names(jobs_in_time([0, 0], demands)) == "abcd"
    assert names(jobs_in_time([0, 10], demands)) == "abc"


def test_nobody_waits_for_what_is_not_available_yet():
    demands = [demand("a", 15, 5, available=8, started=True), demand("b", 30, 10)]
    # b is begun at 0, and a waits for it until 10.
    assert names(jobs_in_time([0], demands)) == "ab"
    demands = [demand("a", 14, 5, available=8, started=True), demand("b", 30, 10)]
    assert names(jobs_in_time([0], demands)) == "b"
    assert names(jobs_in_time([0, 0], demands)) == "ab"


def test_a_worker_idles_until_something_is_available():
    assert names(jobs_in_time([0], [demand("a", 15, 5, available=8)])) == "a"
    assert names(jobs_in_time([0], [demand("a", 15, 5, available=11)])) == ""


def test_nothing_at_hand():
    assert jobs_in_time([0], []) == set()


def test_a_device_with_a_limit_is_waited_for():
    """Both are prepared at 2; on the device one is done at 12, the other at 22."""
    steps = ((2, "cpu"), (10, "cuda"), (1, "cpu"))
    for last, expected in ((23, "ab"), (22, "a")):
        demands = [demand("a", 13, steps), demand("b", last, steps)]
        assert names(jobs_in_time([0, 0], demands, {"cuda": [0]})) == expected
        assert names(jobs_in_time([0, 0], demands, {"cuda": [0, 0]})) == "ab"
        assert names(jobs_in_time([0, 0], demands)) == "ab"


def test_other_work_goes_on_beside_a_full_device():
    demands = [demand("a", 30, ((10, "cuda"),)), demand("b", 8, ((8, "cpu"),))]
    assert names(jobs_in_time([0], demands, {"cuda": [15]})) == "ab"
    assert names(jobs_in_time([0], demands, {"cuda": [21]})) == "b"


def test_a_worker_goes_to_the_first_in_order_at_each_step():
    """b is begun while a is not there yet, and makes room for it between its steps."""
    demands = [demand("a", 12, 5, available=3), demand("b", 14, ((4, "cpu"), (4, "cpu")))]
    assert names(jobs_in_time([0], demands)) == "ab"


def test_what_is_done_already_is_in_time_when_it_is_available():
    done = [demand("a", 10, (), available=10), demand("b", 10, (), available=11)]
    assert names(jobs_in_time([0, 0], done)) == names(one_by_one(10, done)) == "a"


@given(
    jobs=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=8),
    begin=st.integers(0, 9),
)
@settings(max_examples=100, deadline=None)
def test_on_one_worker_both_ways_agree_about_jobs_to_come(jobs, begin):
    demands = [
        demand(f"j{index}", deadline, ((budget, "cpu"), (budget, "cuda")))
        for index, (deadline, budget) in enumerate(jobs)
    ]
    # Ranks differ, as in the queue the order of arrival decides last.
    demands = [replace(each, rank=(*each.rank[:4], index)) for index, each in enumerate(demands)]
    assert jobs_in_time([begin], demands, {"cuda": [0]}) == one_by_one(begin, demands)
