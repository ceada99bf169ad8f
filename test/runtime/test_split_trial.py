# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Rounds of a split: the real executor on a virtual clock, so that shares come out exactly."""

from __future__ import annotations

import threading
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing.core_split import NarrowTimes, share_cores
from jetson_dnn_rt.runtime.sharing.split_choice import ImplausibleError, choose
from jetson_dnn_rt.runtime.sharing.split_trial import SplitTrial, plan_arrivals
from jetson_dnn_rt.tasks import Stage

MS = 1_000_000
PLANNED = share_cores(2, 2)
WIDE, NARROW = PLANNED.wide, PLANNED.narrow


class ScriptedTask:
    """Two milliseconds around a network that takes `wide_ms`, or `narrow_ms` beside others."""

    def __init__(self, name, clock, wide_ms, narrow_ms, fails_at=()):
        self.name, self.config, self.default = name, TaskConfig(name), "full@null-fp32"
        self._clock, self._fails_at, self.count = clock, fails_at, 0
        self.frame = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)
        self.stage_names = ("preprocess", "inference", "decode")
        self.times_ms = {False: wide_ms, True: narrow_ms}
        self.runs_narrow = False
        self.variants = SimpleNamespace(run_narrow=self._run_narrow)
        self.warm_up_times_ns = {self.default: [(MS, wide_ms * MS, MS)] * 3}
        self.cancel_latencies_ns: dict[str, list[int]] = {}
        around = [Stage(word, lambda work: self._sleep(1)) for word in ("preprocess", "decode")]
        self.stages = {self.default: (around[0], Stage("inference", self._infer), around[1])}

    def _run_narrow(self, wanted):
        self.runs_narrow = wanted

    def _sleep(self, time_ms):
        self._clock.sleep_until_ns(self._clock.now_ns() + time_ms * MS)

    def _infer(self, work):
        self.count += 1
        if self.count in self._fails_at:
            raise RuntimeError("no memory left")
        self._sleep(self.times_ms[work.narrow or self.runs_narrow])


def play(clock, trial, *splits):
    """Play on a participant of the clock, as a process does; returns the shares, or the error."""
    found: list[object] = []

    def run():
        try:
            for split in splits:
                found.append(trial.play(split))
        except ImplausibleError as error:
            found.append(error)
        finally:
            clock.leave()

    return found, run


def run_on(clock, run, seconds):
    clock.participate()
    thread = threading.Thread(target=run)
    thread.start()
    clock.run_until(clock.now_ns() + int(seconds * 1e9))
    thread.join(20.0)
    assert not thread.is_alive()


def open_trial(clock, tasks, period_ms, deadline_ms, periods=4):
    times = NarrowTimes(
        {task.name: [task.times_ms[True] / task.times_ms[False]] for task in tasks},
        beside={task.name: [(MS, task.times_ms[True] * MS, MS)] * 3 for task in tasks},
    )
    named = {task.name: task for task in tasks}
    return SplitTrial(
        named,
        times,
        ProcessConfig(gc_freeze=False),
        dict.fromkeys((WIDE, PLANNED, NARROW), 1),
        clock,
        dict.fromkeys(named, period_ms * MS),
        dict.fromkeys(named, deadline_ms * MS),
        periods,
    )


def test_the_shares_are_those_of_the_deadlines():
    # One after the other the second ends after 22 ms or later; side by side both after 18.
    clock = VirtualClock()
    tasks = [ScriptedTask(name, clock, 10, 16) for name in "ab"]
    with closing(open_trial(clock, tasks, 30, 20)) as trial:
        found, run = play(clock, trial, WIDE, NARROW, WIDE)
        run_on(clock, run, 5)
        assert found == [0.5, 1.0, 0.5]
        assert tasks[0].runs_narrow is False
    # With 17 ms only one of them is in time, and it is not narrow.
    tasks = [ScriptedTask(name, clock, 10, 16) for name in "ab"]
    with closing(open_trial(clock, tasks, 30, 17)) as trial:
        found, run = play(clock, trial, WIDE, NARROW)
        run_on(clock, run, 5)
        assert found == [0.5, 0.0]


def test_the_first_round_of_a_split_does_not_count():
    clock = VirtualClock()
    tasks = [ScriptedTask(name, clock, 10, 16) for name in "ab"]
    with closing(open_trial(clock, tasks, 30, 40, periods=3)) as trial:
        found, run = play(clock, trial, WIDE)
        run_on(clock, run, 5)
    assert found == [1.0]
    assert [task.count for task in tasks] == [6, 6]


def test_a_choice_on_the_executor_is_exact():
    clock = VirtualClock()
    tasks = [ScriptedTask(name, clock, 10, 16) for name in "ab"]
    trial = open_trial(clock, tasks, 30, 20)
    found = []

    def run():
        try:
            found.append(choose([WIDE, NARROW], trial.play, clock, 60_000 * MS))
        finally:
            clock.leave()

    with closing(trial):
        run_on(clock, run, 61)
    (choice,) = found
    (one,) = choice.comparisons
    assert (choice.split, one.is_better, one.rounds) == (NARROW, True, 12)
    assert (one.kept_met, one.rival_met) == (0.5, 1.0)


def test_frames_that_fail_make_a_round_implausible():
    clock = VirtualClock()
    tasks = [ScriptedTask("a", clock, 2, 3, fails_at={6}), ScriptedTask("b", clock, 2, 3)]
    with closing(open_trial(clock, tasks, 30, 20)) as trial:
        found, run = play(clock, trial, WIDE)
        run_on(clock, run, 5)
    (error,) = found
    assert str(error) == "with 1 x 2 1 of 8 frames failed, 0 were lost"


def test_a_closed_trial_leaves_tasks_as_they_were():
    clock = VirtualClock()
    tasks = [ScriptedTask(name, clock, 10, 16) for name in "ab"]
    trial = open_trial(clock, tasks, 30, 20)
    _, run = play(clock, trial, NARROW)
    run_on(clock, run, 5)
    assert tasks[0].runs_narrow
    trial.close()
    assert not any(task.runs_narrow for task in tasks)
    assert not any(thread.name.startswith("rt-worker-") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("periods_ns", "periods", "plan"),
    [
        ({"a": 10, "b": 10}, 2, [(0, ["a", "b"]), (10, ["a", "b"])]),
        ({"b": 10, "a": 5}, 1, [(0, ["a", "b"]), (5, ["a"])]),
        ({"a": 10, "b": 4}, 1, [(0, ["a", "b"]), (4, ["b"]), (8, ["b"])]),
    ],
)
def test_frames_of_all_tasks_begin_together_and_come_at_their_rates(periods_ns, periods, plan):
    assert list(plan_arrivals(periods_ns, periods)) == plan
