"""How much slower beside others: with real threads, on work whose slow-down is known."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.interference import (
    COLD_RUNS,
    compare_beside,
    cpu_load,
    measure_cohort,
)
from jetson_dnn_rt.tasks import Work

FRAMES = [Frame(np.zeros((4, 4, 3), np.uint8), "bgr8", 0, i) for i in range(2)]


class World:
    """Time that a frame takes: 100 ns, and 50 more for every other pipeline in the same group.

    The clock of a thread goes on by what its own frames take, so that nothing is left to chance.
    """

    def __init__(self) -> None:
        self.present = threading.local()
        self.running: set[int] = set()
        self.sequences: list[int] = []

    def now_ns(self) -> int:
        return getattr(self.present, "now_ns", 0)

    def pipeline(self, number: int, fails_after: int = 10**9) -> SimpleNamespace:
        count = itertools.count()

        def run(work: Work) -> None:
            self.running.add(number)
            if next(count) >= fails_after:
                raise RuntimeError("no memory")
            self.sequences.append(work.frame.sequence)
            self.present.now_ns = self.now_ns() + 100 + 50 * (len(self.running) - 1)

        return SimpleNamespace(run=run)


def test_factors_are_of_the_median_beside_over_the_median_alone() -> None:
    # Once a pipeline has run it counts as running, so the factors can be told beforehand.
    world = World()
    pipelines = [world.pipeline(n) for n in range(3)]
    steps: list[tuple[str, int, int]] = []
    factors = measure_cohort(
        pipelines,
        FRAMES,
        5,
        world,
        lambda *step: steps.append(step),  # type: ignore[arg-type]
    )
    # Alone: 100, 150, 200 (the others had run before). Beside: 200 each.
    assert factors == (1.0, pytest.approx((2.0 + 4 / 3) / 2), pytest.approx((2 + 4 / 3 + 1) / 3))
    assert steps == [("cohort", 1, 3), ("cohort", 2, 3)]
    assert set(world.sequences) == {0, 1}


def test_who_is_done_goes_on_until_all_are() -> None:
    """The second one's frames wait for more frames of the first than are timed."""
    runs = 4
    alone = COLD_RUNS + runs
    ran, enough = [0, 0], threading.Event()

    def run_first(work: Work) -> None:
        ran[0] += 1
        if ran[0] > alone + COLD_RUNS + 2 * runs:
            enough.set()

    def run_second(work: Work) -> None:
        ran[1] += 1
        if ran[1] > alone + COLD_RUNS:
            assert enough.wait(timeout=30)

    pipelines = [SimpleNamespace(run=run_first), SimpleNamespace(run=run_second)]
    measure_cohort(pipelines, FRAMES, runs, SteadyClock())  # type: ignore[arg-type]
    assert enough.is_set()


def test_nobody_is_faster_beside_others() -> None:
    class Falling(World):
        def pipeline(self, number: int, fails_after: int = 10**9) -> SimpleNamespace:
            left = itertools.count(1000, -10)

            def run(work: Work) -> None:
                self.present.now_ns = self.now_ns() + next(left)

            return SimpleNamespace(run=run)

    world = Falling()
    factors = measure_cohort([world.pipeline(0), world.pipeline(1)], FRAMES, 3, world)  # type: ignore[list-item, arg-type]
    assert factors == (1.0, 1.0)


@pytest.mark.parametrize("fails_after", [0, COLD_RUNS + 1, 2 * COLD_RUNS + 8])
def test_one_that_fails_ends_all(fails_after: int) -> None:
    world = World()
    pipelines = [world.pipeline(0), world.pipeline(1, fails_after)]
    with pytest.raises(ModelError, match="fails beside others: no memory"):
        measure_cohort(pipelines, FRAMES, 6, world)  # type: ignore[arg-type]


def test_beside_a_load_is_a_ratio_of_quantiles() -> None:
    alone = {"a": np.array([[1, 1], [2, 2], [1, 9]]), "b": np.array([[1]])}
    beside = compare_beside(alone, {"a": np.array([[4, 4], [30, 30]])})
    assert set(beside) == {"a"}
    assert beside["a"].p50 == pytest.approx(8 / 4)
    assert beside["a"].p99 == pytest.approx(60 / 10)


def test_the_load_is_there_and_then_gone() -> None:
    def children() -> list[psutil.Process]:
        wanted = "while True: pass"
        return [p for p in psutil.Process().children() if wanted in " ".join(p.cmdline())]

    with cpu_load(2):
        busy = children()
        assert len(busy) == 2
        assert all(p.status() in (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING) for p in busy)
    assert children() == []
    with pytest.raises(KeyError), cpu_load(1):
        raise KeyError
    assert children() == []


def test_a_load_ends_with_whoever_started_it() -> None:
    """Killed without a chance to clean up, it leaves no busy process behind."""
    code = (
        "import os, sys\n"
        "from jetson_dnn_rt.lab.profile.interference import cpu_load\n"
        "import psutil\n"
        "with cpu_load(1):\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=os.getcwd()
    )
    pid = int(done.stdout)
    left = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    _, alive = psutil.wait_procs(left, timeout=10)
    # Where nobody reaps orphans, a dead one stays listed.
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)
