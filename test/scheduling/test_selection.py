# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which variant runs which stage: examples solved by hand; times are plain nanoseconds."""

from __future__ import annotations

import pytest
from planned_selector import PlannedSelector
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.selection import Gate, StaticSelector
from jetson_dnn_rt.scheduling.task_state import WITHDRAW_AFTER
from jetson_dnn_rt.tasks import Admission, Outcome, stage_name

SLOW, FAST = "full@null", "tucker-0.50@null"
STAGES = ("preprocess", "inference-1", "inference-2", "inference-3", "decode")


class DeadlineSelector(StaticSelector):
    """Slow while it fits, else fast: the least of what a coordinator does."""

    def choose(self, state, job, now_ns):
        rest_ns = state.remaining_budget_ns(SLOW, job.next_stage)
        return SLOW if now_ns + rest_ns <= job.absolute_deadline_ns else FAST

    def allowed(self, state, job):
        return (SLOW, FAST)


def make(deadline, spans=None, slow=10, fast=4, **changes):
    engine = Engine()
    engine.add_task(
        make_task("a", deadline, stages=STAGES, variants=(SLOW, FAST), variant=SLOW, **changes),
        spans,
    )
    for variant, time_ns in ((SLOW, slow), (FAST, fast)):
        runs = len((spans or {}).get(variant, STAGES))
        engine.seed_budgets("a", variant, [(time_ns,) * runs])
    return engine


def path(record):
    return [(stage.name, stage.variant) for stage in record.stages]


def test_the_static_choice_holds_for_the_whole_frame():
    engine = make(100)

    def change(job, now_ns):
        if job.next_stage == 2:
            engine.tasks["a"].set_variant(FAST)

    first, second = drive(engine, [(0, "a"), (200, "a")], lambda job: 10, on_start=change)
    assert {stage.variant for stage in first.stages} == {SLOW}
    assert {stage.variant for stage in second.stages} == {FAST}
    assert (first.variant, second.variant) == (SLOW, FAST)


def test_a_plan_switches_at_boundaries_and_each_variant_learns_from_its_own_stages():
    engine = make(100)
    plan = (SLOW, FAST, FAST, FAST, SLOW)
    engine.selector = PlannedSelector({"a": plan})
    [record] = drive(engine, [(0, "a")], lambda job: 12 if job.variant == SLOW else 6)
    assert path(record) == list(zip(STAGES, plan, strict=True))
    # The network ran in one variant, whatever prepared its input.
    assert record.variant == FAST
    assert record.execution_time_ns == 2 * 12 + 3 * 6
    # Against the profile of the variant that it began with: 20 of 50 each, 100 to the deadline.
    assert record.lag_ns == 100 - 42
    budgets = engine.tasks["a"].budgets
    assert [estimator.budget_ns for estimator in budgets[SLOW]] == [12, 10, 10, 10, 12]
    assert [estimator.budget_ns for estimator in budgets[FAST]] == [4, 6, 6, 6, 4]


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ((FAST, SLOW, FAST, SLOW, FAST), f"{SLOW}+{FAST}"),
        ((SLOW, SLOW, SLOW, SLOW, FAST), SLOW),
        ((SLOW,), SLOW),  # aborted before the network
    ],
)
def test_a_frame_is_named_after_what_its_network_ran_in(plan, name):
    whole = len(plan) == len(STAGES)
    engine = make(100 if whole else 60)
    engine.selector = PlannedSelector({"a": plan if whole else (*plan, FAST, FAST, FAST, FAST)})
    [record] = drive(engine, [(0, "a")], lambda job: 9 if whole else 58)
    assert [stage.variant for stage in record.stages] == list(plan)
    assert record.variant == name


def test_a_late_frame_is_saved_by_switching_not_aborted():
    # 45 to go: slow needs 50, so fast from the start; without it the frame would be skipped.
    engine = make(45)
    engine.selector = DeadlineSelector()
    [record] = drive(engine, [(0, "a")], lambda job: 10 if job.variant == SLOW else 4)
    assert record.outcome is Outcome.MET
    assert path(record)[0] == ("preprocess", FAST)
    # Once ahead it can afford the slow one again: 4 + 4 * 10 = 44 <= 45.
    assert [variant for _, variant in path(record)] == [FAST, SLOW, SLOW, SLOW, SLOW]


def test_hopeless_is_what_no_allowed_variant_can_save():
    # The first stage takes 45 instead of 10: 15 are left, fast needs 4 * 4 = 16.
    for deadline, expected in ((60, (Outcome.ABORTED, "budget")), (61, (Outcome.MET, ""))):
        engine = make(deadline)
        engine.selector = DeadlineSelector()
        [record] = drive(engine, [(0, "a")], lambda job: 4 if job.next_stage else 45)
        assert (record.outcome, record.reason) == expected


def test_a_variant_that_covers_several_stages():
    engine = make(100, {FAST: (1, 2, 1, 1)})
    engine.tasks["a"].set_variant(FAST)
    [record] = drive(engine, [(0, "a")], lambda job: 4)
    assert [stage.name for stage in record.stages] == [
        "preprocess", "inference-1..2", "inference-3", "decode"
    ]  # fmt: skip
    assert engine.tasks["a"].remaining_budget_ns(FAST) == 16


def test_nothing_enters_in_the_middle_of_a_cover():
    engine = make(100, {FAST: (1, 2, 1, 1)})
    engine.selector = PlannedSelector({"a": (SLOW, SLOW, FAST, FAST, FAST)})
    [record] = drive(engine, [(0, "a")], lambda job: 4)
    assert [variant for _, variant in path(record)] == [SLOW, SLOW, SLOW, FAST, FAST]


@pytest.mark.parametrize("spans", [(1, 2, 1), (1, 2, 2, 1), (0, 3, 1, 1), (5, 0)])
def test_runs_must_do_every_stage_once(spans):
    with pytest.raises(ValueError, match="the task has 5"):
        make(100, {FAST: spans})


def test_a_withdrawn_variant_is_left_at_the_next_boundary():
    engine = make(100)
    engine.selector = PlannedSelector({"a": (SLOW, SLOW, FAST, FAST, SLOW)})
    fails = lambda job: job.variant == FAST  # noqa: E731
    records = drive(engine, [(0, "a"), (200, "a"), (400, "a")], lambda job: 4, fails)
    assert [record.outcome.value for record in records] == ["failed", "failed", "met"]
    assert FAST in engine.tasks["a"].withdrawn
    assert {variant for _, variant in path(records[2])} == {SLOW}


def test_a_frame_inside_a_withdrawn_cover_ends():
    """Between its runs a frame may find its own variant withdrawn and no other that can go on."""
    engine = make(100, {SLOW: (1, 3, 1)}, slow=4)
    engine.selector = PlannedSelector({"a": (FAST,) * 5})

    def withdraw(job, now_ns):
        if job.next_stage == 1:
            engine.tasks["a"].withdrawn[FAST] = "by hand"

    [record] = drive(engine, [(0, "a")], lambda job: 4, on_start=withdraw)
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "withdrawn")


def test_a_variant_can_be_added_and_made_anew():
    engine = make(100)
    engine.tasks["a"].add_variant("full@torch-bf16", (1, 3, 1))
    engine.seed_budgets("a", "full@torch-bf16", [(1, 5, 1)])
    engine.tasks["a"].set_variant("full@torch-bf16")
    [record] = drive(engine, [(0, "a")], lambda job: 1)
    assert [stage.name for stage in record.stages] == ["preprocess", "inference-1..3", "decode"]
    engine.tasks["a"].withdrawn["full@torch-bf16"] = "by hand"
    with pytest.raises(ValueError, match="was withdrawn"):
        engine.tasks["a"].set_variant("full@torch-bf16")
    engine.tasks["a"].add_variant("full@torch-bf16")
    engine.tasks["a"].set_variant("full@torch-bf16")
    assert engine.tasks["a"].parameters.variants == (SLOW, FAST, "full@torch-bf16")


def test_a_variant_made_anew_begins_without_the_failures_of_the_old_one():
    state = make(100).tasks["a"]
    for _ in range(WITHDRAW_AFTER - 1):
        assert not state.blame(FAST, "broken")
    state.add_variant(FAST)
    for _ in range(WITHDRAW_AFTER - 1):
        assert not state.blame(FAST, "broken")
    assert FAST not in state.withdrawn
    assert state.blame(FAST, "broken")
    assert FAST in state.withdrawn


def test_the_choice_before_the_start_follows_the_task():
    engine = make(100)
    job = engine.release("a", 0, 0, make_work())
    engine.tasks["a"].set_variant(FAST)
    assert StaticSelector().choose(engine.tasks["a"], job, 0) == FAST
    assert engine.next(0).variant == FAST


def test_names_of_runs():
    assert stage_name(STAGES, 1, 1) == "inference-1"
    assert stage_name(STAGES, 1, 3) == "inference-1..3"


def test_a_frame_is_admitted_by_the_budget_of_the_fastest_variant_it_may_choose():
    engine = make(deadline=60, slow=10, fast=4)
    # The budget of the slow variant is 5 * 18, its usual time 5 * 10.
    engine.seed_budgets("a", SLOW, [(time,) * len(STAGES) for time in (10, 10, 18)])
    engine.selector = DeadlineSelector()
    (record,) = drive(engine, [(0, "a")], lambda job: 4)
    assert record.admission is Admission.BUDGET
    engine.selector = StaticSelector()
    (record,) = drive(engine, [(1000, "a")], lambda job: 10)
    assert record.admission is Admission.SPARE


class GatedSelector(StaticSelector):
    """Answers what it is told, by task and sequence; open otherwise."""

    def __init__(self, gates):
        self.gates, self.asked = gates, []

    def gate(self, state, job, now_ns):
        self.asked.append((now_ns, job.task, job.sequence))
        return self.gates.get((job.task, job.sequence), Gate.OPEN)


def gated(gates, workers=1):
    engine = Engine(workers)
    for task, deadline in (("a", 100), ("b", 200)):
        engine.add_task(make_task(task, deadline, stages=("one", "two")))
    engine.selector = GatedSelector(gates)
    return engine


def ends(records):
    return [(one.task, one.outcome, one.start_ns, one.completion_ns) for one in records]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_that_is_held_waits_for_the_others_and_does_not_stop_the_machine(workers):
    engine = gated({("a", 0): Gate.HELD}, workers)
    records = drive(engine, [(0, "b"), (0, "a")], lambda job: 10)
    # It is asked for whenever a worker is free; when nothing else is left it begins.
    assert ends(records) == [("b", Outcome.MET, 0, 20), ("a", Outcome.MET, 20, 40)]
    held = [at for at, task, _ in engine.selector.asked if task == "a"]
    assert held == ([10, 20] if workers == 1 else [0, 10, 10, 20])
    assert records[1].waiting_ns == 20


def test_the_engine_s_order_decides_among_jobs_that_are_all_held():
    engine = gated({("a", 0): Gate.HELD, ("b", 0): Gate.HELD})
    records = drive(engine, [(0, "b"), (0, "a")], lambda job: 10, wake_ns=1)
    assert ends(records) == [("a", Outcome.MET, 1, 21), ("b", Outcome.MET, 21, 41)]


def test_a_closed_gate_skips_and_a_probe_passes_it():
    engine = gated({("a", sequence): Gate.CLOSED for sequence in range(40)})
    arrivals = [(200 * sequence, "a") for sequence in range(31)]
    records = drive(engine, arrivals, lambda job: 10)
    assert {(one.outcome, one.reason) for one in records[:29]} == {(Outcome.SKIPPED, "budget")}
    assert [one.start_ns for one in records[:29]] == [None] * 29
    assert (records[29].outcome, records[29].admission) == (Outcome.MET, Admission.PROBE)
    assert records[30].outcome is Outcome.SKIPPED


def test_a_job_that_has_begun_is_not_asked_for():
    engine = gated({})
    drive(engine, [(0, "a")], lambda job: 10)
    assert engine.selector.asked == [(0, "a", 0)]
