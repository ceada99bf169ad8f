# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Forecasts of task sets that can be solved by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing import forecast as module
from jetson_dnn_rt.runtime.sharing.forecast import FRAMES, Forecast, TrialTask, forecast

MS = 1_000_000


def task(name, period_ms, deadline_ms, *runs_ms):
    """A task with the times of its stages, run by run."""
    times_ns = [tuple(ms * MS for ms in run) for run in runs_ms]
    frame = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)
    return TrialTask(TaskConfig(name, deadline_ms=deadline_ms), period_ms * MS, frame), times_ns


def foresee(tasks, workers, discipline="edf"):
    times = {task.config.name: times_ns for task, times_ns in tasks}
    return forecast([task for task, _ in tasks], times, workers, discipline)


def test_one_task_alone():
    assert foresee([task("a", 10, 10, (2, 4, 1))], 1) == Forecast(FRAMES, FRAMES, 7.0)
    # Hopeless frames are not begun, but one in thirty, to measure anew: that one is late.
    assert foresee([task("a", 10, 6, (2, 4, 1))], 1) == Forecast(FRAMES, 0, float("inf"))


def test_two_workers_do_what_one_cannot():
    tasks = [task("a", 10, 10, (6,)), task("b", 10, 10, (6,))]
    # The first of two equal deadlines: the other one could end at 12.
    assert foresee(tasks, 1) == Forecast(2 * FRAMES, FRAMES, 6.0)
    assert foresee(tasks, 2) == Forecast(2 * FRAMES, 2 * FRAMES, 6.0)
    # Twice as slow side by side, no worker is better than the other's absence.
    slow = [task("a", 10, 10, (12,)), task("b", 10, 10, (12,))]
    assert foresee(slow, 2).met == 0


def test_the_discipline_is_that_of_the_process():
    tasks = [task("long", 20, 20, (8,)), task("short", 20, 10, (3,))]
    assert foresee(tasks, 1, "edf") == Forecast(2 * FRAMES, 2 * FRAMES, (3 + 11) / 2)
    assert foresee(tasks, 1, "fifo").met == FRAMES


def test_runs_are_taken_in_turn():
    assert foresee([task("a", 10, 10, (4,), (8,))], 1) == Forecast(FRAMES, FRAMES, 6.0)


def test_a_fast_task_gets_the_frames_of_its_rate_within_limits(monkeypatch):
    tasks = [task("slow", 100, 100, (1,)), task("fast", 10, 10, (1,))]
    assert foresee(tasks, 2).released == FRAMES + 10 * FRAMES
    monkeypatch.setattr(module, "MOST_FRAMES", 110)
    assert foresee(tasks, 2).released == 10 + 100


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(5, 50), st.integers(1, 100), st.integers(0, 100)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_with_a_worker_each_what_fits_its_period_is_met(drawn, workers):
    tasks = [
        task(f"t{n}", period, period, (first * period // 300, second * period // 300))
        for n, (period, first, second) in enumerate(drawn)
    ]
    result = foresee(tasks, len(tasks))
    assert result.met == result.released
    fewer = foresee(tasks, workers)
    assert fewer.released == result.released
    assert 0 <= fewer.met <= fewer.released
