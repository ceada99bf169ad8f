# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batches, each rule by an example solved by hand; times are plain nanoseconds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.scheduling.batching import REFUSALS, Demand, jobs_in_time, one_by_one
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Admission, Outcome

STAGES = ("preprocess", "inference", "decode")
SINGLE_NS = {"preprocess": 1, "inference": 10, "decode": 1}
BATCH_NS = {1: 10, 2: 12, 3: 14, 4: 16}
"""Of the inference."""
VARIANT = "full@null"
SINGLE = tuple(SINGLE_NS.values())

RUNS = (Run(), Run(batches=True), Run())


def add(engine, name, deadline=100, *, group="g", runs=RUNS, times=SINGLE):
    """Add a task of three stages, or of one run of one stage."""
    stages = STAGES if len(times) == 3 else ("only",)
    engine.add_task(make_task(name, deadline, stages=stages, batch_group=group), {VARIANT: runs})
    engine.seed_budgets(name, VARIANT, [times])


def make_engine(names, *, workers=1, times=BATCH_NS, group="g", on_gpu=False, **deadlines):
    """An engine with tasks of a group, of deadline 100 unless given.

    With `on_gpu` their inference runs on a device that has room for one stage at a time.
    """
    engine = Engine(workers, max_inflight={"cuda": 1} if on_gpu else None)
    runs = (Run(), Run(device="cuda" if on_gpu else "cpu", batches=True), Run())
    for name in names:
        add(engine, name, deadlines.get(name, 100), group=group, runs=runs)
    for size in range(2, len(names) + 1) if group else ():
        engine.seed_batch_budgets(names[0], VARIANT, 1, size, [times[size]])
    return engine


def execution_ns(job, times=BATCH_NS):
    stage = STAGES[job.next_stage]
    return times[1 + len(job.mates)] if stage == "inference" else SINGLE_NS[stage]


def drive_once(engine, arrivals, execution=execution_ns, **options):
    """Records by task, of arrivals of one frame a task."""
    records = drive(engine, arrivals, execution, **options)
    assert len({record.task for record in records}) == len(records)
    return {record.task: record for record in records}


def inference(record):
    [stage] = [stage for stage in record.stages if stage.name == "inference"]
    return stage.start_ns, stage.end_ns, stage.batch


def sizes(records):
    return [inference(record)[2] for _, record in sorted(records.items())]


def outcomes(records):
    return {record.outcome for record in records.values()}


AB, ABC, ABX = [[(0, name) for name in names] for names in ("ab", "abc", "abx")]


def test_what_waits_is_brought_there_first_and_runs_as_one():
    engine = make_engine("abc")
    records = drive_once(engine, ABC)
    assert {inference(record) for record in records.values()} == {(3, 17, 3)}
    assert [records[name].completion_ns for name in "abc"] == [18, 19, 20]
    for record in records.values():
        assert record.outcome is Outcome.MET
        assert record.overhead_ns == 0
    assert [records[name].waiting_ns for name in "abc"] == [2, 3, 4]


def test_without_a_group_each_runs_alone():
    engine = make_engine("ab", group="")
    records = drive_once(engine, AB)
    assert inference(records["a"]) == (1, 11, 1)
    assert inference(records["b"]) == (13, 23, 1)


def test_while_no_batch_is_known_nobody_looks_for_one():
    engine = Engine()
    for name in "ab":
        add(engine, name, group=f"group of {name}")
    assert not engine.forms_batches
    for name in "ab":
        engine.seed_batch_budgets(name, VARIANT, 1, 2, [12])
    assert engine.forms_batches
    engine.forget_batches("group of a")
    assert engine.forms_batches
    engine.remove_task("b")
    assert not engine.forms_batches


def test_nobody_waits_for_a_frame_that_is_not_there():
    engine = make_engine("abc")
    records = drive_once(engine, [(0, "a"), (2, "b"), (2, "c")])
    assert inference(records["a"]) == (1, 11, 1)
    assert inference(records["b"]) == inference(records["c"]) == (14, 26, 2)


def test_sizes_that_were_not_measured_are_not_formed():
    engine = make_engine("abc")
    engine.groups["g"].forget(VARIANT, 1, 3)
    records = drive_once(engine, ABC)
    assert sizes(records) == [2, 2, 1]


def test_the_cheapest_size_per_frame_is_formed():
    times = {1: 10, 2: 12, 3: 19}  # two and one cost 22, but 6 a frame while there are two
    engine = make_engine("abc", times=times)
    records = drive_once(engine, ABC, lambda job: execution_ns(job, times))
    assert sizes(records) == [2, 2, 1]


@pytest.mark.parametrize(("batch_ns", "size"), [(19, 2), (20, 1), (25, 1)])
def test_a_batch_has_to_cost_less_than_its_members_alone(batch_ns, size):
    times = {1: 10, 2: batch_ns}
    engine = make_engine("ab", times=times)
    records = drive_once(engine, AB, lambda job: execution_ns(job, times))
    assert sizes(records) == [size] * 2


def test_free_workers_are_better_than_a_batch():
    """Two of 10 side by side are done before one of 12."""
    engine = make_engine("ab", workers=2)
    a, b = drive_once(engine, AB).values()
    assert inference(a) == inference(b) == (1, 11, 1)
    # Four do not fit side by side: the second pair of them runs when a worker is free.
    engine = make_engine("abcd", workers=2)
    records = drive_once(engine, [(0, name) for name in "abcd"])
    assert max(record.completion_ns for record in records.values()) < 22


@pytest.mark.parametrize(("deadline", "size"), [(15, 2), (14, 1)])
def test_the_leaders_deadline_has_to_allow_it(deadline, size):
    """Both preprocessed at 2, both inferred at 14, a decoded at 15; alone it is done at 12."""
    engine = make_engine("ab", a=deadline)
    records = drive_once(engine, AB)
    assert outcomes(records) == {Outcome.MET}
    assert sizes(records) == [size] * 2


@pytest.mark.parametrize(
    ("deadline", "time_ns", "outcome", "size"),
    # The last one is lost anyway, and does not count.
    [(20, 5, Outcome.MET, 2), (19, 5, Outcome.MET, 1), (18, 9, Outcome.SKIPPED, 2)],
)
def test_so_has_that_of_a_job_outside(deadline, time_ns, outcome, size):
    """With the batch `x` runs from 15 to 20, between the decoding of a and of b."""
    engine = make_engine("ab", a=17)
    add(engine, "x", deadline, group="", runs=None, times=(time_ns,))
    records = drive_once(
        engine, ABX, lambda job: time_ns if job.task == "x" else execution_ns(job)
    )
    assert records.pop("x").outcome is outcome
    assert outcomes(records) == {Outcome.MET}
    assert sizes(records) == [size] * 2


def test_budgets_and_not_usual_times_decide_about_deadlines():
    engine = make_engine("ab", a=15)
    engine.seed_batch_budgets("a", VARIANT, 1, 2, [12, 12, 13])
    records = drive_once(engine, AB)
    assert inference(records["a"])[2] == 1


def test_a_frame_that_one_by_one_would_be_lost_is_kept():
    """Three cameras at once with room for two: the batch is what makes them all."""
    deadlines = dict.fromkeys("abc", 25)
    records = drive_once(make_engine("abc", group="", **deadlines), ABC)
    assert [records[name].outcome.value for name in "abc"] == ["met", "met", "skipped"]
    records = drive_once(make_engine("abc", **deadlines), ABC)
    assert outcomes(records) == {Outcome.MET}


def test_single_budgets_do_not_learn_from_batches_and_batches_from_themselves():
    engine = make_engine("ab")
    times = {1: 10, 2: 15}
    drive_once(engine, AB, lambda job: execution_ns(job, times))
    assert [b.budget_ns for b in engine.tasks["a"].budgets[VARIANT]] == [1, 10, 1]
    known = engine.groups["g"].budgets[VARIANT, 1][2].estimator
    assert (known.median_ns, known.budget_ns) == (12, 15)


def test_what_was_learnt_in_a_bad_moment_does_not_keep_a_batch_out_for_ever():
    engine = make_engine("ab")
    budget = engine.groups["g"].budgets[VARIANT, 1][2]
    for _ in range(3):
        budget.estimator.observe(50)
    sizes = []
    for frame in range(REFUSALS + 1):
        records = drive(engine, [(frame * 1000, "a"), (frame * 1000, "b")], execution_ns)
        sizes.append(inference(records[0])[2])
    assert sizes == [1] * REFUSALS + [2]


def test_a_probe_and_a_frame_on_spare_time_run_alone():
    engine = make_engine("ab")
    for name in "ab":
        engine.release(name, 0, 0, make_work())
    engine.tasks["b"].waiting.admission = Admission.PROBE
    job = engine.next(0)
    engine.boundary(job, 1, 0, 1)
    assert (engine.next(1), job.mates) == (job, ())
    # The usual time fits, the budget does not.
    engine = make_engine("ab")
    engine.seed_budgets("b", VARIANT, [(1, 10, 1), (1, 10, 1), (1, 100, 1)])
    records = drive_once(engine, AB)
    assert records["b"].admission is Admission.SPARE
    assert sizes(records) == [1, 1]


def test_another_variant_is_another_batch():
    engine = Engine()
    for name, variant in (("a", "v"), ("b", "w"), ("c", "v")):
        engine.add_task(
            make_task(
                name, 100, stages=STAGES, variants=("v", "w"), variant=variant, batch_group="g"
            ),
            {"v": RUNS, "w": RUNS},
        )
        for each in "vw":
            engine.seed_budgets(name, each, [SINGLE])
            engine.seed_batch_budgets(name, each, 1, 2, [12])
    records = drive_once(engine, ABC)
    assert sizes(records) == [2, 1, 2]


def test_a_task_whose_stage_does_not_batch_is_left_out():
    """It was made anew after a hang, without what runs the batches."""
    engine = make_engine("ab")
    engine.tasks["b"].replace_variants({VARIANT: (1, 1, 1)})
    records = drive_once(engine, AB)
    assert sizes(records) == [1, 1]


def test_one_batch_of_a_group_at_a_time():
    """Its runner has one set of buffers: with two workers, the second pair runs one by one."""
    engine = make_engine("abcd", workers=2)
    for size in (3, 4):
        engine.groups["g"].forget(VARIANT, 1, size)
    running = []

    def check(job, now):
        ends = now + execution_ns(job)
        if job.mates:
            assert all(end <= now for end in running)
            running.append(ends)

    drive_once(engine, [(0, name) for name in "abcd"], on_start=check)
    assert running


def test_a_batch_that_fails_is_its_own_fault():
    engine = make_engine("ab")
    records = drive_once(engine, AB, fails=lambda job: bool(job.mates))
    assert outcomes(records) == {Outcome.FAILED}
    assert not any(state.failures for state in engine.tasks.values())
    records = drive(engine, [(1000, "a"), (1000, "b")], execution_ns)
    assert [inference(record)[2] for record in records] == [1, 1]
    engine.seed_batch_budgets("b", VARIANT, 1, 2, [12])
    records = drive(engine, [(2000, "a"), (2000, "b")], execution_ns)
    assert [inference(record)[2] for record in records] == [2, 2]


def test_members_end_for_themselves():
    """One is flushed while the batch runs, one becomes hopeless by it, one goes on."""
    engine = make_engine("abc", a=20)
    for name in "abc":
        engine.release(name, 0, 0, make_work())
    for now in range(3):
        job = engine.next(now)
        engine.boundary(job, now + 1, now, now + 1)
    job = engine.next(3)
    assert [member.task for member in (job, *job.mates)] == ["a", "b", "c"]
    assert engine.groups["g"].running
    engine.flush("b", 5, "deactivated")
    engine.boundary(job, 20, 3, 20)
    assert not engine.groups["g"].running
    ended = {record.task: record for record, _ in engine.take_ended()}
    assert {(r.task, r.outcome.value, r.reason) for r in ended.values()} == {
        ("a", "aborted", "budget"),
        ("b", "aborted", "deactivated"),
    }
    assert engine.next(20).task == "c"


def test_a_device_bounds_what_is_in_flight():
    records = drive_once(make_engine("abc", workers=3, group="", on_gpu=True), ABC)
    spans = sorted(inference(record)[:2] for record in records.values())
    assert spans == [(1, 11), (11, 21), (21, 31)]
    # The others' decoding, and what has room, goes on meanwhile.
    assert [records[name].completion_ns for name in "abc"] == [12, 22, 32]


def test_a_batch_counts_once_on_its_device():
    engine = make_engine("abc", workers=2, on_gpu=True)
    engine.groups["g"].forget(VARIANT, 1, 3)
    records = drive_once(engine, ABC)
    # c is brought there on one worker while the others' batch runs on the other.
    assert [inference(records[name]) for name in "abc"] == [(1, 13, 2), (1, 13, 2), (13, 23, 1)]


def test_a_group_goes_with_its_last_task():
    engine = make_engine("ab")
    engine.remove_task("a")
    assert engine.groups["g"].budgets
    engine.remove_task("b")
    assert not engine.groups


@pytest.mark.parametrize(
    ("stage", "size", "times", "match"),
    [(0, 2, [1], "does not run as a batch"), (1, 1, [1], "2 frames"), (1, 2, [], "at least one")],
)
def test_wrong_seeds_are_refused(stage, size, times, match):
    engine = make_engine("ab")
    with pytest.raises(ValueError, match=match):
        engine.seed_batch_budgets("a", VARIANT, stage, size, times)


def test_seeds_are_stretched_by_the_cohort():
    engine = Engine(2)
    engine.set_cohort_slowdown({1: 1.0, 2: 1.5})
    add(engine, "a", runs=[Run(batches=True)], times=(20,))
    engine.seed_batch_budgets("a", VARIANT, 0, 2, [21])
    assert engine.tasks["a"].remaining_budget_ns(VARIANT) == 30
    assert engine.groups["g"].budgets[VARIANT, 0][2].estimator.budget_ns == 32


def test_a_limit_has_to_let_something_run():
    with pytest.raises(ValueError, match="max_inflight"):
        Engine(max_inflight={"cuda": 0})


def of_slow_preprocessing(**deadlines):
    """Two workers and a GPU; the preprocessing of b may take 5."""
    engine = make_engine("ab", workers=2, on_gpu=True, **deadlines)
    engine.seed_budgets("b", VARIANT, [(5, 10, 1)])
    return engine


def preprocess_takes(times):
    """The preprocessing's time by task."""
    return lambda job: times.get(job.task, 1) if job.next_stage == 0 else execution_ns(job)


def test_a_job_waits_for_the_mate_that_another_worker_brings():
    """b is preprocessed 3 longer than a, within its budget."""
    engine = of_slow_preprocessing()
    records = drive_once(engine, AB, preprocess_takes({"b": 4}))
    assert inference(records["a"]) == inference(records["b"]) == (4, 16, 2)
    assert (records["a"].waiting_ns, records["b"].waiting_ns) == (3, 0)
    assert {record.overhead_ns for record in records.values()} == {0}


def test_not_for_longer_than_that_should_take():
    engine = of_slow_preprocessing()
    records = drive_once(engine, AB, preprocess_takes({"b": 30}))
    assert inference(records["a"]) == (5, 15, 1)
    assert records["a"].waiting_ns == 4
    assert records["a"].overhead_ns == 0


def test_nor_where_its_own_deadline_forbids_it():
    """At 4 + 12 + 1 it would be done."""
    for deadline, size in ((18, 2), (17, 1)):
        engine = of_slow_preprocessing(a=deadline)
        records = drive_once(engine, AB, preprocess_takes({"b": 4}))
        assert outcomes(records) == {Outcome.MET}
        assert inference(records["a"])[2] == size


def test_a_worker_does_something_else_while_a_job_waits_for_its_mate():
    engine = of_slow_preprocessing()
    add(engine, "x", 200, group="", runs=None, times=(6,))
    records = drive_once(
        engine, ABX, lambda job: 6 if job.task == "x" else preprocess_takes({"b": 4})(job)
    )
    assert (records["x"].start_ns, records["x"].completion_ns) == (1, 7)
    assert inference(records["a"]) == inference(records["b"]) == (4, 16, 2)


def test_a_mate_that_fails_on_its_way_is_not_waited_for():
    engine = of_slow_preprocessing()
    records = drive_once(engine, AB, preprocess_takes({"b": 4}), fails=lambda job: job.task == "b")
    assert records["b"].outcome is Outcome.FAILED
    assert inference(records["a"]) == (4, 14, 1)


def test_nobody_takes_the_device_from_a_job_that_waits_for_its_mate():
    """x could run on the GPU from 1 on, in a's place; a would be lost behind it."""
    engine = of_slow_preprocessing(a=18)
    add(engine, "x", 60, group="", runs=(Run(), Run(device="cuda"), Run()))
    records = drive_once(engine, ABX, preprocess_takes({"b": 4}))
    assert inference(records["a"]) == inference(records["b"]) == (4, 16, 2)
    assert inference(records["x"]) == (16, 26, 1)
    assert outcomes(records) == {Outcome.MET}
    assert {record.overhead_ns for record in records.values()} == {0}


def demand(name, deadline, budget, *, available=0, started=False):
    job = Job(name, 0, 0, 0, deadline, make_work(), VARIANT)
    steps = budget if isinstance(budget, tuple) else ((budget, "cpu"),)
    return Demand(job, (0, deadline, not started, 0, 0), steps, started, available)


def names(jobs):
    return "".join(sorted(job.task for job in jobs))


A_LATER = demand("a", 15, 5, available=8, started=True)
B = demand("b", 30, 10)
STEPS = ((2, "cpu"), (10, "cuda"), (1, "cpu"))


@pytest.mark.parametrize(
    ("free", "demands", "room", "expected"),
    [
        # One worker takes them in order; where a does not fit, it takes no time.
        ([0], [demand("c", 30, 10), demand("a", 10, 10), demand("b", 20, 10)], {}, "abc"),
        ([1], [demand("c", 30, 10), demand("a", 10, 10), demand("b", 20, 10)], {}, "bc"),
        ([1], [demand("a", 10, 10, started=True), demand("b", 20, 10)], {}, "b"),
        # Two share them.
        ([0, 0], [demand(name, 20, 10) for name in "abcde"], {}, "abcd"),
        ([0, 10], [demand(name, 20, 10) for name in "abcde"], {}, "abc"),
        # b is begun at 0, and a, which is not there yet, waits for it until 10.
        ([0], [A_LATER, B], {}, "ab"),
        ([0], [replace(A_LATER, steps=((6, "cpu"),)), B], {}, "b"),
        ([0, 0], [replace(A_LATER, steps=((6, "cpu"),)), B], {}, "ab"),
        # A worker idles until something is there.
        ([0], [demand("a", 15, 5, available=8)], {}, "a"),
        ([0], [demand("a", 15, 5, available=11)], {}, ""),
        ([0], [], {}, ""),
        # Both are prepared at 2; on the device one is done at 12, the other at 22.
        ([0, 0], [demand("a", 13, STEPS), demand("b", 23, STEPS)], {"cuda": [0]}, "ab"),
        ([0, 0], [demand("a", 13, STEPS), demand("b", 22, STEPS)], {"cuda": [0]}, "a"),
        ([0, 0], [demand("a", 13, STEPS), demand("b", 22, STEPS)], {"cuda": [0, 0]}, "ab"),
        ([0, 0], [demand("a", 13, STEPS), demand("b", 22, STEPS)], {}, "ab"),
        # Other work goes on beside a full device.
        ([0], [demand("a", 30, ((10, "cuda"),)), demand("b", 8, 8)], {"cuda": [15]}, "ab"),
        ([0], [demand("a", 30, ((10, "cuda"),)), demand("b", 8, 8)], {"cuda": [21]}, "b"),
        # b is begun while a is not there yet, and makes room for it between its steps.
        ([0], [demand("a", 12, 5, available=3), demand("b", 14, ((4, "cpu"),) * 2)], {}, "ab"),
    ],
)
def test_jobs_in_time_by_hand(free, demands, room, expected):
    assert names(jobs_in_time(free, demands, room)) == expected


def test_a_started_job_takes_its_time_on_one_worker_all_the_same():
    demands = [demand("a", 10, 10, started=True), demand("b", 20, 10)]
    assert names(one_by_one(1, demands)) == ""


def test_what_is_done_already_is_in_time_when_it_is_available():
    done = [demand("a", 10, (), available=10), demand("b", 10, (), available=11)]
    assert names(jobs_in_time([0, 0], done)) == names(one_by_one(10, done)) == "a"


@given(
    jobs=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=8),
    begin=st.integers(0, 9),
)
@settings(max_examples=100)
def test_on_one_worker_both_ways_agree_about_jobs_to_come(jobs, begin):
    demands = [
        demand(f"j{index}", deadline, ((budget, "cpu"), (budget, "cuda")))
        for index, (deadline, budget) in enumerate(jobs)
    ]
    # Ranks differ, as in the queue the order of arrival decides last.
    demands = [replace(each, rank=(*each.rank[:4], index)) for index, each in enumerate(demands)]
    assert jobs_in_time([begin], demands, {"cuda": [0]}) == one_by_one(begin, demands)
