# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measured times through the simulator: what changes, and what must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traced_jobs import METADATA, make_record

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.simulated import WhatIf, change, read_recorded, simulate_recorded
from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import TracedTask
from jetson_dnn_rt.traces.writer import TraceWriter

MS = 1_000_000
OTHER = "tucker-0.50@null"
PERIOD_NS = 33 * MS
UNCHANGED = WhatIf()


def write(folder, records, *, mode="realtime", stamps_ns=None, warm_up=0):
    """A trace; of sequential evaluations with the stamps of the frames."""
    tasks = {
        name: TracedTask("drive#/image_raw", stages=("a", "b"))
        for name in dict.fromkeys(record.task for record in records)
    }
    metadata = replace(METADATA, tasks=tasks, parameters={"mode": mode, "workers": 1})
    with TraceWriter(folder, metadata) as writer:
        for place, record in enumerate(records):
            stamp_ns = None if stamps_ns is None else stamps_ns[place]
            writer.write(record, stamp_ns, warm_up=place < warm_up, wait=True)
    return open_trace(folder)


def steady(count=40, **given):
    """Frames every 33 ms that take 5 ms each, but every tenth 15 ms."""
    return [
        make_record(n, stages_ns=(2 * MS, 13 * MS if n % 10 == 9 else 3 * MS), **given)
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return read_recorded([write(tmp_path_factory.mktemp("played"), steady())])


def run(tasks, what_if=UNCHANGED):
    records: list[JobRecord] = []
    simulate_recorded(tasks, what_if, records.append)
    return {(record.task, record.sequence): record for record in records}


def test_unchanged_it_is_as_it_was(played):
    records = run(played)
    assert len(records) == 40
    assert all(record.outcome is Outcome.MET for record in records.values())
    assert records["detector", 9].execution_time_ns == 15 * MS
    assert records["detector", 8].execution_time_ns == 5 * MS


def test_another_deadline(played):
    """Of 12 ms: those of 15 ms cannot make it, the others can."""
    records = run(played, WhatIf(deadlines_ns={"detector": 12 * MS}))
    missed = [n for (_, n), record in records.items() if record.outcome is not Outcome.MET]
    assert {9, 19, 29, 39} <= set(missed)
    assert all(r.absolute_deadline_ns - r.release_ns == 12 * MS for r in records.values())


def test_another_rate(played):
    fast = run(played, WhatIf(rate_hz=250.0, deadlines_ns={"detector": 100 * MS}))
    for records, period_ns in ((fast, 4 * MS), (run(played, WhatIf(speed=2.0)), PERIOD_NS // 2)):
        releases = [records["detector", n].release_ns for n in range(40)]
        assert np.diff(releases).tolist() == [period_ns] * 39
    assert any(record.outcome is Outcome.SUPERSEDED for record in fast.values())


def test_another_cohort(played):
    crowd = change(played, WhatIf(cohort=("detector",) * 3))
    assert [task.name for task in crowd] == ["detector", "detector-2", "detector-3"]
    records = run(played, WhatIf(cohort=("detector",) * 8))
    assert len(records) == 8 * 40
    assert any(record.outcome is not Outcome.MET for record in records.values())
    side_by_side = run(played, WhatIf(cohort=("detector",) * 8, workers=8))
    assert all(record.outcome is Outcome.MET for record in side_by_side.values())


def test_another_policy(tmp_path):
    slow, fast = {"stages_ns": (10 * MS, 10 * MS)}, {"stages_ns": (MS, MS), "variant": OTHER}
    records = [
        make_record(n, deadline_ns=25 * MS, **given)
        for first, given in enumerate((slow, fast))
        for n in range(first, 40, 2)
    ]
    tasks = read_recorded([write(tmp_path, records)])
    what_if = WhatIf(deadlines_ns={"detector": 12 * MS}, variants={"detector": "full@null"})
    static = run(tasks, what_if)
    assert not any(record.outcome is Outcome.MET for record in static.values())
    best = run(tasks, replace(what_if, policy="neuos_max_accuracy"))
    assert all(record.outcome is Outcome.MET for record in best.values())
    assert all(OTHER in record.variant for record in best.values())


def test_first_budgets_are_those_of_the_warm_up(tmp_path):
    """A job of 5 ms has no chance against a budget of 50; from the first frames alone it has."""
    tasks = read_recorded([write(tmp_path, steady(9))])
    runs = {"full@null": [(20 * MS, 30 * MS)] * 20}
    records = run([replace(tasks[0], warm_up_ns=runs)])
    assert {record.outcome for record in records.values()} == {Outcome.SKIPPED}
    assert {record.outcome for record in run(tasks).values()} == {Outcome.MET}


def test_blocks_are_drawn_by_seed(played):
    what_if = WhatIf(seeds=3, block_ms=100.0)
    runs: list[list[JobRecord]] = [[], []]
    for records in runs:
        assert len(simulate_recorded(played, what_if, records.append)) == 3
    assert runs[0] == runs[1]
    times = np.reshape([record.execution_time_ns for record in runs[0]], (3, 40))
    assert len(set(times.sum(axis=1))) > 1


# -- sequential traces ---------------------------------------------------------------------------


def sequential(count=12, repeats=1):
    """Two variants of each frame, one after the other, as fast as they can: nothing waits."""
    records, now_ns = [], 0
    for sequence in list(range(count)) * repeats:
        for variant, stages_ns in (("full@null", (2 * MS, 6 * MS)), (OTHER, (MS, MS))):
            record = make_record(sequence, variant=variant, stages_ns=stages_ns, release_ns=now_ns)
            records.append(record)
            now_ns = record.completion_ns
    return records


def test_times_of_a_sequential_trace_come_at_the_recorded_times(tmp_path):
    trace = write(tmp_path, sequential(), mode="sequential", stamps_ns=[0] * 24)
    logged = np.arange(12) * 40 * MS + 7
    (task,) = read_recorded([trace], {"drive#/image_raw": logged})
    assert task.releases_ns.tolist() == (logged - 7).tolist()
    assert task.period_ns == 40 * MS
    assert task.variants == ("full@null", OTHER)
    assert task.base_ns.tolist() == [[2e6, 6e6], [1e6, 1e6]]
    assert not task.overhead_ns.any()
    records = run([task])
    assert [record.execution_time_ns for record in records.values()] == [8 * MS] * 12
    light = run([task], WhatIf(variants={"detector": OTHER}))
    assert [record.execution_time_ns for record in light.values()] == [2 * MS] * 12


def test_without_the_bag_the_stamps_say_when_and_nothing_comes_twice(tmp_path):
    records = [*sequential(2), *sequential(12, repeats=2)]
    stamps_ns = [record.sequence * 50 * MS for record in records]
    trace = write(tmp_path, records, mode="sequential", stamps_ns=stamps_ns, warm_up=4)
    (task,) = read_recorded([trace])
    assert len(task.sequences) == 12
    assert np.diff(task.releases_ns).tolist() == [50 * MS] * 11


def test_unusable_input_is_named(tmp_path, played):
    trace, empty = write(tmp_path / "one", steady(1)), write(tmp_path / "none", [])
    alone = write(tmp_path / "two", sequential(), mode="sequential")
    for traces, words in (
        ([trace, alone], "cannot be mixed"),
        ([alone], "give the bag"),
        ([empty], "holds no job"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            read_recorded(traces)
    for what_if, words in (
        (WhatIf(cohort=("lidar",)), "cohort: task 'lidar' was not recorded, but detector"),
        (WhatIf(deadlines_ns={"lidar": MS}), "deadline: task 'lidar'"),
        (WhatIf(variants={"detector": OTHER}), "was not recorded in"),
        (WhatIf(policy="luck"), "policy must be one of"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            simulate_recorded(played, what_if, lambda record: None)
