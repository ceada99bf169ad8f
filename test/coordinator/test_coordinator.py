# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The coordinator between the engine and a policy; times are plain nanoseconds."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.coordinator.cohort import Decision, FrameSample, SlowdownWindow, StageSample
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.selection import Gate, StaticSelector
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Outcome

STAGES = ("inference-1", "inference-2")
FULL, LOW = "full@null", "tucker-0.50@null"
DELAY = 7


def make_clock_table():
    space = ClockSpace((ClockDomain("gpu", (ClockOption(100), ClockOption(200)), DELAY),))
    return ClockTable(space, np.array([0, 1]), np.array([1.0, 2.0]), max_n=1, max_q=0)


def make_table(task, deadline=100, full=(20, 30), low=(10, 10)):
    """Half the clocks take twice the time."""
    times = np.array([full, low])[:, :, None].repeat(3, axis=2)
    shape = (2, 2, 2)
    slowdown = np.broadcast_to([2.0, 1.0], shape).copy()
    power = np.broadcast_to([3.0, 5.0], shape).copy()
    loss = np.array([[0.0, 0.0], [0.1, 0.2]])
    return TaskTable(task, STAGES, (FULL, LOW), deadline, 1000, times, slowdown, power, loss)


@dataclass
class Scripted:
    """Says what the test says, and remembers what it saw."""

    plan: object
    fastest_clocks: int = 1
    adjusts_clocks: bool = True
    clocks_at_boundaries: bool = False
    adjusts_variants: bool = True
    gates_frames: bool = False
    allowed: tuple = (0, 1)
    seen: list = field(default_factory=list)

    def decide(self, cohort, now_ns):
        members = cohort.members
        self.seen.append((now_ns, cohort.deciding, [(m.stage, m.lag_ns) for m in members]))
        return self.plan(cohort, now_ns)

    def candidates(self, cohort, member):
        return self.allowed


def task_of(name, deadline, **changes):
    return make_task(name, deadline, stages=STAGES, variants=(FULL, LOW), variant=FULL, **changes)


class Bench:
    """An engine whose stages take what the table says at the clocks in effect."""

    def __init__(self, plan, *tables, clocks=1, **flags):
        self.policy = Scripted(plan, **flags)
        self.requests = []
        clock_table = make_clock_table()
        self.tables = {table.task: table for table in tables}
        self.coordinator = Coordinator(
            clock_table, tables, self.policy, clocks=clocks, request_clocks=self.request
        )
        self.engine = Engine()
        self.engine.selector = self.coordinator
        for table in tables:
            self.engine.add_task(task_of(table.task, table.deadline_ns))

    @property
    def cohort(self):
        return self.coordinator.cohort

    def request(self, target, now_ns):
        self.requests.append((now_ns, target))
        return now_ns + DELAY

    def execution_ns(self, job):
        table = self.tables[job.task]
        variant = table.variants.index(job.variant)
        time = table.times_ns[variant, job.next_stage, 0]
        return int(time * table.slowdown[variant, job.next_stage, self.cohort.clocks])

    def run(self, *arrivals):
        return drive(self.engine, arrivals, self.execution_ns)


def always(*variants, clocks=1):
    return lambda cohort, now_ns: Decision(variants, clocks)


def path(record):
    return [(stage.name, stage.variant) for stage in record.stages]


def test_the_policy_is_asked_at_each_boundary_and_at_the_end():
    bench = Bench(always(0), make_table("a"))
    (record,) = bench.run((5, "a"))
    assert record.outcome is Outcome.MET
    # Sub-deadlines 40 and 60; the stages take 20 and 30.
    assert bench.policy.seen == [(5, 0, [(0, 0)]), (25, 0, [(1, 20)]), (55, -1, [(2, 50)])]
    assert bench.coordinator.decisions == 3


def test_waiting_counts_into_the_lag():
    bench = Bench(always(0, 0), make_table("a"), make_table("b", deadline=400))
    bench.run((0, "a"), (0, "b"))
    # b waits 50 for a; its sub-deadlines are 160 and 240.
    assert (70, 1, [(2, 50), (1, 90)]) in bench.policy.seen


def test_the_last_known_lag_holds_until_the_first_boundary_of_the_next_frame():
    bench = Bench(always(0), make_table("a"))
    bench.run((0, "a"), (200, "a"))
    assert [lag for _, _, ((_, lag),) in bench.policy.seen] == [0, 20, 50, 50, 20, 50]


def test_its_variant_runs_from_the_next_boundary():
    def plan(cohort, now_ns):
        return Decision((cohort.members[0].stage % 2,), 1)

    bench = Bench(plan, make_table("a"))
    (record,) = bench.run((0, "a"))
    assert path(record) == [("inference-1", FULL), ("inference-2", LOW)]
    assert bench.coordinator.switches == 1


def test_a_policy_for_clocks_only_leaves_the_variants_to_the_tasks():
    bench = Bench(always(1), make_table("a"), adjusts_variants=False)
    (record,) = bench.run((0, "a"))
    assert record.variant == FULL


@pytest.mark.parametrize(("at_boundaries", "requests"), [(False, [0, 1]), (True, [0, 1, 0, 1])])
def test_clocks_are_asked_for_at_a_frames_start_and_end_or_everywhere(at_boundaries, requests):
    targets = iter([0, 1, 0, 0, 1, 1])  # start, boundary and end of two frames

    def plan(cohort, now_ns):
        return Decision((0,), next(targets))

    bench = Bench(plan, make_table("a", deadline=300), clocks_at_boundaries=at_boundaries)
    bench.run((0, "a"), (200, "a"))
    assert [target for _, target in bench.requests] == requests


def test_new_clocks_count_once_they_are_in_effect():
    bench = Bench(always(0, clocks=0), make_table("a", deadline=300))
    (record,) = bench.run((0, "a"))
    # Asked for at 0, in effect at 7: the first stage began before, the second runs at half speed.
    assert [stage.execution_time_ns for stage in record.stages] == [20, 60]
    assert bench.cohort.clocks == 0
    state = bench.engine.tasks["a"]
    assert state.time_scales == {FULL: (2.0, 2.0), LOW: (2.0, 2.0)}
    # What was observed at half speed is a budget of 30 at the reference clocks, 60 at these.
    assert state.budgets[FULL][1].median_ns == 30
    assert state.usual_ns(FULL, 1) == 60


@pytest.mark.parametrize(
    ("deadline", "clocks", "adjusts", "outcome"),
    [
        # At half speed it takes 100, at full speed 50.
        (49, 1, True, Outcome.SKIPPED),
        (100, 0, True, Outcome.MET),
        # The first stage begins at half speed: 40 are over, and even raised clocks need 30.
        (69, 1, True, Outcome.ABORTED),
        (70, 1, True, Outcome.MET),
        (70, 0, True, Outcome.LATE),
        # A policy that leaves the clocks alone has only the present ones.
        (99, 1, False, Outcome.SKIPPED),
    ],
)
def test_no_frame_is_given_up_that_faster_clocks_could_save(deadline, clocks, adjusts, outcome):
    plan, table = always(0, clocks=clocks), make_table("a", deadline=deadline)
    bench = Bench(plan, table, clocks=0, allowed=(0,), adjusts_clocks=adjusts)
    bench.engine.seed_budgets("a", FULL, [(20, 30)])
    (record,) = bench.run((0, "a"))
    assert record.outcome is outcome


def test_a_member_shows_what_ran():
    bench = Bench(always(1), make_table("a"))
    bench.run((0, "a"))
    member = bench.cohort.members[0]
    assert member.last_stage == StageSample(variant=1, stage=1, clocks=1, time_ns=10)
    assert member.last_frame == FrameSample(met=True, response_ns=20, execution_ns=20)
    assert (member.stages_done, member.frames_done, member.active) == (2, 1, False)
    assert member.slowdown.mean == 1.0


def test_a_machine_slower_than_its_profile_shows_in_the_slowdown():
    bench = Bench(always(0), make_table("a"))
    paces = []

    def plan(cohort, now_ns):
        paces.append(cohort.members[0].pace)
        return Decision((0,), 1)

    bench.policy.plan = plan
    # The first stage takes 40 in place of 20, the second 35 in place of 30.
    times = iter([40, 35, 20])
    drive(bench.engine, [(0, "a"), (200, "a")], lambda job: next(times, 30))
    assert bench.cohort.members[0].slowdown.quantile(1.0) == 1.5
    assert paces == [1.0, 2.0, 1.5, 1.0, 1.0, 1.0]


def test_a_withdrawn_variant_is_shown_as_unusable_and_comes_back():
    bench = Bench(always(0), make_table("a"))
    state = bench.engine.tasks["a"]
    state.withdrawn[LOW] = "gone"
    bench.run((0, "a"))
    assert bench.cohort.members[0].usable == (True, False)
    bench.engine.tasks["a"].add_variant(LOW)
    drive(bench.engine, [(1000, "a")], bench.execution_ns)
    assert bench.cohort.members[0].usable == (True, True)


def test_tasks_go_on_in_their_last_variants_at_the_fastest_clocks_when_the_policy_fails():
    """EDGES 8: a policy that raises twice is asked no more."""
    works = True

    def plan(cohort, now_ns):
        if not works:
            raise ZeroDivisionError("no such thing")
        return Decision((1,), 0)

    bench = Bench(plan, make_table("a"))
    bench.run((0, "a"))
    works = False
    asked = len(bench.policy.seen)
    first, second = drive(bench.engine, [(1000, "a"), (2000, "a")], bench.execution_ns)
    assert (first.variant, second.variant) == (LOW, LOW)
    assert (first.outcome, second.outcome) == (Outcome.MET, Outcome.MET)
    assert len(bench.policy.seen) == asked + 2
    assert bench.cohort.clocks == 1
    assert "no such thing" in bench.coordinator.failure


def test_tasks_that_never_ran_run_what_they_are_set_to_when_the_policy_fails():
    def plan(cohort, now_ns):
        raise ZeroDivisionError("no such thing")

    bench = Bench(plan, make_table("a"))
    (record,) = bench.run((0, "a"))
    assert (record.outcome, record.variant) == (Outcome.MET, FULL)
    bench.cohort.memory = "old"
    bench.coordinator.set_policy(Scripted(always(1)))
    assert bench.cohort.memory is None
    drive(bench.engine, [(1000, "a")], bench.execution_ns)
    assert bench.cohort.members[0].variant == 1
    assert not bench.coordinator.failure


def test_a_policy_that_raises_once_or_decides_nonsense_once_is_asked_again():
    """EDGES 8: once may be a hiccup, also where it is the decision that cannot be used."""
    calls = []

    def plan(cohort, now_ns):
        calls.append(now_ns)
        return Decision((7,) if len(calls) == 1 else (1,), 0)

    bench = Bench(plan, make_table("a"))
    first, second = bench.run((0, "a"), (1000, "a"))
    assert (first.outcome, second.outcome) == (Outcome.MET, Outcome.MET)
    assert second.variant == LOW
    assert not bench.coordinator.failure


def test_a_task_without_a_table_runs_what_it_is_set_to():
    bench = Bench(always(1), make_table("a"))
    bench.engine.add_task(task_of("b", 500))
    bench.tables["b"] = make_table("b")
    records = bench.run((0, "a"), (0, "b"))
    assert [(record.task, record.variant) for record in records] == [("a", LOW), ("b", FULL)]


def test_a_newer_frame_takes_the_place_of_one_that_waits():
    bench = Bench(always(0), make_table("a"))
    first, second, third = bench.run((0, "a"), (10, "a"), (20, "a"))
    assert (first.outcome, second.outcome) == (Outcome.SUPERSEDED, Outcome.MET)
    assert third.sequence == 2
    assert not bench.cohort.members[0].active
    assert bench.cohort.members[0].release_ns == 20


def test_it_takes_over_in_the_middle_of_a_frame():
    bench = Bench(always(1), make_table("a"))
    coordinator, bench.engine.selector = bench.engine.selector, StaticSelector()

    def take_over(job, now_ns):
        bench.engine.selector = coordinator

    (record,) = drive(bench.engine, [(0, "a")], bench.execution_ns, on_start=take_over)
    assert path(record) == [("inference-1", FULL), ("inference-2", LOW)]
    member = bench.cohort.members[0]
    assert (member.frames_done, member.stages_done, member.active) == (1, 2, False)
    assert member.last_frame == FrameSample(met=True, response_ns=30, execution_ns=30)


def test_two_tables_for_one_task_are_refused():
    with pytest.raises(ValueError, match="each task has one table"):
        Bench(always(0, 0), make_table("a"), make_table("a"))


def test_a_batch_says_nothing_about_the_pace():
    """Two frames at once take 25 and 35: each is at its profile's 20 and 30."""
    bench = Bench(always(0, 0), make_table("a", deadline=200), make_table("b", deadline=200))
    bench.engine = Engine()
    bench.engine.selector = bench.coordinator
    for name in "ab":
        runs = dict.fromkeys((FULL, LOW), [Run(batches=True)] * 2)
        bench.engine.add_task(task_of(name, 200, batch_group="g"), runs)
        bench.engine.seed_budgets(name, FULL, [(20, 30)])
        for stage, time_ns in enumerate((25, 35)):
            bench.engine.seed_batch_budgets(name, FULL, stage, 2, [time_ns])
    for name in "ab":
        bench.engine.release(name, 0, 0, make_work())
    job = bench.engine.next(0)
    assert [mate.task for mate in job.mates] == ["b"]
    bench.engine.boundary(job, 25, 0, 25)
    a, b = bench.cohort.members
    assert (a.pace, b.pace) == (1.0, 1.0)
    assert a.last_stage is None
    # What is behind is seen all the same: the sub-deadlines are 80 and 120.
    assert (a.lag_ns, b.lag_ns) == (55, 55)


def test_a_narrow_network_says_nothing_about_the_pace():
    bench = Bench(always(0, 0), make_table("a", deadline=200))
    bench.engine.release("a", 0, 0, make_work())
    job = bench.engine.next(0)
    job.work.narrow = True
    bench.engine.boundary(job, 40, 0, 40)
    (a,) = bench.cohort.members
    assert (a.pace, a.last_stage) == (1.0, None)


@given(st.lists(st.floats(0.1, 50.0), max_size=40), st.integers(1, 12), st.floats(0.0, 1.0))
def test_it_is_the_statistics_of_the_last_frames(seen, frames, share):
    window = SlowdownWindow(frames)
    for ratio in seen:
        window.observe(ratio)
    assert len(window) == len(seen[-frames:])
    last = seen[-frames:] or [1.0]  # nothing seen: as profiled
    assert window.mean == pytest.approx(sum(last) / len(last))
    assert window.latest == last[-1]
    rank = max(1, math.ceil(share * len(last)))
    assert window.quantile(share) == sorted(last)[rank - 1]


class Gating(Scripted):
    """Gates the frames of its cohort."""

    def gate(self, cohort, member, now_ns):
        self.seen.append(("gate", member, now_ns))
        return self.plan_gate(member)


def gating_bench(plan_gate, *tables):
    bench = Bench(always(0, 0), *tables)
    policy = Gating(always(0, 0), gates_frames=True)
    policy.plan_gate = plan_gate
    bench.coordinator.set_policy(policy)
    return bench, policy


def test_a_policy_that_gates_decides_which_frames_begin():
    bench, policy = gating_bench(
        lambda member: (Gate.CLOSED, Gate.OPEN)[member], make_table("a"), make_table("b")
    )
    records = bench.run((0, "a"), (0, "b"))
    assert [(one.task, one.outcome, one.completion_ns) for one in records] == [
        ("a", Outcome.SKIPPED, 0),
        ("b", Outcome.MET, 50),
    ]
    assert [asked for asked in policy.seen if asked[0] == "gate"] == [
        ("gate", 0, 0),
        ("gate", 1, 0),
    ]


def test_a_gate_that_raises_is_open_and_at_the_second_time_the_policy_is_disabled():
    def fail(member):
        raise RuntimeError("made to raise")

    bench, policy = gating_bench(fail, make_table("a"))
    assert [one.outcome for one in bench.run((0, "a"), (200, "a"))] == [Outcome.MET] * 2
    assert bench.coordinator.failure == "Gating: RuntimeError: made to raise"
    asked = len(policy.seen)
    bench.run((400, "a"))
    assert len(policy.seen) == asked
