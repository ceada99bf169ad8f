# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measured times through the simulator: what changes, and what must not."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from traced_jobs import METADATA, make_record
from virtual_drive import drive, make_task

from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.simulated import WhatIf, change, read_recorded, simulate_recorded
from jetson_dnn_rt.lab.simulate.sharing import Sharing
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import SHARING, TracedTask
from jetson_dnn_rt.traces.writer import TraceWriter

MS = 1_000_000
OTHER = "tucker-0.50@null"
PERIOD_NS = 33 * MS
UNCHANGED = WhatIf()


def write(folder, records, *, mode="realtime", stamps_ns=None, warm_up=0, parameters=None):
    """A trace; of sequential evaluations with the stamps of the frames."""
    tasks = {
        name: TracedTask("drive#/image_raw", stages=("a", "b"))
        for name in dict.fromkeys(record.task for record in records)
    }
    parameters = {"mode": mode, "workers": 1, **(parameters or {})}
    metadata = replace(METADATA, tasks=tasks, parameters=parameters)
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
    """A job of 5 ms has no chance against a budget of 50; the second one shows that as a probe."""
    tasks = read_recorded([write(tmp_path, steady(9))])
    runs = {"full@null": [(20 * MS, 30 * MS)] * 20}
    records = run([replace(tasks[0], warm_up_ns=runs)])
    outcomes = [records[key].outcome for key in sorted(records)]
    assert outcomes == [Outcome.SKIPPED, *[Outcome.MET] * 8]
    assert {record.outcome for record in run(tasks).values()} == {Outcome.MET}


def test_blocks_are_drawn_by_seed(played):
    what_if = WhatIf(seeds=3, block_ms=100.0)
    runs: list[list[JobRecord]] = [[], []]
    for records in runs:
        assert len(simulate_recorded(played, what_if, records.append)) == 3
    assert runs[0] == runs[1]
    times = np.reshape([record.execution_time_ns for record in runs[0]], (3, 40))
    assert len(set(times.sum(axis=1))) > 1


# -- helpers, and narrow networks ----------------------------------------------------------------

STAGES = ("preprocess", "inference", "decode")
NARROW = 1.5
ONE_HELPER = WhatIf(helpers=1)

CPU, GPU = "full@onnxruntime-fp32", "full@tensorrt-fp16"
WARM_UP_NS = [(MS, 10 * MS, 2 * MS)]


def drive_narrow(every_us, variant=CPU, late_ns=0):
    """Two tasks whose networks run narrow where more frames come than wide ones can do.

    A worker begins `late_ns` after it could: if little, nothing else happens meanwhile, since the
    recording tells the time only from then on.
    """
    engine = Engine(helpers=1)
    runs = [Run(), Run(device="cuda" if variant == GPU else "cpu"), Run()]
    for name in "ab":
        given = {"stages": STAGES, "variants": (variant,), "variant": variant}
        state = engine.add_task(make_task(name, 70 * MS, **given), {variant: runs})
        engine.seed_budgets(name, variant, WARM_UP_NS)
        state.set_narrow([NARROW] if variant == CPU else [])

    def run_ns(job):
        chance = random.Random(f"{job.task}{job.sequence}{job.next_stage}")
        time_ns = WARM_UP_NS[0][job.next_stage] + chance.randrange(MS)
        narrow = job.work.narrow and job.next_stage == 1
        return round(time_ns * NARROW) if narrow else time_ns

    # Not at once: the engine decides after each release, the simulator after those of an instant.
    arrivals = [
        (n * every_us * 1000 + place, name) for n in range(60) for place, name in enumerate("ab")
    ]
    return drive(engine, arrivals, run_ns, wake_ns=late_ns, overhead_ns=late_ns)


def write_narrow(folder, records, variant=CPU):
    given = {"helpers": 1, "warm_up_ns": {name: {variant: WARM_UP_NS} for name in "ab"}}
    if variant == CPU:
        given["narrow_slowdowns"] = {name: [NARROW] for name in "ab"}
    return read_recorded([write(folder, records, parameters=given)])


def since_the_first(records):
    """What happened to each frame, and when."""
    origin_ns = min(record.release_ns for record in records)
    found = {}
    for record in records:
        stages = [
            (s.name, s.start_ns - origin_ns, s.end_ns - origin_ns, s.narrow) for s in record.stages
        ]
        ended_ns = record.completion_ns - origin_ns
        found[record.task, record.sequence] = record.outcome, record.reason, ended_ns, stages
    return found


@pytest.mark.parametrize("late_ns", [0, 1000])
@pytest.mark.parametrize("variant", [CPU, GPU])
@pytest.mark.parametrize("every_us", [8_000, 11_000, 14_000, 40_000])
def test_a_run_with_helpers_comes_out_as_it_was(tmp_path, every_us, variant, late_ns):
    """To the nanosecond: what was skipped, prepared beside others, narrow or wide."""
    recorded = drive_narrow(every_us, variant, late_ns)
    assert any(record.narrow for record in recorded) == (every_us < 40_000 and variant == CPU)
    again = run(write_narrow(tmp_path, recorded, variant), ONE_HELPER)
    assert since_the_first(again.values()) == since_the_first(recorded)


def test_without_helpers_nothing_is_narrow(tmp_path):
    tasks = write_narrow(tmp_path, drive_narrow(11_000))
    alone, beside = (run(tasks, WhatIf(helpers=helpers)).values() for helpers in (0, 1))
    assert not any(record.narrow for record in alone)
    met = [sum(r.outcome is Outcome.MET for r in records) for records in (alone, beside)]
    assert met[0] < met[1]


def test_a_higher_rate_makes_them_narrow_by_what_was_measured_before(tmp_path):
    recorded = drive_narrow(40_000)
    assert not any(record.narrow for record in recorded)
    a, b = write_narrow(tmp_path, recorded)
    assert a.narrow[0].tolist() == [NARROW] * 3
    records = run([a, b], WhatIf(helpers=1, rate_hz=90.0)).values()
    narrow = [s for record in records for s in record.stages if s.narrow]
    assert len(narrow) > 40
    assert {stage.name for stage in narrow} == {"inference"}
    assert all(15 * MS <= stage.execution_time_ns < 16.5 * MS for stage in narrow)


def test_wide_times_that_are_not_recorded_follow_from_narrow_ones(tmp_path):
    """As long as it is known how many times as long these take."""
    records = [
        replace(record, stages=(record.stages[0], replace(record.stages[1], narrow=True)))
        for record in steady(12)
    ]
    given = {"helpers": 1, "narrow_slowdowns": {"detector": [2.0]}}
    (task,) = read_recorded([write(tmp_path / "known", records, parameters=given)])
    assert task.base_ns.tolist() == [[2 * MS, 1.5 * MS]]
    with pytest.raises(ConfigurationError, match="stage 2 ran only narrow"):
        read_recorded([write(tmp_path / "unknown", records, parameters={"helpers": 1})])


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"perception": {"threads": "auto"}}, "detector"),
        ({"detector": {"threads": "auto"}}, "detector"),
        ({"perception": {"threads": "auto"}, "detector": {"threads": 2}}, ""),
        ({"perception": {"threads": 2}}, ""),
        ({"perception": {"threads": "auto"}, "narrow_slowdowns": {"detector": [1.6]}}, ""),
        # None is faster so: all of them run wide there, too.
        ({"perception": {"threads": "auto"}, "narrow_slowdowns": {}}, ""),
        ({SHARING: {"helpers": 1, "threads": "auto"}}, "detector"),
        ({SHARING: {"helpers": 1, "threads": "auto"}, "detector": {"threads": 2}}, ""),
        ({SHARING: {"helpers": 1, "threads": "auto"}, "detector": 3}, "detector"),
        ({SHARING: {"helpers": 1, "threads": 2}}, ""),
        ({SHARING: {"helpers": 1, "threads": "auto", "narrow_slowdowns": {}}}, ""),
    ],
)
def test_what_cannot_be_narrow_here_is_said(tmp_path, capsys, caplog, parameters, named):
    write(tmp_path, steady(), parameters={"helpers": 1, **parameters})
    assert main(["evaluate", "--mode", "simulated", "--trace", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["helpers"] == 1
    measured = parameters.get("narrow_slowdowns")
    assert result["narrow"] == (["detector"] if measured else [])
    said = "narrow networks of detector are not modelled" in caplog.text
    assert said == bool(named)


@pytest.mark.parametrize("measured", [None, {"a": [NARROW], "b": []}])
def test_a_what_if_tells_what_another_one_needs(tmp_path, measured):
    """A trace of a simulated evaluation is one of a run: its copies of a task are tasks."""
    sharing = {"workers": 1, "helpers": 1, "threads": "auto"}
    if measured is not None:
        sharing["narrow_slowdowns"] = measured
    write(tmp_path / "run", drive_narrow(40_000), parameters={SHARING: sharing})
    command = ["evaluate", "--mode", "simulated", "--trace", str(tmp_path / "run")]
    output = tmp_path / "out"
    assert main([*command, "--cohort", "a,a,b", "--workers", "2", "--output", str(output)]) == 0
    told = Sharing.of(open_trace(output).metadata)
    slowdowns = None if measured is None else {"a": (NARROW,), "a-2": (NARROW,), "b": ()}
    assert told == Sharing(2, 1, "auto", slowdowns)


def test_a_number_of_helpers_that_is_not_told_is_said(tmp_path, caplog):
    write(tmp_path, steady())
    command = ["evaluate", "--mode", "simulated", "--trace", str(tmp_path)]
    assert main([*command, "--helpers", "1"]) == 0
    assert "helpers" not in caplog.text
    assert main(command) == 0
    assert "does not tell its number of helpers: taken as 0; fix: --helpers" in caplog.text


# -- times of sequential evaluations -------------------------------------------------------------


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
