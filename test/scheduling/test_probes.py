# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Probes measure anew, and take a small share of the machine however many tasks starve."""

from virtual_drive import drive, make_task

from jetson_dnn_rt.scheduling.admission import PROBE_INTERVAL
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.tasks import Admission, Outcome

COST, PERIOD, DEADLINE = 1000, 3300, 1500
FRAMES = 100


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
    first = PROBE_INTERVAL - 1
    assert {record.outcome for record in mine[:first]} == {Outcome.SKIPPED}
    assert mine[first].admission is Admission.PROBE
    assert {record.outcome for record in mine[first:]} == {Outcome.MET}


def test_all_tasks_probe_without_delay_where_nothing_else_runs():
    """After a hiccup every budget is wrong: each task has its probe, one after the other."""
    engine = make_engine(dict.fromkeys("abc", 50), 20, 100)
    frames = range(PROBE_INTERVAL)
    arrivals = [(frame * 100 + 30 * i, name) for frame in frames for i, name in enumerate("abc")]
    records = drive(engine, arrivals, lambda job: 19)
    probes = [(r.task, r.sequence) for r in records if r.admission is Admission.PROBE]
    assert probes == [(name, PROBE_INTERVAL - 1) for name in "abc"]


def test_one_probe_at_a_time():
    """Those of two tasks that are due together: the second waits until the first's is over, and
    then until it has paid for what it took.
    """
    budgets = {"a": 50, "b": 50, "x": 5}
    engine = make_engine(budgets, 20, 100)
    arrivals = [(frame * 100, name) for frame in range(2 * PROBE_INTERVAL) for name in "abx"]
    records = drive(engine, arrivals, lambda job: budgets[job.task])
    first, second, *_ = (r for r in records if r.admission is Admission.PROBE)
    assert (first.task, first.sequence, second.task) == ("a", PROBE_INTERVAL - 1, "b")
    # The first release that is not before the limit.
    assert second.sequence == -(-(first.completion_ns + PROBE_INTERVAL * 50) // 100)
