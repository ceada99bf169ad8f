# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The present verdict: learned budgets, present deadlines, measured rates. Virtual time."""

from __future__ import annotations

import pytest
from executor_bench import MS, Bench, parameters

from jetson_dnn_rt.runtime.verdict_watch import PERIOD_NS, VerdictWatch, judge_tasks
from jetson_dnn_rt.scheduling import analysis
from jetson_dnn_rt.scheduling.analysis import TaskDemand, analyse


class Watched:
    """An executor with one task of 10 ms, judged after each second of frames."""

    def __init__(self, deadline_ms=33, warm_up_ms=10):
        self.bench = Bench()
        stage = self.bench.stage("only", 10)
        self.bench.add_stages(
            parameters("a", deadline_ms),
            {"v": [stage]},
            warm_up_times_ns={"v": [(warm_up_ms * MS,)]},
        )
        self.bench.executor.start()
        self.watch = VerdictWatch()
        self.sent = 0

    def judge(self):
        return self.watch.judge(self.bench.executor, self.bench.clock.now_ns())

    def send_for(self, milliseconds, period_ms):
        """Frames at a rate, judged once a second as diagnostics do; returns the last verdict."""
        begin_ms = self.bench.clock.now_ns() // MS
        for at_ms in range(begin_ms, begin_ms + milliseconds, period_ms):
            self.bench.run_to(at_ms)
            if (at_ms - begin_ms) % 1000 < period_ms:
                self.judge()
            self.bench.submit("a", self.sent)
            self.sent += 1
        self.bench.run_to(begin_ms + milliseconds)
        return self.judge()


def test_the_verdict_of_a_busy_start_does_not_stay():
    """D4: warm-up runs that were 10 times as long made a WARN for as long as the process ran."""
    watched = Watched(warm_up_ms=100)
    start = judge_tasks(watched.bench.executor)
    assert (start.schedulable, round(start.utilization, 2)) == (False, 3.03)
    # The warm-up's time leaves the window of the quantile after some frames; probes learn.
    last = watched.send_for(30_000, 40)
    assert last.verdict.schedulable is True
    assert last.verdict.utilization == pytest.approx(10 / 40, rel=0.01)
    watched.bench.finish()


def test_a_deadline_that_was_changed_while_it_runs_is_judged():
    """D4: a deadline of 0.04 ms was not in the verdict."""
    watched = Watched()
    assert watched.send_for(1000, 33).verdict.schedulable is True
    watched.bench.executor.update("a", deadline_ns=40_000)
    watched.bench.run_to(2000)
    present = watched.judge()
    assert present.verdict.schedulable is False
    assert "task a alone needs 10.0 ms" in str(present)
    watched.bench.finish()


def test_the_rate_is_that_of_the_frames_that_come_and_else_said_to_be_assumed():
    """D4: a task that is fed by a topic was taken to have the expected rate."""
    watched = Watched(deadline_ms=33)
    first = watched.judge()
    assert first.assumed == {"a"}
    assert str(first).endswith("frames come at: a 30.3 Hz (assumed)")
    present = watched.send_for(5000, 8)  # 125 Hz of 10 ms each: too much
    assert present.assumed == frozenset()
    assert present.rates_hz["a"] == pytest.approx(125.0, rel=0.01)
    assert present.verdict.schedulable is False
    assert "more work arrives than the workers can do" in str(present)
    # A stream that stopped: what is expected of it counts again.
    watched.bench.run_to(20_000)
    for second in range(12):
        watched.bench.run_to(20_000 + 1000 * second)
        present = watched.judge()
    assert present.assumed == {"a"}
    watched.bench.finish()


def test_frames_before_a_task_was_added_anew_are_not_those_of_its_rate():
    watched = Watched()
    watched.send_for(5000, 10)
    watched.bench.executor.remove_task("a")
    watched.bench.add("a", 33, 10)
    watched.bench.run_to(6000)
    assert watched.judge().assumed == {"a"}
    watched.bench.finish()


def test_it_is_computed_once_a_second_whoever_asks(monkeypatch):
    watched = Watched()
    first = watched.judge()
    watched.bench.clock.run_until(PERIOD_NS - 1)
    assert watched.judge() is first
    watched.bench.clock.run_until(PERIOD_NS)
    assert watched.judge() is not first
    watched.bench.finish()


def test_the_demand_test_is_given_up_before_it_takes_long():
    """Diagnostics are made on the thread that takes images: a set near 1 has many points."""
    tasks = [
        TaskDemand(name, cost_ns, 100_000, 50, deadline_ns, period_ns)
        for name, cost_ns, deadline_ns, period_ns in (
            ("a", 10_000_000, 32_000_000, 33_333_333),
            ("b", 6_980_000, 9_900_000, 10_007_003),
        )
    ]
    few = analyse(tasks, most_points=10)
    assert (few.schedulable, few.reason[-15:]) == (None, "too many points")
    assert analyse(tasks, most_points=analysis.TEST_POINT_LIMIT).schedulable is not None
