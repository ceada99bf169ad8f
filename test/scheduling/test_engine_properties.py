# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Invariants for any arrival pattern, any execution times, any failure pattern."""

from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Admission, Outcome

NAMES = ("a", "b", "c")


@st.composite
def workloads(draw):
    tasks = draw(st.integers(1, 3))
    batches = draw(st.booleans())
    # Tasks of one batch group have the same stages.
    stages = [draw(st.integers(1, 3))] * 3 if batches else [draw(st.integers(1, 3)) for _ in "abc"]
    return {
        "workers": draw(st.integers(1, 3)),
        "discipline": draw(st.sampled_from(DISCIPLINES)),
        "batches": batches,
        "batch_ns": draw(st.integers(1, 40)),
        "on_gpu": draw(st.booleans()),
        "deadlines": [draw(st.integers(1, 60)) for _ in range(tasks)],
        "stages": stages[:tasks],
        "usual": draw(st.integers(0, 20)),
        "budget": draw(st.integers(0, 40)),
        "arrivals": draw(
            st.lists(
                st.tuples(st.integers(0, 400), st.integers(0, tasks - 1)), min_size=1, max_size=60
            )
        ),
        "times": draw(st.lists(st.integers(0, 30), min_size=1, max_size=20)),
        "failing": draw(st.sets(st.integers(0, 20), max_size=4)),
    }


def run(load, on_start=lambda engine, job, now: None):
    engine = Engine(load["workers"], load["discipline"], {"cuda": 1})
    for name, deadline, stages in zip(NAMES, load["deadlines"], load["stages"], strict=False):
        names = tuple(f"s{i}" for i in range(stages))
        task = make_task(
            name,
            deadline,
            stages=names,
            variants=("v", "w"),
            variant="v",
            priority=len(name),
            batch_group="g" if load["batches"] else "",
        )
        devices = ["cuda" if load["on_gpu"] and i % 2 else "cpu" for i in range(stages)]
        layout = [Run(device=device, batches=load["batches"]) for device in devices]
        engine.add_task(task, {"v": layout, "w": layout})
        runs = [load["usual"], load["usual"], max(load["usual"], load["budget"])]
        engine.seed_budgets(name, "v", [(time_ns,) * stages for time_ns in runs])
        for stage in range(stages if load["batches"] else 0):
            for size in (2, 3):
                times = [load["batch_ns"]] * 3
                engine.seed_batch_budgets(name, "v", stage, size, times)
    times = load["times"]
    arrivals = [(time_ns, NAMES[index]) for time_ns, index in load["arrivals"]]
    records = drive(
        engine,
        sorted(arrivals),
        lambda job: times[(job.sequence + job.next_stage) % len(times)],
        lambda job: job.sequence in load["failing"],
        lambda job, now: on_start(engine, job, now),
    )
    return engine, records


@given(load=workloads())
@settings(max_examples=300)
def test_every_frame_ends_exactly_once(load):
    engine, records = run(load)
    frames = Counter((record.task, record.sequence) for record in records)
    assert set(frames.values()) == {1}
    arrived = Counter(NAMES[index] for _, index in load["arrivals"])
    for name, state in engine.tasks.items():
        for variant, budgets in state.budgets.items():
            for stage in range(len(budgets)):
                left = budgets[stage:]
                assert state.remaining_budget_ns(variant, stage) == sum(b.budget_ns for b in left)
                assert state.remaining_usual_ns(variant, stage) == sum(b.median_ns for b in left)
        assert state.released == arrived[name] == sum(state.outcomes.values())
        assert engine.is_idle(name)


def fits(state, job, variant, now_ns):
    """Whether the job's budget, and its usual time, fit."""
    left_ns = job.absolute_deadline_ns - now_ns
    return (
        state.remaining_budget_ns(variant, job.next_stage) <= left_ns,
        state.remaining_usual_ns(variant, job.next_stage) <= left_ns,
    )


def rivals(engine, job):
    """Jobs that are ready beside this one, with the variant that they would run."""
    for state in engine.tasks.values():
        other = state.in_flight if state.in_flight is not None else state.waiting
        if other is not None and other is not job and not other.running:
            started = other.start_ns is not None
            yield state, other, other.variant if started else state.parameters.variant


@given(load=workloads())
@settings(max_examples=300)
def test_no_stage_starts_that_the_rules_forbid(load):
    load["on_gpu"] = False

    def check(engine, job, now_ns):
        budget_fits, usual_fits = fits(engine.tasks[job.task], job, job.variant, now_ns)
        assert usual_fits or job.admission is Admission.PROBE
        if job.start_ns == now_ns and job.next_stage == 0 and job.admission is not Admission.PROBE:
            assert (job.admission is Admission.BUDGET) == budget_fits
        if job.admission is Admission.SPARE and not budget_fits:
            for state, other, variant in rivals(engine, job):
                assert not all(fits(state, other, variant, now_ns))

    run(load, check)


@given(load=workloads())
@settings(max_examples=300)
def test_edf_order(load):
    """No admitted job runs while another one with an earlier deadline is ready.

    Unless that one waits for a mate, or for its device.
    """
    load["discipline"] = "edf"
    load["batches"] = load["on_gpu"] = False

    def check(engine, job, now_ns):
        if job.admission is Admission.SPARE:
            return
        for state, other, variant in rivals(engine, job):
            if all(fits(state, other, variant, now_ns)):
                assert job.absolute_deadline_ns <= other.absolute_deadline_ns

    run(load, check)


@given(load=workloads())
@settings(max_examples=300)
def test_records_tell_a_consistent_story(load):
    _, records = run(load)
    for record in records:
        done = record.outcome in (Outcome.MET, Outcome.LATE)
        assert done == (len(record.stages) == load["stages"][NAMES.index(record.task)])
        assert (record.outcome is Outcome.MET) == (done and record.lateness_ns <= 0)
        assert (record.start_ns is None) == (
            record.outcome in (Outcome.SKIPPED, Outcome.SUPERSEDED)
        )
        assert (record.start_ns is None) == (record.admission is Admission.NONE)
        assert bool(record.reason) == (
            record.outcome in (Outcome.SKIPPED, Outcome.ABORTED, Outcome.FAILED)
        )
        starts = [stage.start_ns for stage in record.stages]
        ends = [stage.end_ns for stage in record.stages]
        assert all(a <= b for a, b in zip(ends, starts[1:], strict=False))
        if done:
            # On virtual time nothing is lost: what is neither execution nor waiting is zero.
            assert record.overhead_ns == 0


@given(load=workloads())
@settings(max_examples=200)
def test_never_more_stages_than_workers(load):
    _, records = run(load)
    edges = [
        edge
        for record in records
        for stage in record.stages
        if stage.end_ns > stage.start_ns
        # A batch occupies one worker: each of its members counts a share of it.
        for edge in (
            (stage.start_ns, Fraction(1, stage.batch)),
            (stage.end_ns, Fraction(-1, stage.batch)),
        )
    ]
    running = Fraction(0)
    for _, change in sorted(edges):
        running += change
        assert running <= load["workers"]
