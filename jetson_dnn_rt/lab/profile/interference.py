"""How much slower a stage is when others run beside it: tasks of the cohort, or something else."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.coordinator.tables.tables import Integers, order_statistic
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.children import CHILD_FOLDER, code_command
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.pipeline import Pipeline

COLD_RUNS = 3

_K = TypeVar("_K", bound=Hashable)

# Ends with whoever started it, even if that was killed.
_BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print(flush=True)
while True: pass
"""


@dataclass(frozen=True)
class Beside:
    """How much slower a variant is beside something: ratios of quantiles of a frame's time.

    Attributes
    ----------
    p50, p99 : float
        1 = as alone.
    """

    p50: float
    p99: float


def measure_cohort(
    pipelines: Sequence[Pipeline],
    frames: Sequence[Frame],
    runs: int,
    clock: Clock,
    progress: Progress = ignore_progress,
) -> tuple[float, ...]:
    """Slow-down by the number of pipelines that run side by side, without a pause.

    Parameters
    ----------
    pipelines : sequence of Pipeline
        N, that share no memory: one of each `VariantSet`.
    frames : sequence of Frame
        Taken in turn by each.
    runs : int
        Frames that are timed of each, >= 1.
    clock : Clock
        Steady clock, of this machine: threads run on it.
    progress : callable, optional
        Told how far it is.

    Returns
    -------
    tuple of float
        ``[n - 1]``: median time of a frame with the first n side by side over the same alone, mean
        over the n; never below 1, and the first is 1.

    Raises
    ------
    ModelError
        When one of them fails.
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
    """Frame times of each, of frames during which all the others ran."""
    times_ns: list[list[int]] = [[] for _ in pipelines]
    failures: list[BaseException] = []
    start = threading.Barrier(len(pipelines))
    left, lock, done = len(pipelines), threading.Lock(), threading.Event()

    def run(pipeline: Pipeline, times: list[int]) -> None:
        nonlocal left
        try:
            for index in range(COLD_RUNS):
                pipeline.run(Work(frames[index % len(frames)]))
            start.wait()
            index = 0
            # Who has enough goes on until all have, so that nobody runs alone at the end.
            while not done.is_set():
                begin_ns = clock.now_ns()
                pipeline.run(Work(frames[index % len(frames)]))
                index += 1
                if len(times) < runs:
                    times.append(clock.now_ns() - begin_ns)
                    if len(times) == runs:
                        with lock:
                            left -= 1
                            if not left:
                                done.set()
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            failures.append(error)
            start.abort()
            done.set()

    threads = [
        threading.Thread(target=run, args=pair, name="beside", daemon=True)
        for pair in zip(pipelines, times_ns, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ModelError(f"fails beside others: {failures[0]}") from failures[0]
    return times_ns


def compare_beside(
    alone: Mapping[_K, Integers], beside: Mapping[_K, Integers]
) -> dict[_K, Beside]:
    """How much slower frames are beside something.

    Parameters
    ----------
    alone, beside : mapping to int64 [S, R]
        Times of runs in nanoseconds, by what was run; a row per frame.
    """

    def ratio(key: _K, share: float) -> float:
        before, after = (
            order_statistic(times[key].sum(axis=1), share) for times in (alone, beside)
        )
        return float(after / max(1, before))

    return {key: Beside(ratio(key, 0.5), ratio(key, 0.99)) for key in beside}


@contextlib.contextmanager
def cpu_load(processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep so many cores busy from other processes while the context lasts; gives those."""
    command = code_command(_BUSY)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            started.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHILD_FOLDER
                )
            )
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()  # it runs from here on
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()
