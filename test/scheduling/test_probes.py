# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Probes measure anew, and take a small share of the machine however many tasks starve."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from virtual_drive import drive, make_task

from jetson_dnn_rt.scheduling.admission import PROBE_INTERVAL
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Admission, Outcome

COST, PERIOD, DEADLINE = 1000, 3300, 1500
FRAMES = 100

SLOW, FAST, FRAME, IN_TIME = 114, 17, 67, 63
"""A network on a busy machine and on a quiet one; its period, and its deadline."""

SCHEDULE = (1, 4, 9, 18, 35, *range(65, 1000, PROBE_INTERVAL))
"""Frames that probe where all are too slow: after 1, 2, 4, 8, 16 and then 29 that are skipped."""


def make_engine(budgets, deadline, period):
    """Tasks of one stage with these budgets."""
    engine = Engine()
    for name, budget in budgets.items():
        engine.add_task(make_task(name, deadline, period))
        engine.seed_budgets(name, "full@null", [(budget,)])
    return engine


def run_overload(count):
    """So many tasks of which three fit, out of step: frames met, and probes."""
    names = [f"task-{i:02d}" for i in range(count)]
    engine = make_engine(dict.fromkeys(names, COST), DEADLINE, PERIOD)
    arrivals = sorted(
        (frame * PERIOD + PERIOD * i // count, name)
        for frame in range(FRAMES)
        for i, name in enumerate(names)
    )
    records = drive(engine, arrivals, lambda job: COST)
    probes = sum(record.admission is Admission.PROBE for record in records)
    return sum(record.outcome is Outcome.MET for record in records), probes


def test_met_frames_do_not_fall_when_tasks_are_added():
    """Each probe of a starving task costs a frame: without a limit 45 of 330 with 48 tasks."""
    assert run_overload(3) == (3 * FRAMES, 0)
    capacity = FRAMES * PERIOD // COST
    for count in (6, 24):
        met, probes = run_overload(count)
        assert (met >= capacity, probes) == (True, 0)
    met, probes = run_overload(48)
    assert 0 < probes <= capacity // PROBE_INTERVAL
    assert met >= capacity - probes


def test_a_starving_task_is_probed_in_the_end():
    """Where the task's own budget is wrong, and the machine is busy, it learns all the same."""
    engine = make_engine({"busy": 10, "wrong": 50}, 30, 20)
    frames = range(PROBE_INTERVAL + 5)
    arrivals = [(frame * 20, name) for frame in frames for name in ("busy", "wrong")]
    records = drive(engine, arrivals, lambda job: 10 if job.task == "busy" else 5)
    mine = [record for record in records if record.task == "wrong"]
    assert [record.outcome for record in mine] == [Outcome.SKIPPED] + [Outcome.MET] * 34
    assert [record.admission is Admission.PROBE for record in mine[:3]] == [False, True, False]


def test_all_tasks_probe_without_delay_where_nothing_else_runs():
    """After a hiccup every budget is wrong: each task has its probe, one after the other."""
    engine = make_engine(dict.fromkeys("abc", 50), 20, 100)
    frames = range(5)
    arrivals = [(frame * 100 + 30 * i, name) for frame in frames for i, name in enumerate("abc")]
    records = drive(engine, arrivals, lambda job: 19)
    probes = [(r.task, r.sequence) for r in records if r.admission is Admission.PROBE]
    assert probes == [(name, 1) for name in "abc"]


def test_one_probe_at_a_time():
    """Those of two tasks that are due together: the second waits until the first's is over, and
    then until it has paid for what it took.
    """
    budgets = {"a": 50, "b": 50, "x": 5}
    engine = make_engine(budgets, 20, 100)
    arrivals = [(frame * 100, name) for frame in range(2 * PROBE_INTERVAL) for name in "abx"]
    records = drive(engine, arrivals, lambda job: budgets[job.task])
    first, second, *_ = (r for r in records if r.admission is Admission.PROBE)
    assert (first.task, first.sequence, second.task) == ("a", 1, "b")
    # The first release that is not before the limit.
    assert second.sequence == -(-(first.completion_ns + PROBE_INTERVAL * 50) // 100)


def run_busy_start(slow_frames, count, beside=()):
    """A network measured while the machine was busy, as it is for so many frames."""
    engine = make_engine({"net": SLOW, **dict.fromkeys(beside, FAST)}, IN_TIME, FRAME)
    arrivals = [(frame * FRAME, name) for frame in range(count) for name in ("net", *beside)]
    slow = lambda job: job.task == "net" and job.sequence < slow_frames  # noqa: E731
    return drive(engine, arrivals, lambda job: SLOW if slow(job) else FAST)


def find_probes(records, task="net"):
    return [r.sequence for r in records if r.task == task and r.admission is Admission.PROBE]


@given(slow=st.integers(0, 300))
@example(slow=0)
@example(slow=36)  # the most that is lost: 29
def test_a_busy_start_is_forgotten_in_as_many_frames_as_it_cost_29_at_most(slow):
    """The first probe that is quick is the last: from then on every frame is in time."""
    records = run_busy_start(slow, slow + PROBE_INTERVAL + 5)
    first = next(sequence for sequence in SCHEDULE if sequence >= slow)
    assert [r.sequence for r in records if r.outcome is Outcome.MET] == list(
        range(first, slow + PROBE_INTERVAL + 5)
    )
    assert find_probes(records) == [sequence for sequence in SCHEDULE if sequence <= first]
    assert first - slow <= min(slow + 1, PROBE_INTERVAL - 1)


def test_a_busy_time_in_the_middle_is_forgotten_as_fast():
    """Frames 10 to 59 are slow, and keep the worker for two periods: every other one is skipped.

    The usual time is slow after the twelfth of them, as eleven quick ones are known. Then they
    probe; a quick frame is the last to.
    """
    engine = make_engine({"net": FAST}, IN_TIME, FRAME)
    arrivals = [(frame * FRAME, "net") for frame in range(90)]
    records = drive(engine, arrivals, lambda job: SLOW if 10 <= job.sequence < 60 else FAST)
    late = [r.sequence for r in records if r.outcome is Outcome.LATE]
    assert late == [*range(10, 34, 2), 34, 37, 42, 51]
    assert find_probes(records) == [34, 37, 42, 51, 68]
    met = [r.sequence for r in records if r.outcome is Outcome.MET]
    assert met == [*range(10), *range(68, 90)]


def test_a_network_that_stays_too_slow_is_hardly_tried():
    """Alone, too: its probes are one frame in 30 in the end."""
    records = run_busy_start(10_000, 302)
    assert find_probes(records) == [sequence for sequence in SCHEDULE if sequence < 302]
    assert {r.outcome for r in records} == {Outcome.SKIPPED, Outcome.LATE}


def test_beside_others_a_network_that_stays_too_slow_takes_one_part_in_thirty():
    """A probe takes 114, after which 3420 pass: the first frame from then on comes 53 later. Each
    costs the other task two frames, which do not wait for so long.
    """
    records = run_busy_start(10_000, 302, beside=("other",))
    probes = [1, 54, 107, 160, 213, 266]
    assert find_probes(records) == probes
    missed = [r.sequence for r in records if r.task == "other" and r.outcome is not Outcome.MET]
    assert sorted(missed) == [frame + i for frame in probes for i in range(2)]


def test_a_network_that_is_in_time_now_and_then_is_tried_whenever_it_is_free():
    """On a machine that stays busy three of eleven frames are quick, the others keep the network
    for longer than a period. Without luck, by probes and what they lead to, 9 of 302 were met.
    """
    stages = ("preprocess", "inference", "decode")
    engine = Engine(1, helpers=1)
    engine.add_task(make_task("net", IN_TIME, FRAME, stages=stages))
    engine.seed_budgets("net", "full@null", [(1, SLOW, 1)] * 20)
    arrivals = [(frame * FRAME, "net") for frame in range(302)]

    def run_ns(job):
        if job.next_stage != 1:
            return 1
        return 50 if job.sequence * 5 % 11 < 3 else 90

    records = drive(engine, arrivals, run_ns)
    assert Counter(record.outcome for record in records) == {
        Outcome.MET: 27,
        Outcome.ABORTED: 133,
        Outcome.LATE: 2,
        Outcome.SKIPPED: 140,
    }


def test_a_task_that_is_too_slow_for_good_does_not_keep_another_from_its_probe():
    """The pause after its probe is longer than it waits for the next: it would be first again."""
    engine = make_engine({"slow": 114, "wrong": 114, "busy": 5}, IN_TIME, FRAME)
    arrivals = [(frame * FRAME, name) for frame in range(70) for name in ("slow", "wrong", "busy")]
    records = drive(engine, arrivals, lambda job: {"slow": 114, "wrong": 40, "busy": 5}[job.task])
    probes = [(r.task, r.sequence) for r in records if r.admission is Admission.PROBE]
    assert probes == [("slow", 1), ("wrong", 54)]
    assert {r.outcome for r in records if r.task == "wrong" and r.sequence > 54} == {Outcome.MET}


def test_a_probe_that_never_starts_does_not_keep_another_from_its_own():
    """Networks with one core overlap without a gap, so that by priority it never gets to start.

    A newer frame of its task takes its place.
    """
    engine = Engine(1, "priority", helpers=1)
    stages = ("preprocess", "inference", "decode")
    tasks = (
        ("a", 2, 0, 56, 56),
        ("b", 2, 50, 56, 56),
        ("c", 0, 5, 300, 10),
        ("d", 3, 25, 300, 10),
    )
    arrivals = []
    for name, priority, begin, budget, _ in tasks:
        deadline = 9500 if name in "ab" else 9000
        task = make_task(name, deadline, 10_000, priority=priority, stages=stages)
        state = engine.add_task(task, {"full@null": [Run()] * 3})
        engine.seed_budgets(name, "full@null", [(100, 100 * budget, 100)])
        state.set_narrow([1.0])
        arrivals += [(100 * begin + frame * 10_000, name) for frame in range(200)]
    times = {name: 100 * time for name, *_, time in tasks}
    records = drive(
        engine, sorted(arrivals), lambda job: (100, times[job.task], 100)[job.next_stage]
    )
    met = Counter(record.task for record in records if record.outcome is Outcome.MET)
    assert met["d"] >= 190


@pytest.mark.parametrize("period", [1000, 4000, 8000])
def test_a_task_with_a_long_period_gets_its_probe(period):
    """Longer than the pause that a probe of a task that is too slow for good costs, 3600."""
    engine = Engine(1)
    for name, deadline, every, budget in (
        ("e", 40, 100, 10), ("d", 100, 100, 200), ("c", 100, period, 300),
    ):  # fmt: skip
        engine.add_task(make_task(name, deadline, every))
        engine.seed_budgets(name, "full@null", [(budget,)])
    times, begins = {"e": 10, "d": 120, "c": 50}, {"e": 5, "d": 60, "c": 0}
    arrivals = sorted(
        (begins[name] + frame * every, name)
        for name, every in (("e", 100), ("d", 100), ("c", period))
        for frame in range(100 * period // every)
    )
    records = drive(engine, arrivals, lambda job: times[job.task])
    met = [record.outcome is Outcome.MET for record in records if record.task == "c"]
    assert sum(met) >= 80


def test_a_task_that_was_removed_keeps_no_other_from_its_probe():
    engine = Engine(1)
    for name, deadline, every, budget in (
        ("e", 40, 100, 10), ("d", 500, 1000, 2000), ("c", 500, 1000, 2000),
    ):  # fmt: skip
        engine.add_task(make_task(name, deadline, every))
        engine.seed_budgets(name, "full@null", [(budget,)])
    arrivals = [(5 + 100 * frame, "e") for frame in range(600)]
    arrivals += [(begin + 1000 * frame, name) for frame in range(60) for begin, name in
                 ((50, "d"), (60, "c"))]  # fmt: skip
    times = {"e": 10, "d": 2000, "c": 2000}
    drive(engine, sorted(arrivals), lambda job: times[job.task])
    for name in ("e", "c"):
        engine.remove_task(name)
    # The machine is its own now, and fast.
    records = drive(engine, [(61_000 + 1000 * k, "d") for k in range(40)], lambda job: 20)
    assert records[0].outcome is Outcome.MET


@pytest.mark.parametrize(("time", "known"), [(SLOW + 1, 5), (SLOW, 1), (FAST, 1)])
def test_a_probe_replaces_what_is_known_where_it_is_no_slower_than_usual(time, known):
    engine = make_engine({"net": SLOW}, IN_TIME, FRAME)
    engine.seed_budgets("net", "full@null", [(SLOW,)] * 4)
    drive(engine, [(0, "net"), (FRAME, "net")], lambda job: time)
    estimator = engine.tasks["net"].budgets["full@null"][0]
    assert (estimator.count, estimator.median_ns) == (known, min(time, SLOW))


@st.composite
def overloads(draw):
    tasks = draw(st.integers(2, 4))
    return {
        "workers": draw(st.integers(1, 2)),
        "helpers": draw(st.integers(0, 1)),
        "deadlines": [draw(st.integers(5, 60)) for _ in range(tasks)],
        "seeds": [draw(st.integers(1, 90)) for _ in range(tasks)],
        "times": draw(st.lists(st.integers(1, 90), min_size=1, max_size=8)),
        "periods": [draw(st.integers(20, 80)) for _ in range(tasks)],
    }


@given(load=overloads())
def test_probes_pay_for_what_they_take_from_others(load):
    """Between two, 30 times the first's time passes, where a third task's frames begin then."""
    names = "abcd"[: len(load["deadlines"])]
    engine = Engine(load["workers"], helpers=load["helpers"])
    arrivals = []
    for name, deadline, seed, period in zip(
        names, load["deadlines"], load["seeds"], load["periods"], strict=True
    ):
        engine.add_task(make_task(name, deadline, period))
        engine.seed_budgets(name, "full@null", [(seed,)])
        arrivals += [(frame * period, name) for frame in range(6000 // period)]
    times = load["times"]
    records = drive(engine, sorted(arrivals), lambda job: times[job.sequence % len(times)])
    probes = [r for r in records if r.admission is Admission.PROBE and r.stages]
    probes.sort(key=lambda record: record.start_ns)
    for before, after in pairwise(probes):
        pause = PROBE_INTERVAL * before.stages[0].execution_time_ns // load["workers"]
        since = before.start_ns - pause
        wanted = [
            r
            for r in records
            if r.start_ns is not None
            and r.admission is not Admission.PROBE
            and r.task != after.task
            and since < r.start_ns < after.release_ns
        ]
        if wanted:
            assert after.release_ns >= before.completion_ns + pause
