"""Co-runners: that they are there, that they work, that an end of theirs does not go unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.co_runners import count_processes, run_cohort, run_load
from jetson_dnn_rt.tasks import Work

FRAMES = [Frame(np.zeros((4, 4, 3), np.uint8), "bgr8", 0, i) for i in range(3)]


def children(words: str) -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if words in " ".join(p.cmdline())]


def test_memory_is_copied_and_said_how_much() -> None:
    with run_load("memory", count=1) as load:
        (process,) = children("load_process memory")
        # Blocks that no cache holds, touched before the load counts as there.
        assert process.memory_info().rss > 2 * (64 << 20)
        load.check()
    assert children("load_process") == []
    assert load.unit == "GB/s"
    assert load.rate is not None
    assert load.rate >= 0.0


def test_a_load_that_was_killed_makes_the_measurement_void() -> None:
    for kind in ("memory", "cpu"):
        with run_load(kind, count=1) as load:
            load.check()
            # Not the only child: libraries that earlier tests used start helpers of their own.
            (process,) = load._processes
            process.kill()
            process.wait(timeout=30)
            with pytest.raises(ModelError, match=r"1 of 1 co-runners .* exit code -9"):
                load.check()
        assert load.rate is None


def test_without_a_gpu_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigurationError, match="no CUDA device"), run_load("gpu"):
        pytest.fail("there is a load")
    assert children("load_process") == []


@pytest.mark.gpu
def test_matrices_are_multiplied_on_the_gpu() -> None:
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    with run_load("gpu") as load:
        load.check()
    assert load.unit == "TFLOP/s"
    assert load.rate is not None
    assert load.rate > 0.0


def test_one_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(ModelError, match="did not start, exit code 1"), run_load("memory"):
        pytest.fail("there is a load")


def test_the_task_keeps_a_core_from_the_memory_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert [count_processes(kind, 2) for kind in ("cpu", "memory", "gpu")] == [6, 4, 1]
    assert count_processes("memory", 8) == 1


def test_a_load_ends_with_whoever_started_it() -> None:
    code = (
        "import os\n"
        "from jetson_dnn_rt.lab.profile.co_runners import run_load\n"
        "with run_load('memory', count=1) as load:\n"
        "    print(load._processes[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    pid = int(done.stdout.splitlines()[0])
    left = [psutil.Process(pid)] if psutil.pid_exists(pid) else []
    _, alive = psutil.wait_procs(left, timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


# -- the cohort --------------------------------------------------------------------------------


def test_the_cohort_runs_on_until_the_end() -> None:
    enough, seen = threading.Event(), []

    def run(work: Work) -> None:
        seen.append(work.frame.sequence)
        if len(seen) > 20:
            enough.set()

    with run_cohort([SimpleNamespace(run=run)] * 2, FRAMES) as load:  # type: ignore[list-item]
        assert enough.wait(timeout=30)
        load.check()
    count = len(seen)
    assert set(seen) == {0, 1, 2}
    assert (load.kind, load.count, load.unit) == ("cohort:3", 2, "frames/s")
    assert load.rate is not None
    assert load.rate > 0.0
    assert len(seen) == count  # nobody goes on


def test_one_of_the_cohort_that_fails_is_said() -> None:
    failed, go = threading.Event(), threading.Event()

    def run(work: Work) -> None:
        if go.is_set():
            failed.set()
            raise RuntimeError("no memory")

    with run_cohort([SimpleNamespace(run=run)], FRAMES) as load:  # type: ignore[list-item]
        go.set()
        assert failed.wait(timeout=30)
        for thread in threading.enumerate():
            if thread.name.startswith("co-runner"):
                thread.join(timeout=30)
        with pytest.raises(ModelError, match="a co-runner failed: no memory"):
            load.check()


def test_one_that_fails_at_once_begins_nothing() -> None:
    def fail(work: Work) -> None:
        raise RuntimeError("no memory")

    pipelines = [SimpleNamespace(run=lambda work: None), SimpleNamespace(run=fail)]
    with pytest.raises(ModelError, match="no memory"), run_cohort(pipelines, FRAMES):  # type: ignore[arg-type]
        pytest.fail("it goes on")
