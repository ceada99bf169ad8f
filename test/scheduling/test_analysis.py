# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task

from jetson_dnn_rt.scheduling.analysis import Estimate, TaskDemand, analyse, blocking_ns, demand_ns
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.task_state import Run
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


def spiked(count=75, quantile=0.99):
    """The verdict on a detector that took 46 ms once, 20 ms else, in a stage of `count` runs."""
    estimate = Estimate("inference-1", 46_000_000, quantile, count, 46_000_000)
    detector = TaskDemand("detector", 52 * 10**6, 46 * 10**6, 3, 10**8, 4 * 10**7, estimate)
    return analyse([TaskDemand("segmenter", 10**6, 10**6, 1, 10**8, 4 * 10**7), detector])


def test_the_verdict_names_task_stage_and_times_that_it_rests_on():
    assert str(spiked()) == (
        "NOT schedulable: utilisation 1.32 of 1 worker; more work arrives than the workers can do;"
        " it rests on task detector with 52.0 ms a frame by its budgets, a deadline of 100.0 ms "
        "and a period of 40.0 ms: its stage inference-1 takes 46.0 ms, the 99 % quantile of 75 "
        "times (largest 46.0 ms)"
    )
    assert spiked().to_dict()["rests_on"] == {
        "task": "detector",
        "budget_ms": 52.0,
        "deadline_ms": 100.0,
        "period_ms": 40.0,
        "longest_stage": {
            "stage": "inference-1", "budget_ms": 46.0, "quantile": 0.99, "count": 75,
            "largest_ms": 46.0,
        },
    }  # fmt: skip
    assert analyse([demand("a", 1, 9, 9)]).to_dict()["rests_on"] is None


def test_the_verdict_says_how_it_fits_with_frames_that_were_all_met():
    text = spiked().explain({"detector": (75, 75), "segmenter": (75, 75)})
    assert "Met in this run: detector 75 of 75, segmenter 75 of 75; the verdict is about" in text
    missed = spiked().explain({"detector": (74, 75), "segmenter": (75, 75)})
    assert "Met in this run: detector 74 of 75, segmenter 75 of 75. To change" in missed
    assert "it did not occur" not in missed + spiked().explain({"detector": (0, 0)})
    good = analyse([demand("a", 1, 9, 9)])
    assert good.explain({"a": (75, 75)}) == str(good)


@pytest.mark.parametrize(("count", "quantile", "steady"), [
    (75, 0.99, 100), (99, 0.99, 100), (100, 0.99, 0), (75, 1.0, 0), (75, 0.999, 0),
])  # fmt: skip
def test_more_frames_are_advised_only_where_they_help(count, quantile, steady):
    advice = spiked(count, quantile).advice
    assert (f"with fewer than {steady} times a single slow one" in advice) is bool(steady)
    assert "lengthen deadline_ms" in advice


def test_the_task_that_decides_is_the_one_that_weighs_most_in_the_test():
    long = demand("long", 8, 40, 40)
    blocked = analyse([demand("urgent", 2, 5, 20), long])
    assert blocked.decided_by == long
    dense = analyse([demand("b", 4, 8, 20), demand("a", 6, 8, 20)])
    assert (dense.utilization, dense.decided_by.name) == (0.5, "a")
    two = analyse([demand("a", 9, 12, 12), demand("b", 9, 10, 10), demand("c", 2, 10, 10)], 2)
    assert (two.schedulable, two.decided_by.name) == (None, "b")


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


@pytest.mark.parametrize("cancels", [False, True])
@given(sample=task_sets())
@settings(max_examples=400)
def test_what_is_called_schedulable_meets_every_deadline(cancels, sample):
    """Any sporadic arrivals, every stage as long as its budget, through the real engine.

    Where stages may be cancelled for more urgent frames none is: no frame is too late behind one.
    """
    tasks, gaps, offsets, workers = sample
    if analyse(tasks, workers).schedulable is not True:
        return
    engine, arrivals = Engine(workers, cancels_for_urgent=cancels), []
    for task, task_gaps, offset in zip(tasks, gaps, offsets, strict=True):
        names = tuple(f"s{i}" for i in range(task.stages))
        state = engine.add_task(
            make_task(task.name, task.deadline_ns, task.period_ns, stages=names),
            {"full@null": [Run(cancels=cancels)] * task.stages},
        )
        state.observe_cancel("full@null", 1)
        engine.seed_budgets(task.name, "full@null", [(task.longest_stage_ns,) * task.stages])
        time_ns = offset
        for gap in task_gaps:
            arrivals.append((time_ns, task.name))
            time_ns += task.period_ns + gap
    stage_ns = {task.name: task.longest_stage_ns for task in tasks}
    records = drive(engine, sorted(arrivals), lambda job: stage_ns[job.task])
    assert {(record.outcome, record.cancelled_ns) for record in records} == {(Outcome.MET, 0)}


# -- weakly hard limits -------------------------------------------------------------------------


def limited(name, cost, deadline, period, met_of, group=""):
    return TaskDemand(
        name, cost, cost, 1, deadline, period,
        met_of=met_of, least_cost_ns=cost, batch_group=group,
    )  # fmt: skip


MS = 1_000_000


def test_a_limit_that_no_frame_can_keep_is_named():
    [text] = analyse([limited("a", 50 * MS, 40 * MS, 10**9, (1, 4))]).broken_limits
    assert text == (
        "met_of [1, 4] of task a cannot hold by its budgets: a frame takes 50.0 ms of its 40.0 ms"
    )


def test_a_limit_beyond_one_frame_after_the_other_is_named_however_many_workers():
    """Two of three frames of 16 ms are 32 ms, and three come in 30; one of two fits."""
    task = limited("a", 16 * MS, 40 * MS, 10 * MS, (2, 3))
    verdict = analyse([task], workers=8)
    assert verdict.broken_limits == (
        "met_of [2, 3] of task a cannot hold by its budgets: 2 frames take 32.0 ms one after the "
        "other, and 3 come in 30.0 ms",
    )
    assert str(verdict).endswith(verdict.broken_limits[0])
    assert verdict.to_dict()["broken_limits"] == list(verdict.broken_limits)
    fits = limited("a", 16 * MS, 40 * MS, 10 * MS, (1, 2))
    assert analyse([fits], workers=8).broken_limits == ()


def test_limits_that_only_together_are_too_much_are_named_together():
    tasks = [limited("a", 6, 10, 10, (2, 2)), limited("b", 9, 10, 10, (1, 2))]
    [text] = analyse(tasks).broken_limits
    assert text == (
        "met_of [2, 2] of task a and met_of [1, 2] of task b cannot hold together by their "
        "budgets: these frames alone need 1.05 of 1 thread"
    )
    # With a helper they may.
    assert analyse(tasks, threads=2).broken_limits == ()


def test_nothing_is_said_of_limits_that_may_hold():
    overload = [limited("a", 9, 10, 10, (1, 2)), demand("b", 9, 10, 10)]
    verdict = analyse(overload)
    assert verdict.schedulable is False
    assert verdict.broken_limits == ()  # all frames of b may be missed
    # As one batch both take hardly longer than one.
    batch = [limited(name, 8, 10, 10, (1, 1), group="g") for name in "ab"]
    assert analyse(batch).broken_limits == ()
    # Nothing is known of its times.
    unknown = TaskDemand("a", 0, 0, 1, 10, 10, met_of=(1, 1))
    assert analyse([unknown]).broken_limits == ()


units = st.integers(1, 12).map(lambda n: 5 * n)


@st.composite
def limited_sets(draw):
    def draw_task(name):
        frames = draw(st.integers(1, 4))
        least = draw(st.integers(1, frames))
        return limited(name, draw(units), draw(units), draw(units), (least, frames))

    return [draw_task(name) for name in "abc"[: draw(st.integers(1, 3))]]


@settings(deadline=None)
@given(limited_sets(), st.integers(1, 2), st.integers(0, 1))
def test_a_limit_that_cannot_hold_by_its_budgets_is_violated(tasks, workers, helpers):
    threads = workers + helpers
    verdict = analyse(tasks, workers, threads=threads)
    shares = [task.cost_ns * task.met_of[0] / (task.period_ns * task.met_of[1]) for task in tasks]
    # Else it may take long until the frames that are too much add up to a window.
    assume(not threads < sum(shares) < 1.25 * threads)
    if not verdict.broken_limits:
        return
    assert verdict.schedulable is not True
    engine = Engine(workers, helpers=helpers)
    for task in tasks:
        engine.add_task(make_task(task.name, task.deadline_ns, task.period_ns, met_of=task.met_of))
        engine.seed_budgets(task.name, "full@null", [(task.cost_ns,)])
    costs = {task.name: task.cost_ns for task in tasks}
    arrivals = [
        (time_ns, task.name) for task in tasks for time_ns in range(0, 4000, task.period_ns)
    ]
    drive(engine, sorted(arrivals), lambda job: costs[job.task])
    for text in verdict.broken_limits:
        named = [task.name for task in tasks if f"task {task.name} " in text]
        assert any(engine.tasks[name].weakly_hard.violations for name in named), text
