# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which splits of the cores are tried, how a trial runs, and which split is taken."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing import core_split
from jetson_dnn_rt.runtime.sharing.core_split import (
    COLD_RUNS,
    LEAST_RUNS,
    RUNS,
    CoreSplit,
    SplitFigures,
    choose_split,
    describe_splits,
    judge_trial,
    list_splits,
    measure_slowdown,
    run_side_by_side,
    share_cores,
)
from jetson_dnn_rt.runtime.sharing.forecast import Forecast, TrialTask
from jetson_dnn_rt.tasks import Stage

MS = 1_000_000
FRAME = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)


def figures(workers, threads, met=100, capacity_hz=50.0, response_ms=20.0):
    return SplitFigures(
        CoreSplit(workers, threads), {"a": 8.0}, capacity_hz, Forecast(100, met, response_ms)
    )


@pytest.mark.parametrize(
    ("cores", "tasks", "splits"),
    [
        (1, 4, "1 x 1"),
        (2, 2, "1 x 2, 2 x 1"),
        (2, 1, "1 x 2"),
        (4, 2, "1 x 4, 2 x 2"),
        # Four threads' worth of cores for three tasks: three workers, a core each.
        (4, 3, "1 x 4, 2 x 2, 3 x 1"),
        (6, 8, "1 x 6, 2 x 3, 3 x 2, 6 x 1"),
        (12, 8, "1 x 12, 2 x 6, 3 x 4, 4 x 3, 6 x 2, 8 x 1"),
        (7, 2, "1 x 7, 2 x 1"),
    ],
)
def test_splits_are_the_divisors_as_far_as_there_are_tasks(cores, tasks, splits):
    assert ", ".join(map(str, list_splits(cores, tasks))) == splits


@pytest.mark.parametrize(("cores", "tasks"), [(0, 1), (1, 0)])
def test_there_is_a_core_and_a_task(cores, tasks):
    with pytest.raises(ValueError, match="cores and tasks must be >= 1"):
        list_splits(cores, tasks)


def test_met_frames_go_before_capacity_and_capacity_before_response():
    one, two, four = figures(1, 4), figures(2, 2), figures(4, 1)
    # All the same: the fewest workers.
    assert choose_split([one, two, four]) is one
    fast = figures(2, 2, response_ms=10.0)
    assert choose_split([one, fast, four]) is fast
    # A few per cent of capacity are noise, more are not.
    assert choose_split([one, fast, figures(4, 1, capacity_hz=52.0)]) is fast
    wide = figures(4, 1, capacity_hz=60.0)
    assert choose_split([one, fast, wide]) is wide
    # Nothing is worth a missed deadline.
    assert choose_split(
        [figures(1, 4, met=90), fast, figures(4, 1, met=95, capacity_hz=90.0)]
    ) is (fast)


def test_the_table_marks_what_is_taken():
    lines = describe_splits([figures(1, 2, met=98), figures(2, 1)])
    assert lines == [
        "   1 x 2: 98.0 % of the frames met, 50.0 frames/s, response 20.0 ms; a 8.0 ms",
        "-> 2 x 1: 100.0 % of the frames met, 50.0 frames/s, response 20.0 ms; a 8.0 ms",
    ]


# -- the trial ---------------------------------------------------------------------------------


class HandClock(SteadyClock):
    """Moves when a stage moves it."""

    def __init__(self):
        self.time_ns = 0

    def now_ns(self):
        return self.time_ns

    def stage(self, name, *times_ms):
        left = list(times_ms)

        def run(work):
            self.time_ns += (left.pop(0) if len(left) > 1 else left[0]) * MS

        return Stage(name, run)


def test_one_worker_takes_the_tasks_in_turn_and_cold_runs_do_not_count():
    clock = HandClock()
    pipelines = {
        "a": [clock.stage("first", 90, 90, 2), clock.stage("last", 1)],
        "b": [clock.stage("only", 90, 90, 5)],
    }
    times = run_side_by_side(pipelines, [FRAME, FRAME], 1, clock)
    assert times["a"] == [(2 * MS, 1 * MS)] * len(times["a"])
    assert times["b"] == [(5 * MS,)] * len(times["b"])
    assert {len(runs) for runs in times.values()} <= {RUNS, RUNS + 1}
    tasks = [TrialTask(TaskConfig(name), 20 * MS, FRAME) for name in times]
    for workers, hz in ((1, 250.0), (2, 500.0)):
        found = judge_trial(CoreSplit(workers, 1), times, tasks, "edf")
        assert (found.capacity_hz, found.frame_ms) == (hz, {"a": 3.0, "b": 5.0})


def test_a_slow_task_ends_the_trial_after_few_runs():
    clock = HandClock()
    times = run_side_by_side({"a": [clock.stage("only", 3000)]}, [FRAME], 1, clock)
    assert times == {"a": [(3000 * MS,)] * LEAST_RUNS}


@pytest.mark.parametrize(("workers", "tasks"), [(2, 2), (2, 3), (3, 3)])
def test_so_many_frames_are_always_at_it_and_no_task_twice(workers, tasks):
    inside: dict[str, int] = {}
    most, wrong = [0], []
    lock = threading.Lock()
    # Nobody gets on before all workers are in a stage.
    together = threading.Barrier(workers, timeout=20.0)

    def make(name):
        calls = [0]

        def run(work):
            with lock:
                inside[name] = inside.get(name, 0) + 1
                most[0] = max(most[0], sum(inside.values()))
                if inside[name] > 1:
                    wrong.append(name)
                calls[0] += 1
            if calls[0] <= COLD_RUNS:
                together.wait()
            with lock:
                inside[name] -= 1

        return Stage("only", run)

    # With tasks in excess the last cold run of one may find the others done.
    if tasks > workers:
        together = threading.Barrier(1)
    names = [f"t{n}" for n in range(tasks)]
    pipelines = {name: [make(name)] for name in names}
    times = run_side_by_side(pipelines, [FRAME] * tasks, workers, SteadyClock())
    assert not wrong
    assert most[0] <= workers
    if tasks == workers:
        assert most[0] == workers
    assert all(len(runs) >= RUNS for runs in times.values())


def test_a_task_that_fails_ends_the_trial_with_its_name():
    def fail(work):
        raise RuntimeError("no memory left")

    clock = HandClock()
    pipelines = {"a": [clock.stage("only", 1)], "b": [Stage("only", fail)]}
    with pytest.raises(ModelError, match="task b fails on its warm-up frame: no memory left"):
        run_side_by_side(pipelines, [FRAME, FRAME], 2, clock)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_have_a_task_each(workers):
    with pytest.raises(ValueError, match=r"workers must be in \[1, 1\]"):
        run_side_by_side({"a": []}, [FRAME], workers, SteadyClock())


class Script:
    """Stands for `Task` and `run_side_by_side`: times in ms by workers and threads."""

    def __init__(self, monkeypatch, times_ms):
        self.times_ms = times_ms
        self.threads = 1
        self.events: list[str] = []
        monkeypatch.setattr(core_split, "Task", self.load)
        monkeypatch.setattr(core_split, "run_side_by_side", self.run)

    def load(self, config, *, threads, **options):
        self.threads = threads
        self.events.append(f"load {config.name} for {threads}")
        close = partial(self.events.append, f"close {config.name}")
        return SimpleNamespace(
            name=config.name, model=None, variant_names=("full",), stages={"full": []}, close=close
        )

    def run(self, pipelines, frames, workers, clock):
        self.events.append(f"run {workers} x {self.threads}")
        time_ns = int(self.times_ms[workers, self.threads] * MS)
        return {task: [(time_ns,)] * 3 for task in pipelines}


def share(cores, period_ms, log):
    tasks = [TrialTask(TaskConfig(name), period_ms * MS, FRAME) for name in ("a", "b")]
    return share_cores(tasks, cores, "edf", HandClock(), log)[0]


def test_the_split_whose_deadlines_hold_is_taken(monkeypatch):
    # Both threads halve a frame: 2 x 1 has no more capacity, but one frame waits for the other.
    script = Script(monkeypatch, {(1, 2): 6.0, (2, 1): 12.0})
    said: list[str] = []
    assert share(2, 20, said.append) == CoreSplit(1, 2)
    assert script.events == [
        "load a for 2", "load b for 2", "run 1 x 2", "close b", "close a",
        "load a for 1", "load b for 1", "run 2 x 1", "close b", "close a",
    ]  # fmt: skip
    first, *table = said[0].splitlines()
    assert first.startswith("threads: auto takes 1 x 2 (workers x threads)")
    assert [line[:9] for line in table] == ["-> 1 x 2:", "   2 x 1:"]
    # Deadlines that only two workers keep.
    script.times_ms = {(1, 2): 9.0, (2, 1): 14.0}
    assert share(2, 16, said.append) == CoreSplit(2, 1)


def test_no_trial_where_there_is_no_choice(monkeypatch):
    script, said = Script(monkeypatch, {}), list[str]()
    assert share(1, 20, said.append) == CoreSplit(1, 1)
    assert script.events == []
    assert said == [
        "threads: auto takes 1 x 1 (workers x threads): 1 core(s) and 2 task(s) leave no choice"
    ]


def test_slow_down_is_over_one_worker_and_never_a_gain(monkeypatch):
    Script(monkeypatch, {(1, 1): 10.0, (2, 1): 15.0, (3, 1): 9.0})
    task = SimpleNamespace(is_scripted=False, default="full", stages={"full": []}, frame=FRAME)
    found = measure_slowdown(dict.fromkeys("abc", task), 3, HandClock(), str)
    assert found == {1: 1.0, 2: 1.5, 3: 1.0}
