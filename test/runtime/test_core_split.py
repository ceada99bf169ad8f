# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How cores are shared, and how networks are timed side by side."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing import core_split
from jetson_dnn_rt.runtime.sharing.core_split import (
    COLD_RUNS,
    LEAST_RUNS,
    RUNS,
    NarrowTimes,
    measure_narrow,
    measure_slowdown,
    run_side_by_side,
    share_cores,
)
from jetson_dnn_rt.tasks import Stage

MS = 1_000_000
FRAME = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)


@pytest.mark.parametrize(
    ("cores", "tasks", "split"),
    [
        (1, 4, "1 x 1"),
        (2, 1, "1 x 2"),
        (2, 2, "1 x 2 or 2 x 1"),
        (4, 2, "1 x 4 or 2 x 2"),
        (4, 3, "1 x 4 or 3 x 1"),
        (12, 8, "1 x 12 or 8 x 1"),
        (7, 2, "1 x 7 or 2 x 3"),
    ],
)
def test_all_cores_for_one_network_or_for_one_of_each_task(cores, tasks, split):
    assert str(share_cores(cores, tasks)) == split


@pytest.mark.parametrize(("cores", "tasks"), [(0, 1), (1, 0)])
def test_there_is_a_core_and_a_task(cores, tasks):
    with pytest.raises(ValueError, match="cores and tasks must be >= 1"):
        share_cores(cores, tasks)


# -- running side by side ----------------------------------------------------------------------


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
    """Stands for `run_side_by_side`: times of a network in ms by workers, and those narrow."""

    def __init__(self, monkeypatch, times_ms, narrow_ms=0.0):
        self.times_ms, self.narrow_ms = times_ms, narrow_ms
        self.events: list[str] = []
        monkeypatch.setattr(core_split, "run_side_by_side", self.run)

    def run(self, pipelines, frames, workers, clock, *, narrow=False):
        self.events.append(f"{' '.join(pipelines)} on {workers}" + ", narrow" * narrow)
        time_ns = int((self.narrow_ms if narrow else self.times_ms[workers]) * MS)
        return {task: [(MS, time_ns, MS)] * 3 for task in pipelines}


def make_task(**values):
    stages = [Stage(name, str) for name in ("preprocess", "inference", "decode")]
    given = {
        "is_scripted": False,
        "is_narrow": True,
        "has_one_core": False,
        "default": "full",
        "frame": FRAME,
    }
    return SimpleNamespace(**{**given, "stages": {"full": stages}, **values})


def test_slow_down_is_over_one_worker_and_never_a_gain(monkeypatch):
    Script(monkeypatch, {1: 8.0, 2: 13.0, 3: 7.0})
    found = measure_slowdown(dict.fromkeys("abc", make_task()), 3, HandClock(), str)
    assert found == {1: 1.0, 2: 1.5, 3: 1.0}


def test_narrow_networks_are_timed_beside_each_other_against_wide_ones_alone(monkeypatch):
    script, said = Script(monkeypatch, {1: 10.0}, 16.0), list[str]()
    tasks = {"a": make_task(), "b": make_task(), "scripted": make_task(is_narrow=False)}
    split = share_cores(4, 3)
    # Of three that were planned two can be narrow; what is before and after a network is not it.
    found = measure_narrow(tasks, split, HandClock(), said.append)
    assert found.slowdowns == {"a": [1.6] * 3, "b": [1.6] * 3}
    assert found.beside == {"a": [(MS, 16 * MS, MS)] * 3, "b": [(MS, 16 * MS, MS)] * 3}
    assert found.can_choose
    assert script.events == ["a b on 1", "a b on 2, narrow"]
    assert "2 x 1 (workers x threads) takes a network longer than 1 x 4" in said[0]
    assert "by the factor a 1.60, b 1.60" in said[0]


def test_a_split_has_the_slow_downs_of_what_it_lets_run_narrow():
    times = NarrowTimes({"a": [1.6], "b": [1.0]}, frozenset("b"))
    split = share_cores(2, 2)
    assert times.of_split(split) == {"a": [1.6], "b": [1.0]}
    # One core is one core: it leaves the other to others.
    assert times.of_split(split.wide) == {"b": [1.0]}
    assert times.of_split(split.narrow) == {}
    assert [str(one) for one in (split.wide, split.narrow)] == ["1 x 2", "2 x 1"]


def test_a_network_that_has_one_core_takes_no_longer(monkeypatch):
    """Others are timed beside it."""
    single = {"is_narrow": False, "has_one_core": True}
    tasks = {"a": make_task(), "b": make_task(**single)}
    script = Script(monkeypatch, {1: 10.0}, 16.0)
    found = measure_narrow(tasks, share_cores(2, 2), HandClock(), str)
    assert (found.slowdowns, found.alike) == ({"a": [1.6] * 3, "b": [1.0]}, {"b"})
    assert found.can_choose
    assert script.events == ["a b on 1", "a b on 2, narrow"]
    script = Script(monkeypatch, {})
    tasks = dict.fromkeys("ab", make_task(**single))
    alike = measure_narrow(tasks, share_cores(2, 2), HandClock(), str)
    assert alike.slowdowns == {"a": [1.0], "b": [1.0]}
    assert not alike.can_choose
    assert script.events == []


def test_one_task_alone_is_not_timed(monkeypatch):
    script = Script(monkeypatch, {})
    found = measure_narrow({"a": make_task()}, share_cores(2, 2), HandClock(), pytest.fail)
    assert found == NarrowTimes()
    assert script.events == []
