# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The rules, each by an example solved by hand; times are plain nanoseconds."""

import pytest
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import Admission, Outcome


def seeded(*tasks, workers=1, budget=10, usual=None):
    """An engine whose tasks' stages have this budget, and usual time where that is another."""
    engine = Engine(workers)
    times = [budget] if usual is None else [usual, usual, budget]
    for task in tasks:
        engine.add_task(task)
        for variant in task.variants:
            runs = [(time_ns,) * len(task.stages) for time_ns in times]
            engine.seed_budgets(task.name, variant, runs)
    return engine


def outcomes(records):
    return [(record.task, record.sequence, record.outcome.value) for record in records]


@pytest.mark.parametrize(("time_ns", "outcome"), [(10, Outcome.MET), (11, Outcome.LATE)])
def test_a_job_that_ends_at_its_deadline_met_it(time_ns, outcome):
    engine = seeded(make_task("a", 10))
    [record] = drive(engine, [(5, "a")], lambda job: time_ns)
    assert (record.outcome, record.response_time_ns) == (outcome, time_ns)
    assert record.lateness_ns == time_ns - 10


def test_edf_runs_the_earlier_deadline_first():
    engine = seeded(make_task("x", 100), make_task("slow", 90), make_task("fast", 50))
    records = drive(engine, [(0, "x"), (1, "slow"), (2, "fast")], lambda job: 10)
    assert [record.task for record in records] == ["x", "fast", "slow"]


def test_preemption_happens_at_a_boundary_only():
    long = make_task("long", 200, stages=("first", "second"))
    engine = seeded(long, make_task("urgent", 40))
    records = drive(engine, [(0, "long"), (3, "urgent")], lambda job: 10)
    assert [record.task for record in records] == ["urgent", "long"]
    urgent, long_record = records
    assert (urgent.start_ns, urgent.waiting_ns) == (10, 7)
    assert [stage.start_ns for stage in long_record.stages] == [0, 20]
    assert long_record.waiting_ns == 10
    assert long_record.overhead_ns == 0


def test_equal_deadlines_take_turns():
    """Two tasks on one camera, room for one: neither starves."""
    engine = seeded(make_task("a", 15), make_task("b", 15))
    arrivals = [(frame * 20, task) for frame in range(4) for task in ("a", "b")]
    # Both of a frame are released before the worker takes one.
    for time_ns, task in arrivals:
        engine.release(task, time_ns, time_ns, make_work(time_ns // 20))
        if task == "b":
            job = engine.next(time_ns)
            engine.boundary(job, time_ns + 10, time_ns, time_ns + 10)
            assert engine.next(time_ns + 10) is None
    records = [record for record, _ in engine.take_ended()]
    met = [record.task for record in records if record.outcome is Outcome.MET]
    assert met == ["a", "b", "a", "b"]


def test_precedence_decides_among_equals():
    """`b` goes first while nobody misses; after a miss of `a` it is `a`'s turn once."""
    tasks = [make_task("a", 25, precedence=1), make_task("b", 25, precedence=0)]
    engine = seeded(make_task("x", 100), *tasks)
    arrivals = [
        (i * 100 + j, task) for i in range(4) for j, task in ((0, "x"), (1, "a"), (1, "b"))
    ]
    times = {("x", frame): 2 for frame in range(4)} | {("b", 1): 20}
    records = drive(engine, arrivals, lambda job: times.get((job.task, job.sequence), 10))
    order = [(r.task, r.outcome.value) for r in records if r.task != "x"]
    assert order == [
        *(("b", "met"), ("a", "met"), ("b", "met"), ("a", "skipped")),
        *(("a", "met"), ("b", "met"), ("b", "met"), ("a", "met")),
    ]


def test_a_started_job_goes_on_among_equal_deadlines():
    """Else both jobs of a frame would be begun, and the second one aborted at the end."""
    tasks = [make_task(name, 35, stages=("one", "two")) for name in "ab"]
    engine = seeded(*tasks)
    records = drive(engine, [(0, "a"), (0, "b")], lambda job: 10)
    assert outcomes(records) == [("a", 0, "met"), ("b", 0, "skipped")]
    assert records[0].completion_ns == 20


def test_newest_frame_supersedes_the_waiting_one():
    engine = seeded(make_task("a", 100))
    records = drive(engine, [(0, "a"), (1, "a"), (2, "a")], lambda job: 10)
    assert outcomes(records) == [("a", 1, "superseded"), ("a", 0, "met"), ("a", 2, "met")]


def test_release_counts_blocking_by_the_running_stage():
    """Budget 10 each: at 1 the worker is busy until 10, so 19 is one too early, 20 is enough."""
    for deadline, expected in [(18, "skipped"), (19, "met")]:
        engine = seeded(make_task("a", 100), make_task("b", deadline))
        records = drive(engine, [(0, "a"), (1, "b")], lambda job: 10)
        assert ("b", 0, expected) in outcomes(records)


def test_release_counts_the_predecessor_of_the_same_task():
    engine = seeded(make_task("a", 20, stages=("one", "two")), workers=2)
    records = drive(engine, [(0, "a"), (5, "a")], lambda job: 10)
    assert outcomes(records) == [("a", 1, "skipped"), ("a", 0, "met")]
    assert records[0].reason == "blocking"


def test_start_checks_again_and_wastes_nothing():
    """The job ahead overruns its budget: the one behind is skipped without having run."""
    engine = seeded(make_task("a", 100), make_task("b", 30))
    records = drive(engine, [(0, "a"), (1, "b")], lambda job: 25)
    assert outcomes(records) == [("a", 0, "met"), ("b", 0, "skipped")]
    assert records[1].stages == ()
    assert records[1].reason == "budget"


def test_abort_at_the_boundary_when_the_rest_does_not_fit():
    engine = seeded(make_task("a", 30, stages=("one", "two")))
    records = drive(engine, [(0, "a")], lambda job: 21)
    assert outcomes(records) == [("a", 0, "aborted")]
    assert [stage.name for stage in records[0].stages] == ["one"]
    engine = seeded(make_task("a", 30, stages=("one", "two")))
    [record] = drive(engine, [(0, "a")], lambda job: 20 if job.next_stage == 0 else 10)
    assert record.outcome is Outcome.MET


def test_stale_frames_are_skipped():
    engine = seeded(make_task("a", 30, max_age_ns=5))
    engine.release("a", 100, 94, make_work(0))
    engine.release("a", 100, 95, make_work(1))
    assert engine.next(100).sequence == 1
    [(record, _)] = engine.take_ended()
    assert (record.sequence, record.outcome, record.reason) == (0, Outcome.SKIPPED, "stale")


def test_deadline_and_variant_change_with_the_next_frame():
    task = make_task("a", 30, variants=("full", "small"), variant="full")
    engine = seeded(task)
    engine.release("a", 0, 0, make_work(0))
    running = engine.next(0)
    engine.tasks["a"].set_variant("small")
    engine.tasks["a"].set_deadline(50)
    engine.release("a", 1, 1, make_work(1))
    engine.boundary(running, 10, 0, 10)
    second = engine.next(10)
    assert (running.variant, second.variant) == ("full", "small")
    assert second.absolute_deadline_ns == 51


def test_a_hopeless_task_probes_and_recovers():
    """Its budget says 50, its deadline 20: the second frame runs and finds 10."""
    engine = seeded(make_task("a", 20), budget=50)
    records = drive(engine, [(i * 100, "a") for i in range(4)], lambda job: 10)
    assert [(record.outcome, record.admission) for record in records] == [
        (Outcome.SKIPPED, Admission.NONE),
        (Outcome.MET, Admission.PROBE),
        (Outcome.MET, Admission.BUDGET),
        (Outcome.MET, Admission.BUDGET),
    ]


def test_what_fits_as_usual_only_runs_on_spare_time():
    engine = seeded(make_task("a", 30), budget=50, usual=10)
    [record] = drive(engine, [(0, "a")], lambda job: 10)
    assert (record.outcome, record.admission) == (Outcome.MET, Admission.SPARE)


def test_admitted_jobs_go_before_spare_time():
    """`a` has the earlier deadline, but 35 are too few for its budget of 40."""
    tasks = [make_task("x", 100), make_task("a", 40), make_task("b", 90)]
    engine = seeded(*tasks, budget=40, usual=10)
    records = drive(engine, [(0, "x"), (1, "a"), (2, "b")], lambda job: 10)
    admissions = [(r.task, r.admission.value) for r in records]
    assert admissions == [("x", "budget"), ("b", "budget"), ("a", "spare")]


def test_an_admitted_job_stays_admitted():
    """After its first stage the budget of the second does not fit any more: it goes on."""
    task = make_task("a", 80, stages=("one", "two"))
    engine = seeded(task, make_task("b", 90), budget=40, usual=10)
    times = {("a", 0): 45}
    arrivals = [(0, "a"), (1, "b")]
    records = drive(engine, arrivals, lambda job: times.get((job.task, job.next_stage), 10))
    found = [(r.task, r.outcome.value, r.admission.value) for r in records]
    assert found == [("a", "met", "budget"), ("b", "met", "spare")]


def test_a_failure_ends_that_frame_only():
    engine = seeded(make_task("a", 30))
    records = drive(
        engine, [(0, "a"), (40, "a")], lambda job: 10, fails=lambda job: job.sequence == 0
    )
    assert outcomes(records) == [("a", 0, "failed"), ("a", 1, "met")]
    assert records[0].reason == "made to fail"


def test_a_variant_that_fails_twice_is_withdrawn():
    task = make_task("a", 30, variants=("bad", "good"), variant="bad")
    engine = seeded(task)
    arrivals = [(i * 40, "a") for i in range(4)]
    records = drive(engine, arrivals, lambda job: 10, lambda job: job.variant == "bad")
    outcomes = [(r.variant, r.outcome.value) for r in records]
    assert outcomes == [("bad", "failed")] * 2 + [("good", "met")] * 2
    with pytest.raises(ValueError, match="withdrawn: made to fail"):
        engine.tasks["a"].set_variant("bad")


def test_the_last_variant_is_never_withdrawn():
    engine = seeded(make_task("a", 30))
    arrivals = [(i * 40, "a") for i in range(5)]
    records = drive(engine, arrivals, lambda job: 10, lambda job: job.sequence < 4)
    assert [r.outcome.value for r in records] == ["failed"] * 4 + ["met"]


def test_flush_ends_what_waits_and_cancels_what_runs():
    engine = seeded(make_task("a", 100, stages=("one", "two")))
    engine.release("a", 0, 0, make_work(0))
    running = engine.next(0)
    engine.release("a", 1, 1, make_work(1))
    engine.flush("a", 2, "deactivated")
    assert not engine.is_idle("a")
    engine.boundary(running, 10, 0, 10)
    assert engine.is_idle("a")
    ended = [(r.sequence, r.outcome.value, r.reason) for r, _ in engine.take_ended()]
    assert ended == [(1, "skipped", "deactivated"), (0, "aborted", "deactivated")]
    engine.remove_task("a")


def test_suspended_tasks_skip():
    engine = seeded(make_task("a", 100))
    engine.suspend("a", "restarting")
    assert engine.release("a", 0, 0, make_work()).ended
    engine.resume("a")
    assert not engine.release("a", 1, 1, make_work()).ended
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason) == (Outcome.SKIPPED, "restarting")


def test_a_boundary_after_the_end_changes_nothing():
    """The watchdog gave the job up; later its stage returns all the same."""
    engine = seeded(make_task("a", 100))
    engine.release("a", 0, 0, make_work())
    job = engine.next(0)
    engine.fail(job, 50, "hangs")
    engine.boundary(job, 60, 0, 60)
    assert [record.outcome for record, _ in engine.take_ended()] == [Outcome.FAILED]


def test_rejected_frames_count():
    engine = seeded(make_task("a", 100))
    engine.reject("a", 7, 7, make_work(3), "unknown encoding")
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason) == (Outcome.FAILED, "unknown encoding")
    assert record.sequence == 3
    assert engine.tasks["a"].released == 1


def test_two_workers_run_two_tasks_at_once():
    engine = seeded(make_task("a", 15), make_task("b", 15), workers=2)
    records = drive(engine, [(0, "a"), (0, "b")], lambda job: 10)
    assert [(r.outcome, r.start_ns) for r in records] == [(Outcome.MET, 0)] * 2


@pytest.mark.parametrize("bad", [{"workers": 0}, {"discipline": "lifo"}])
def test_bad_arguments_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Engine(**bad)
