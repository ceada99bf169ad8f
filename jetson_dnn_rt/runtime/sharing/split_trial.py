"""A trial of one split of the cores: its workers run the tasks side by side, without a pause."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing.core_split import (
    CoreSplit,
    SplitFigures,
    choose_split,
    describe_splits,
    list_splits,
)
from jetson_dnn_rt.runtime.sharing.forecast import ForecastTask, forecast
from jetson_dnn_rt.tasks import Stage, Work
from jetson_dnn_rt.variants.measuring.timing import time_stages

COLD_RUNS = 2
"""First runs of each task, that do not count: memory pools, page faults."""

RUNS = 12
"""Measured runs of each task that are enough."""

TRIAL_NS = 700_000_000
"""Time after which a trial ends, once each task has `LEAST_RUNS`."""

LEAST_RUNS = 3

Times = list[tuple[int, ...]]


def run_side_by_side(
    pipelines: Mapping[str, Sequence[Stage]], frames: Sequence[Frame], workers: int, clock: Clock
) -> dict[str, Times]:
    """Let workers take the tasks in turn, a frame of each at a time, and time the stages.

    Parameters
    ----------
    pipelines : mapping of str to sequence of Stage
        By task the stages of one variant; no two tasks share memory.
    frames : sequence of Frame
        One for each task, of the size that its camera delivers.
    workers : int
        Threads, at most as many as there are tasks.
    clock : Clock
        Steady clock of this machine.

    Returns
    -------
    dict of str to list of tuple of int
        By task the times of the stages of its measured runs in nanoseconds, at least `LEAST_RUNS`.

    Raises
    ------
    ModelError
        When a task fails.
    """
    if not 1 <= workers <= len(pipelines):
        raise ValueError(f"workers must be in [1, {len(pipelines)}], one task each: {workers}")
    given = dict(zip(pipelines, frames, strict=True))
    taken: dict[str, Times] = {task: [] for task in pipelines}
    waiting, lock, done = deque(pipelines), threading.Lock(), threading.Event()
    failures: list[tuple[str, BaseException]] = []
    end_ns = clock.now_ns() + TRIAL_NS

    def is_enough() -> bool:
        least = min(len(times) for times in taken.values()) - COLD_RUNS
        return least >= RUNS or (least >= LEAST_RUNS and clock.now_ns() >= end_ns)

    def work() -> None:
        while not done.is_set():
            with lock:
                task = waiting.popleft()
            try:
                times_ns = time_stages(pipelines[task], Work(given[task]), clock)
            except Exception as error:
                failures.append((task, error))
                done.set()
                return
            with lock:
                taken[task].append(times_ns)
                waiting.append(task)
                if is_enough():
                    done.set()

    threads = [
        threading.Thread(target=work, name=f"trial-{index}", daemon=True)
        for index in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        task, error = failures[0]
        raise ModelError(f"task {task} fails on its warm-up frame: {error}") from error
    return {task: times[COLD_RUNS:] for task, times in taken.items()}


def find_capacity_hz(times: Mapping[str, Times], workers: int) -> float:
    """Frames per second of workers that are always busy, with the tasks in turn."""
    frame_ns = [statistics.median(map(sum, runs)) for runs in times.values()]
    return workers * 1e9 / max(1.0, statistics.fmean(frame_ns))


def judge_trial(
    split: CoreSplit, times: Mapping[str, Times], tasks: Sequence[ForecastTask], discipline: str
) -> SplitFigures:
    """What the times of a trial mean for tasks of these rates and deadlines.

    Parameters
    ----------
    split : CoreSplit
        That was tried.
    times : mapping
        As `run_side_by_side` gives them.
    tasks : sequence of ForecastTask
        The tasks; their own times are not looked at.
    discipline : str
        Of the executor's queue.
    """
    measured = [
        ForecastTask(
            task.name, task.period_ns, task.deadline_ns, times[task.name], task.budget_quantile
        )
        for task in tasks
    ]
    return SplitFigures(
        split,
        {task: statistics.median(map(sum, runs)) / 1e6 for task, runs in times.items()},
        find_capacity_hz(times, split.workers),
        forecast(measured, split.workers, discipline),
    )


def find_split(
    cores: int,
    load: Callable[[CoreSplit], AbstractContextManager[Mapping[str, Sequence[Stage]]]],
    frames: Sequence[Frame],
    tasks: Sequence[ForecastTask],
    discipline: str,
    clock: Clock,
    log: Callable[[str], None],
) -> CoreSplit:
    """Try every split of the cores and take the best.

    The networks of a split are closed before those of the next are loaded.

    Parameters
    ----------
    cores : int
        To be shared.
    load : callable
        Opens the default variants of the tasks with the threads of a split.
    frames, clock
        As in `run_side_by_side`.
    tasks, discipline
        As in `judge_trial`.
    log : callable
        Takes what was chosen and the figures of all splits.

    Raises
    ------
    ModelError
        When a task fails; and what `load` raises.
    """
    splits = list_splits(cores, len(tasks))
    if len(splits) == 1:
        log(
            f"threads: auto takes {splits[0]} (workers x threads): {cores} core(s) and "
            f"{len(tasks)} task(s) leave no choice"
        )
        return splits[0]
    begin_ns, ran_ns = clock.now_ns(), 0
    figures = []
    for split in splits:
        with load(split) as pipelines:
            loaded_ns = clock.now_ns()
            times = run_side_by_side(pipelines, frames, split.workers, clock)
            ran_ns += clock.now_ns() - loaded_ns
        figures.append(judge_trial(split, times, tasks, discipline))
    chosen = choose_split(figures).split
    other_ns = clock.now_ns() - begin_ns - ran_ns
    head = (
        f"threads: auto takes {chosen} (workers x threads); tried for {ran_ns / 1e9:.1f} s, "
        f"loading the networks for it took {other_ns / 1e9:.1f} s:"
    )
    log("\n".join([head, *describe_splits(figures)]))
    return chosen


def find_slowdown(
    pipelines: Mapping[str, Sequence[Stage]], frames: Sequence[Frame], workers: int, clock: Clock
) -> dict[int, float]:
    """How much longer frames take with 1, 2, ... `workers` at the tasks, without a pause.

    Returns
    -------
    dict of int to float
        By the number side by side: median time of a frame over the same with one worker, mean
        over the tasks; never below 1, and the first is 1.
    """
    medians = []
    for count in range(1, workers + 1):
        times = run_side_by_side(pipelines, frames, count, clock)
        medians.append({task: statistics.median(map(sum, runs)) for task, runs in times.items()})
    alone = medians[0]
    return {
        count + 1: max(
            1.0, statistics.fmean(found[task] / max(1, alone[task]) for task in pipelines)
        )
        for count, found in enumerate(medians)
    }
