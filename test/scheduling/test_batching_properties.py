# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What holds for batches whatever the times are, as long as the budgets hold.

Of frames that are there: one that comes later with a shorter deadline finds the worker busy for
longer than without batches, as it does behind any long stage.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Admission, Outcome

NAMES = "abcdef"


@st.composite
def frames_at_hand(draw):
    """Tasks of a group, others, and one frame for each at time 0."""
    stages = draw(st.integers(1, 4))
    tasks = draw(st.integers(2, 6))
    singles = [draw(st.integers(1, 12)) for _ in range(stages)]
    sizes = draw(st.sets(st.integers(2, tasks), min_size=1))
    return {
        "deadlines": [draw(st.integers(5, 120)) for _ in range(tasks)],
        "grouped": [draw(st.booleans()) for _ in range(tasks)],
        "singles": singles,
        "batches": [draw(st.booleans()) for _ in range(stages)],
        # From hardly more than one alone takes to more than one by one.
        "cost": {size: [draw(st.integers(ns, size * ns + 3)) for ns in singles] for size in sizes},
        "hurry": draw(st.lists(st.integers(0, 100), min_size=1, max_size=12)),
    }


def run(load, *, grouped, at_budget=True, workers=1):
    engine = Engine(workers)
    names = tuple(f"s{index}" for index in range(len(load["singles"])))
    for name, deadline, member in zip(NAMES, load["deadlines"], load["grouped"], strict=False):
        group = "g" if grouped and member else ""
        task = make_task(name, deadline, stages=names, batch_group=group)
        runs = [Run(batches=each) for each in load["batches"]]
        engine.add_task(task, {"full@null": runs})
        engine.seed_budgets(name, "full@null", [tuple(load["singles"])])
        for size, costs in load["cost"].items() if group else ():
            for stage, cost in enumerate(costs):
                if load["batches"][stage]:
                    engine.seed_batch_budgets(name, "full@null", stage, size, [cost])
    hurry = load["hurry"]

    def execution_ns(job):
        size = 1 + len(job.mates)
        times = load["singles"] if size == 1 else load["cost"][size]
        time_ns = times[job.next_stage]
        if at_budget:
            return time_ns
        share = hurry[(job.next_stage + ord(job.task)) % len(hurry)]
        return time_ns * share // 100

    tasks = NAMES[: len(load["deadlines"])]
    # All are released before a worker takes one, as the frames of one instant are.
    for name in tasks:
        engine.release(name, 0, 0, make_work())
    records = drive(engine, [], execution_ns, begin_ns=0)
    assert len(records) == len(tasks)
    return {record.task: record for record in records}


def met(records):
    return {name for name, record in records.items() if record.outcome is Outcome.MET}


@given(load=frames_at_hand())
@settings(max_examples=150)
def test_no_frame_is_lost_by_a_batch(load):
    alone, grouped = (run(load, grouped=batch) for batch in (False, True))
    assert met(alone) <= met(grouped)


@given(load=frames_at_hand())
@settings(max_examples=150)
def test_what_is_admitted_makes_it(load):
    """Also where the stages take less than their budgets, each as it likes."""
    records = run(load, grouped=True, at_budget=False)
    admitted = {n for n, record in records.items() if record.admission is Admission.BUDGET}
    assert admitted <= met(records)


@given(load=frames_at_hand(), workers=st.integers(1, 3))
@settings(max_examples=100)
def test_batches_tell_a_consistent_story(load, workers):
    records = run(load, grouped=True, workers=workers)
    sizes = {}
    for name, record in records.items():
        assert record.overhead_ns >= 0
        for index, stage in enumerate(record.stages):
            if stage.batch > 1:
                assert load["grouped"][NAMES.index(name)]
                assert load["batches"][index]
                assert stage.batch in load["cost"]
                sizes.setdefault((stage.start_ns, stage.end_ns, index, stage.batch), []).append(1)
    # Every batch has as many members as it says, or several that ran at the same times.
    assert all(len(members) % key[3] == 0 for key, members in sizes.items())


def on_one_gpu(seed, workers, *, grouped):
    """Three to six frames at hand; the network, on a GPU, is what takes time."""
    draw = random.Random(seed)
    tasks = draw.randint(3, 6)
    alone = (draw.randint(1, 4), draw.randint(4, 12), draw.randint(1, 3))
    cost = {
        size: int(alone[1] * (1 + (size - 1) * draw.uniform(0.1, 0.7)))
        for size in range(2, tasks + 1)
    }
    engine = Engine(workers, max_inflight={"cuda": 1})
    for name in NAMES[:tasks]:
        task = make_task(
            name,
            draw.randint(10, 90),
            stages=("s0", "s1", "s2"),
            batch_group="g" if draw.random() < 0.8 and grouped else "",
        )
        engine.add_task(task, {"full@null": [Run(), Run(device="cuda", batches=True), Run()]})
        engine.seed_budgets(name, "full@null", [alone])
        for size, time_ns in cost.items() if task.batch_group else ():
            engine.seed_batch_budgets(name, "full@null", 1, size, [time_ns])
    for name in NAMES[:tasks]:
        engine.release(name, 0, 0, make_work())
    records = drive(
        engine,
        [],
        lambda job: cost[1 + len(job.mates)] if job.mates else alone[job.next_stage],
        begin_ns=0,
    )
    return {record.task: record for record in records}


@pytest.mark.parametrize("workers", [2, 3])
def test_no_frame_is_lost_beside_a_device_with_a_limit(workers):
    """Of the same 200 sets each time: with several workers it is no theorem.

    Shorter stages may then lead to later ends (Graham, Bounds on multiprocessing timing
    anomalies, 1969).
    """
    batches = gained = 0
    for seed in range(200):
        alone = on_one_gpu(seed, workers, grouped=False)
        grouped = on_one_gpu(seed, workers, grouped=True)
        assert met(alone) <= met(grouped), seed
        gained += len(met(grouped)) - len(met(alone))
        batches += any(s.batch > 1 for record in grouped.values() for s in record.stages)
    assert batches > 100
    assert gained > 0
