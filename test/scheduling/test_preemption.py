# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A running stage that is cancelled for a more urgent frame: when, and what becomes of both."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Outcome

VARIANT = "full@null"
LATENCY = 1


def make_engine(tasks, *, rule=True, workers=1, cancels=True, latency=LATENCY, discipline="edf"):
    """An engine with tasks (name, deadline, stage times), whose budgets are exactly these."""
    engine = Engine(workers, discipline, cancels_for_urgent=rule)
    for name, deadline, times in tasks:
        stages = tuple(f"s{index}" for index in range(len(times)))
        state = engine.add_task(
            make_task(name, deadline, stages=stages),
            {VARIANT: [Run(cancels=cancels)] * len(times)},
        )
        engine.seed_budgets(name, VARIANT, [times])
        if latency is not None:
            state.observe_cancel(VARIANT, latency)
    return engine


def play(tasks, arrivals, **options):
    """Records by task, of one frame each."""
    costs = {name: times for name, _, times in tasks}
    engine = make_engine(tasks, **options)
    records = drive(
        engine, arrivals, lambda job: costs[job.task][job.next_stage], latency_ns=LATENCY
    )
    return {record.task: record for record in records}


LONG, URGENT = ("long", 200, (50, 2)), ("urgent", 20, (10,))


def test_both_make_it():
    """50 of 52 are left at 10: the urgent one would end at 60, its deadline is 30."""
    found = play([LONG, URGENT], [(0, "long"), (10, "urgent")])
    urgent, long = found["urgent"], found["long"]
    assert (urgent.outcome, urgent.start_ns, urgent.completion_ns) == (Outcome.MET, 11, 21)
    assert (long.outcome, long.completion_ns, long.cancelled_ns) == (Outcome.MET, 21 + 52, 11)
    assert [(stage.start_ns, stage.end_ns) for stage in long.stages] == [(21, 71), (71, 73)]
    assert (long.waiting_ns, long.overhead_ns) == (10, 0)


def test_it_is_off_by_default():
    assert not Engine().cancels_for_urgent
    found = play([LONG, URGENT], [(0, "long"), (10, "urgent")], rule=False)
    assert (found["urgent"].outcome, found["urgent"].reason) == (Outcome.SKIPPED, "blocking")
    assert (found["long"].completion_ns, found["long"].cancelled_ns) == (52, 0)


@pytest.mark.parametrize(
    ("arrival", "end"),
    [
        (40, 62),  # it would end at 60 behind the stage: no need
        (39, 39 + LATENCY + 10 + 52),  # a moment earlier there is
    ],
)
def test_only_if_it_would_be_late(arrival, end):
    found = play([LONG, URGENT], [(0, "long"), (arrival, "urgent")])
    assert {record.outcome for record in found.values()} == {Outcome.MET}
    assert found["long"].completion_ns == end


@pytest.mark.parametrize(("deadline", "cancelled"), [(73, 11), (72, 0)])
def test_only_if_the_cancelled_job_still_makes_it(deadline, cancelled):
    """Begun again at 21 it ends at 73."""
    found = play([("long", deadline, (50, 2)), URGENT], [(0, "long"), (10, "urgent")])
    assert (found["long"].outcome, found["long"].cancelled_ns) == (Outcome.MET, cancelled)
    assert found["urgent"].outcome is (Outcome.MET if cancelled else Outcome.SKIPPED)


@pytest.mark.parametrize(("deadline", "outcome"), [(11, Outcome.MET), (10, Outcome.SKIPPED)])
def test_only_if_the_urgent_one_makes_it_then(deadline, outcome):
    """The cancel takes 1, its stage 10."""
    found = play([LONG, ("urgent", deadline, (10,))], [(0, "long"), (10, "urgent")])
    assert found["urgent"].outcome is outcome
    assert (found["long"].cancelled_ns > 0) == (outcome is Outcome.MET)


@pytest.mark.parametrize(("deadline", "outcome"), [(123, Outcome.MET), (122, Outcome.SKIPPED)])
def test_no_third_frame_that_waits_is_lost(deadline, outcome):
    """`other`, 50 long, would end at 102 behind it, and at 123 instead."""
    tasks = [("long", 110, (50, 2)), URGENT, ("other", deadline, (50,))]
    found = play(tasks, [(0, "long"), (0, "other"), (10, "urgent")])
    assert found["other"].outcome is found["long"].outcome is Outcome.MET
    assert found["urgent"].outcome is outcome


def test_a_less_urgent_frame_cancels_nothing():
    found = play([("long", 60, (50, 2)), ("loose", 51, (10,))], [(0, "long"), (10, "loose")])
    assert (found["long"].completion_ns, found["long"].cancelled_ns) == (52, 0)


@pytest.mark.parametrize(
    "options", [{"cancels": False}, {"latency": None}, {"workers": 2}, {"discipline": "fifo"}]
)
def test_stages_that_cannot_or_whose_latency_is_unknown_are_left_alone(options):
    arrivals = [(0, "long"), (0, "second"), (10, "urgent")]
    found = play([LONG, ("second", 300, (50, 2)), URGENT], arrivals, **options)
    assert {record.cancelled_ns for record in found.values()} == {0}


def test_the_end_of_the_stage_may_come_first():
    """It ends before it hears that it should: nothing is lost."""
    engine = make_engine([("long", 500, (50, 2)), ("urgent", 20, (19,))], latency=1)
    records = drive(
        engine,
        [(0, "long"), (45, "urgent")],
        lambda job: {"long": (46, 2), "urgent": (15,)}[job.task][job.next_stage],
        latency_ns=7,
    )
    urgent, long = records
    assert (urgent.outcome, urgent.start_ns) == (Outcome.MET, 46)
    assert (long.outcome, long.cancelled_ns, long.completion_ns) == (Outcome.MET, 0, 63)


def test_the_latency_is_learned():
    engine = make_engine([LONG, URGENT], latency=1)
    drive(
        engine,
        [(0, "long"), (10, "urgent")],
        lambda job: {"long": (50, 2), "urgent": (10,)}[job.task][job.next_stage],
        latency_ns=3,
    )
    assert engine.tasks["long"].cancel_latency_ns(VARIANT) == 3
    # The time until the cancel says nothing about how long the stage takes.
    assert engine.tasks["long"].budgets[VARIANT][0].largest_ns == 50


def test_a_flushed_job_does_not_begin_again():
    engine = make_engine([LONG, URGENT])
    engine.release("long", 0, 0, make_work())
    long = engine.next(0)
    engine.release("urgent", 10, 10, make_work())
    assert long.yields
    engine.flush("long", 10, "deactivated")
    engine.cancelled(long, 11, 0, 11, 10)
    [(record, _)] = engine.take_ended()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "deactivated")
    assert engine.next(11).task == "urgent"


@st.composite
def frames(draw):
    """One frame each of two to five tasks: `urgent` comes last, and alone may be more urgent."""
    tasks, arrivals, now, latest = [], [], 0, 0
    for name in "abcd"[: draw(st.integers(1, 4))]:
        now += draw(st.integers(0, 15))
        times = tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=3)))
        latest = max(latest, now + sum(times) + draw(st.integers(0, 60)))
        tasks.append((name, latest - now, times))
        arrivals.append((now, name))
    time = draw(st.integers(1, 20))
    tasks.append(("urgent", time + draw(st.integers(0, 40)), (time,)))
    return tasks, [*arrivals, (now + draw(st.integers(1, 30)), "urgent")]


@given(sample=frames())
@settings(max_examples=1000)
def test_no_frame_that_is_here_is_lost_by_it(sample):
    """True costs: whatever makes its deadline without the rule does with it."""
    with_rule, without = play(*sample), play(*sample, rule=False)
    met = {name for name, record in with_rule.items() if record.outcome is Outcome.MET}
    met_without = {name for name, record in without.items() if record.outcome is Outcome.MET}
    assert met >= met_without
    cancelled = {name for name, record in with_rule.items() if record.cancelled_ns}
    assert met >= cancelled
    if cancelled:
        assert "urgent" in met - met_without
    else:
        assert with_rule == without
