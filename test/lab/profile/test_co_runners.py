# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Co-runners: loads and cohorts that run, that end, and the slow-down that they cause."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.co_runners import (
    COLD_RUNS,
    count_processes,
    measure_cohort,
    run_cohort,
    run_load,
)

FRAMES = [Frame(np.zeros((4, 4, 3), np.uint8), "bgr8", 0, i) for i in range(3)]


def children(words):
    return [p for p in psutil.Process().children() if words in " ".join(p.cmdline())]


def test_memory_is_copied_and_the_rate_reported():
    with run_load("memory", count=1) as load:
        (process,) = children("load_process memory")
        # Blocks that no cache holds, touched before the load counts as running.
        assert process.memory_info().rss > 2 * (64 << 20)
        load.check()
    assert children("load_process") == []
    assert load.unit == "GB/s"
    assert load.rate >= 0.0


def test_a_cpu_load_ends_with_its_context():
    with run_load("cpu", count=2):
        busy = children("load_process cpu")
        assert len(busy) == 2
        assert all(p.status() in (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING) for p in busy)
    assert children("load_process cpu") == []
    with pytest.raises(KeyError), run_load("cpu", count=1):
        raise KeyError
    assert children("load_process cpu") == []


@pytest.mark.parametrize("kind", ["memory", "cpu"])
def test_a_killed_load_voids_the_measurement(kind):
    with run_load(kind, count=1) as load:
        load.check()
        # Not the only child: libraries that earlier tests used start helpers of their own.
        (process,) = load._processes
        process.kill()
        process.wait(timeout=30)
        with pytest.raises(ModelError, match=r"1 of 1 co-runners .* exit code -9"):
            load.check()
    assert load.rate is None


def test_a_missing_gpu_is_an_error(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigurationError, match="no CUDA device"), run_load("gpu"):
        pytest.fail("there is a load")
    assert children("load_process") == []


@pytest.mark.gpu
def test_matrices_are_multiplied_on_the_gpu():
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    with run_load("gpu") as load:
        time.sleep(1.0)  # a load that is ended at once has done nothing yet
        load.check()
    assert load.unit == "TFLOP/s"
    assert load.rate > 0.0


def test_a_load_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(ModelError, match="did not start, exit code 1"), run_load("memory"):
        pytest.fail("there is a load")


def test_the_task_keeps_a_core_from_the_memory_load(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert [count_processes(kind, 2) for kind in ("cpu", "memory", "gpu")] == [6, 4, 1]
    assert count_processes("memory", 8) == 1


@pytest.mark.parametrize("kind", ["memory", "cpu"])
def test_a_load_ends_with_the_process_that_started_it(kind):
    """Killed without a chance to clean up, it leaves no busy process behind."""
    code = (
        "import os\n"
        "from jetson_dnn_rt.lab.profile.co_runners import run_load\n"
        f"with run_load({kind!r}, count=1) as load:\n"
        "    print(load._processes[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(done.stdout.splitlines()[0])
    left = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    _, alive = psutil.wait_procs(left, timeout=10)
    # Where nobody reaps orphans, a dead one stays listed.
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def test_the_cohort_runs_on_until_the_end():
    enough, seen = threading.Event(), []

    def run(work):
        seen.append(work.frame.sequence)
        if len(seen) > 20:
            enough.set()

    with run_cohort([SimpleNamespace(run=run)] * 2, FRAMES) as load:
        assert enough.wait(timeout=30)
        load.check()
    count = len(seen)
    assert set(seen) == {0, 1, 2}
    assert (load.kind, load.count, load.unit) == ("cohort:3", 2, "frames/s")
    assert load.rate > 0.0
    assert len(seen) == count  # all have stopped


class World:
    """A frame takes 100 ns, and 50 more for every other pipeline in the same group.

    The clock of a thread advances by the times of its own frames, so that all is deterministic.
    """

    def __init__(self):
        self.present = threading.local()
        self.running: set[int] = set()
        self.sequences: list[int] = []

    def now_ns(self):
        return getattr(self.present, "now_ns", 0)

    def pipeline(self, number, fails_after=10**9):
        count = itertools.count()

        def run(work):
            self.running.add(number)
            if next(count) >= fails_after:
                raise RuntimeError("no memory")
            self.sequences.append(work.frame.sequence)
            self.present.now_ns = self.now_ns() + 100 + 50 * (len(self.running) - 1)

        return SimpleNamespace(run=run)


def test_factors_are_of_the_median_beside_over_the_median_alone():
    # Once a pipeline has run it counts as running, so the factors are known in advance.
    world = World()
    pipelines: Any = [world.pipeline(n) for n in range(3)]
    steps: list[tuple[str, int, int]] = []
    factors = measure_cohort(pipelines, FRAMES, 5, world, lambda *step: steps.append(step))
    # Alone: 100, 150, 200 (the others had run before). Beside: 200 each.
    assert factors == (1.0, pytest.approx((2.0 + 4 / 3) / 2), pytest.approx((2 + 4 / 3 + 1) / 3))
    assert steps == [("cohort", 1, 3), ("cohort", 2, 3)]
    assert set(world.sequences) == {0, 1, 2}


def test_all_go_on_until_the_last_is_done():
    """The second one's frames wait for more frames of the first than are timed."""
    runs = 4
    alone = COLD_RUNS + runs
    ran, enough = [0, 0], threading.Event()

    def run_first(work):
        ran[0] += 1
        if ran[0] > alone + COLD_RUNS + 2 * runs:
            enough.set()

    def run_second(work):
        ran[1] += 1
        if ran[1] > alone + COLD_RUNS:
            assert enough.wait(timeout=30)

    pipelines: Any = [SimpleNamespace(run=run_first), SimpleNamespace(run=run_second)]
    measure_cohort(pipelines, FRAMES, runs, SteadyClock())
    assert enough.is_set()


def test_nobody_is_faster_beside_others():
    world, left = World(), itertools.count(1000, -10)

    def accelerate(work):
        world.present.now_ns = world.now_ns() + next(left)

    pipelines: Any = [SimpleNamespace(run=accelerate)] * 2
    assert measure_cohort(pipelines, FRAMES, 3, world) == (1.0, 1.0)


@pytest.mark.parametrize("fails_after", [0, COLD_RUNS + 1, 2 * COLD_RUNS + 8])
def test_a_failure_ends_all(fails_after):
    world = World()
    pipelines: Any = [world.pipeline(0), world.pipeline(1, fails_after)]
    with pytest.raises(ModelError, match="a co-runner failed: no memory"):
        measure_cohort(pipelines, FRAMES, 6, world)
