# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Stages that can be cancelled: when a job becomes hopeless, and what the engine makes of it."""

from virtual_drive import make_task, make_work

from jetson_dnn_rt.scheduling.engine import CANCELLED, Engine
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Outcome

CANCELS = (Run(cancels=True), Run())


def make_engine(*tasks, usual=(10, 2), runs=CANCELS, workers=1):
    engine = Engine(workers)
    for task in tasks:
        engine.add_task(task, dict.fromkeys(task.variants, runs))
        for variant in task.variants:
            engine.seed_budgets(task.name, variant, [usual])
    return engine


def two_stages(name, deadline, **changes):
    return make_task(name, deadline, stages=("inference", "decode"), **changes)


def start(engine, task, now):
    engine.release(task, now, now, make_work())
    return engine.next(now)


def test_a_job_is_hopeless_when_the_rest_does_not_fit_any_more():
    engine = make_engine(two_stages("a", 20))
    job = start(engine, "a", 100)
    assert job.hopeless_ns == 118  # 100 + 20 - 2


def test_a_boundary_at_the_last_moment_goes_on():
    """The same moment at which the boundary would abort it: nothing is lost by cancelling."""
    engine = make_engine(two_stages("a", 20))
    job = start(engine, "a", 100)
    engine.boundary(job, 118, 100, 118)
    assert not job.ended
    assert engine.next(118) is job
    assert job.hopeless_ns == 0  # the decoder cannot be cancelled


def test_a_cancelled_job_is_aborted_and_its_time_is_learned():
    engine = make_engine(two_stages("a", 20))
    job = start(engine, "a", 100)
    engine.cancelled(job, 120, 100, 119)
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, CANCELLED)
    assert (record.cancelled_ns, record.stages, record.overhead_ns) == (19, (), 1)
    assert job.hopeless_ns == 0
    budget = engine.tasks["a"].budgets["full@null"][0]
    assert (budget.budget_ns, budget.count) == (24, 2)  # 19 and a quarter more
    assert start(engine, "a", 130) is not None  # the worker is free


def test_a_run_that_was_cancelled_early_does_not_count_as_a_fast_one():
    engine = make_engine(two_stages("a", 20))
    job = start(engine, "a", 100)
    engine.cancelled(job, 104, 100, 103)
    budget = engine.tasks["a"].budgets["full@null"][0]
    assert (budget.median_ns, budget.count) == (10, 2)


def test_a_cancelled_flush_teaches_nothing_and_keeps_its_reason():
    engine = make_engine(two_stages("a", 20))
    job = start(engine, "a", 100)
    engine.flush("a", 103, "deactivated")
    engine.cancelled(job, 104, 100, 104)
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "deactivated")
    assert engine.tasks["a"].budgets["full@null"][0].count == 1


def test_one_that_ended_is_not_ended_again():
    engine = make_engine(two_stages("a", 20))
    job = start(engine, "a", 100)
    engine.fail(job, 105, "broken")
    engine.cancelled(job, 106, 100, 106)
    assert [record.outcome for record, _ in engine.take_ended()] == [Outcome.FAILED]


def test_a_probe_is_not_cancelled():
    """It measures how long the task takes now, and has no deadline to make."""
    engine = make_engine(two_stages("a", 20), usual=(100, 2))
    jobs = []
    for frame in range(30):
        job = engine.release("a", 1000 * frame, 1000 * frame, make_work(frame))
        if not job.ended:
            jobs.append(engine.next(1000 * frame))
    assert [(job.admission.value, job.hopeless_ns) for job in jobs] == [("probe", 0)]


def test_nobody_waits_longer_for_a_job_than_until_it_is_hopeless():
    """At slow clocks that are about to be raised, its stage would take longer than that."""
    for runs, usual_end in ((CANCELS, 28), ((Run(), Run()), 30)):
        engine = make_engine(two_stages("a", 30), runs=runs)
        state = engine.tasks["a"]
        state.set_time_scales({"full@null": (3.0, 1.0)}, {"full@null": (1.0, 1.0)})
        assert start(engine, "a", 0).usual_end_ns == usual_end


def test_the_fastest_variant_that_may_still_come_counts_for_the_rest():
    names = {"variants": ("slow", "quick"), "variant": "slow"}
    engine = make_engine(two_stages("a", 20, **names))
    engine.seed_budgets("a", "slow", [(10, 6)])
    # A static selector keeps the variant; 0 + 20 - 6.
    assert start(engine, "a", 0).hopeless_ns == 14
