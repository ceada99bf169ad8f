# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Co-runners: loads beside which times are measured, and the slow-down that they cause.

A worst case measured on an idle board is not a worst case.

==============  ================================================================================
``cpu``         a busy process for each core
``memory``      processes that copy blocks larger than any cache, on the cores the task leaves free
``gpu``         a process that multiplies matrices on the GPU
``cohort:N``    N - 1 other tasks, on threads of this process, without a pause
==============  ================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.load_process import READY
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.pipeline import Pipeline

CPU, MEMORY, GPU, COHORT = "cpu", "memory", "gpu", "cohort"
COLD_RUNS = 3

_END_LIMIT_S = 10.0
_CHECK_S = 0.05


@dataclass
class CoRunners:
    """A running load."""

    kind: str  # of the table above
    count: int  # processes or threads
    rate: float | None = None  # work done by all, known after the end; None if it is not counted
    unit: str = ""  # of the rate: ``GB/s``, ``TFLOP/s`` or ``frames/s``
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _failures: list[BaseException] = field(default_factory=list)

    def check(self) -> None:
        """Raise a `ModelError` if one has exited: the times measured meanwhile are invalid."""
        if self._failures:
            raise ModelError(f"a co-runner failed: {self._failures[0]}") from self._failures[0]
        codes = [p.poll() for p in self._processes]
        ended = [code for code in codes if code is not None]
        if ended:
            raise ModelError(
                f"{len(ended)} of {self.count} co-runners ({self.kind}) ended while times were "
                f"measured, exit code {ended[0]}"
            )


def count_processes(kind: str, threads: int) -> int:
    """Number of processes for a kind of load beside a task with `threads` for one inference.

    A load on the memory leaves the task its cores, if there are others.
    """
    cores = len(os.sched_getaffinity(0))
    return {CPU: cores, MEMORY: max(1, cores - threads), GPU: 1}[kind]


@contextlib.contextmanager
def run_load(kind: str, threads: int = 1, count: int | None = None) -> Iterator[CoRunners]:
    """Keep CPU, memory or GPU busy from other processes while the context lasts.

    `threads` are those of one inference of the task that is measured; `count` processes run, by
    default `count_processes`. `ConfigurationError` if torch sees no GPU, `ModelError` if a process
    does not start.
    """
    load = CoRunners(kind, count or count_processes(kind, threads))
    command = python_command("jetson_dnn_rt.lab.profile.load_process", kind)
    try:
        for _ in range(load.count):
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                cwd=CHILD_FOLDER, env=child_environment(),
            )  # fmt: skip
            load._processes.append(child)
        for process in load._processes:
            _wait_until_ready(process, kind)
        yield load
    finally:
        _end(load)


def _wait_until_ready(process: subprocess.Popen[bytes], kind: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() == READY.encode():
        return
    code = process.wait()
    if kind == GPU and code == 3:
        raise ConfigurationError("interference gpu: torch sees no CUDA device here")
    raise ModelError(f"a co-runner ({kind}) did not start, exit code {code}")


def _end(load: CoRunners) -> None:
    """Close the stdin of all processes, collect their reports, and kill those that do not exit."""
    rates = []
    for process in load._processes:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdin = None
    for process in load._processes:
        try:
            output, _ = process.communicate(timeout=_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        with contextlib.suppress(ValueError, KeyError, TypeError):
            report = json.loads(output)
            rates.append(float(report["rate"]))
            load.unit = str(report["unit"])
    load.rate = sum(rates) if rates else None


@contextlib.contextmanager
def run_cohort(
    pipelines: Sequence[Pipeline],
    frames: Sequence[Frame],
    on_frame: Callable[[int], None] = lambda number: None,
) -> Iterator[CoRunners]:
    """Keep tasks busy on threads of this process while the context lasts.

    The pipelines share no memory with each other nor with what is measured. A failure in the first
    frames raises a `ModelError` here, a later one in `CoRunners.check`. `on_frame` is called on
    the thread of a pipeline, with its number: once when all begin, and after each frame.
    """
    load = CoRunners(f"{COHORT}:{len(pipelines) + 1}", len(pipelines), unit="frames/s")
    stop = threading.Event()
    ready = threading.Barrier(len(pipelines) + 1)
    ran = [0] * len(pipelines)

    def run(number: int, pipeline: Pipeline) -> None:
        try:
            for index in range(COLD_RUNS):
                pipeline.run(Work(frames[index % len(frames)]))
            ready.wait()
            on_frame(number)
            while not stop.is_set():
                pipeline.run(Work(frames[ran[number] % len(frames)]))
                ran[number] += 1
                on_frame(number)
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            load._failures.append(error)
            ready.abort()

    threads = [
        threading.Thread(target=run, args=pair, name=f"co-runner-{pair[0]}", daemon=True)
        for pair in enumerate(pipelines)
    ]
    begin_s = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait()
        load.check()
        yield load
    finally:
        stop.set()
        ready.abort()
        for thread in threads:
            thread.join()
        load.rate = sum(ran) / (time.monotonic() - begin_s)


def measure_cohort(
    pipelines: Sequence[Pipeline],
    frames: Sequence[Frame],
    runs: int,
    clock: Clock,
    progress: Progress = ignore_progress,
) -> tuple[float, ...]:
    """Measure the slow-down by the number of pipelines that run side by side, without a pause.

    The pipelines share no memory: one of each `VariantSet`. `runs` >= 1 frames of each are timed.
    Returns, at ``[n - 1]``, the median time of a frame with the first n side by side over the same
    alone, mean over the n; never below 1, and the first is 1.
    """
    alone = [statistics.median(_run_beside([p], frames, runs, clock)[0]) for p in pipelines]
    factors = [1.0]
    for count in range(2, len(pipelines) + 1):
        progress("cohort", count - 1, len(pipelines))
        beside = _run_beside(pipelines[:count], frames, runs, clock)
        ratios = [
            statistics.median(times) / max(1, base)
            for times, base in zip(beside, alone[:count], strict=True)
        ]
        factors.append(max(1.0, statistics.fmean(ratios)))
    return tuple(factors)


def _run_beside(
    pipelines: Sequence[Pipeline], frames: Sequence[Frame], runs: int, clock: Clock
) -> list[list[int]]:
    """Measure frames of each pipeline while all the others run."""
    stamps_ns: list[list[int]] = [[] for _ in pipelines]
    left, lock, done = len(pipelines), threading.Lock(), threading.Event()

    def stamp(number: int) -> None:
        nonlocal left
        # All continue until the last one has enough, so that none runs alone at the end.
        if len(stamps_ns[number]) <= runs:
            stamps_ns[number].append(clock.now_ns())
            if len(stamps_ns[number]) > runs:
                with lock:
                    left -= 1
                    if not left:
                        done.set()

    with run_cohort(pipelines, frames, stamp) as load:
        while not done.wait(_CHECK_S):
            load.check()
    return [[end - begin for begin, end in pairwise(row)] for row in stamps_ns]
