# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Workers and threads of an inference as one decision: how the cores are shared.

On two cores one worker whose inferences take both (1 x 2) ends a frame sooner; two workers with a
thread each (2 x 1) lose nothing to the threads' waiting for each other, and run two tasks side by
side. Which keeps more deadlines depends on the networks, their back ends and the deadlines: so it
is measured, with the tasks that will run.

Each split is *tried*: its workers run the tasks' default variants side by side, without a pause.
What the times mean for the deadlines is then *forecast* (`runtime.sharing.forecast`): the
scheduling engine runs the tasks at their rates on a virtual clock, every stage as slow as it was
measured with all workers busy.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.runtime.sharing.forecast import Forecast, Times, TrialTask, forecast
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import Stage, Work
from jetson_dnn_rt.variants.measuring.timing import time_stages

MET_MARGIN = 0.01  # shares of met frames that differ by less count as equal
# The same of frames per second: short trials differ by so much from run to run.
CAPACITY_MARGIN = 0.05

COLD_RUNS = 2  # first runs of each task, which do not count: memory pools, page faults
RUNS = 12  # measured runs of each task that are enough
LEAST_RUNS = 3
TRIAL_NS = 700_000_000  # after that a trial ends, once each task has `LEAST_RUNS`

Pipelines = Mapping[str, Sequence[Stage]]  # by task the stages of one variant; no memory is shared
Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class CoreSplit:
    """A number of workers, and the threads of one inference on each."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """The trial of one split."""

    split: CoreSplit
    frame_ms: dict[str, float]  # by task the median time of a frame while all workers are busy
    capacity_hz: float  # of all tasks together, when each comes as often as the others
    forecast: Forecast  # at the rates and deadlines of the tasks


def share_cores(
    tasks: Sequence[TrialTask], cores: int, discipline: str, clock: Clock, log: Log
) -> tuple[CoreSplit, dict[str, Model]]:
    """Try every split of the cores with the default variants of the tasks.

    Tasks with a number of threads of their own are tried with it. The networks of one split are
    closed before those of the next are loaded. `log` takes the choice and the figures of all
    splits. Returns the best, and the models that were loaded for it. The text of errors, those of
    `Task`, begins with the name of the task; `ModelError` when one fails on its frame.
    """
    models: dict[str, Model] = {}
    splits = list_splits(cores, len(tasks))
    if len(splits) == 1:
        log(
            f"threads: auto takes {splits[0]} (workers x threads): {cores} core(s) and "
            f"{len(tasks)} task(s) leave no choice"
        )
        return splits[0], models
    begin_ns, ran_ns = clock.now_ns(), 0
    figures = []
    for split in splits:
        with ExitStack() as stack:
            loaded = [
                stack.enter_context(closing(_load(task, split, models, clock))) for task in tasks
            ]
            stages = {one.name: one.stages[one.variant_names[0]] for one in loaded}
            loaded_ns = clock.now_ns()
            times = run_side_by_side(stages, [task.frame for task in tasks], split.workers, clock)
            ran_ns += clock.now_ns() - loaded_ns
        figures.append(judge_trial(split, times, tasks, discipline))
    chosen = choose_split(figures).split
    other_ns = clock.now_ns() - begin_ns - ran_ns
    head = (
        f"threads: auto takes {chosen} (workers x threads); tried for {ran_ns / 1e9:.1f} s, "
        f"loading the networks for it took {other_ns / 1e9:.1f} s:"
    )
    log("\n".join([head, *describe_splits(figures)]))
    return chosen, models


def _load(task: TrialTask, split: CoreSplit, models: dict[str, Model], clock: Clock) -> Task:
    """Load the default variant of a task; `models` keeps what it is loaded from."""
    config = task.config
    first = config.variant or next(iter(config.variants), "")
    try:
        loaded = Task(
            replace(config, variants=(first,) if first else (), memory_limit_mb=0.0),
            threads=config.fixed_threads or split.threads,
            clock=clock,
            model=models.get(config.name),
            frames=(),
            keep_refused=True,
        )
    except JetsonDnnRtError as error:
        raise type(error)(f"task {config.name}: {error}") from error
    models[config.name] = loaded.model
    return loaded


def measure_slowdown(
    tasks: Mapping[str, Task], workers: int, clock: Clock, log: Log
) -> dict[int, float]:
    """Slow-down of a frame with 1, 2, ... workers busy, for loaded tasks.

    By the number side by side: median time of a frame over the same with one worker, mean over the
    tasks; never below 1, and the first is 1. None of the tasks may be running. Those of the null
    back end are left out: their times are those of a script. Empty where there is one task or one
    worker.
    """
    real = {name: task for name, task in tasks.items() if not task.is_scripted}
    most = min(workers, len(real))
    if most < 2:
        return {}
    begin_ns = clock.now_ns()
    stages = {name: task.stages[task.default] for name, task in real.items()}
    frames = [task.frame for task in real.values()]
    medians = []
    for count in range(1, most + 1):
        times = run_side_by_side(stages, frames, count, clock)
        medians.append([statistics.median(map(sum, runs)) for runs in times.values()])
    slowdown = {}
    for count, found in enumerate(medians, 1):
        factors = (ns / max(1, alone) for ns, alone in zip(found, medians[0], strict=True))
        slowdown[count] = max(1.0, statistics.fmean(factors))
    figures = ", ".join(f"{count}: {factor:.2f}" for count, factor in slowdown.items())
    seconds = (clock.now_ns() - begin_ns) / 1e9
    log(f"slow-down by the number of stages side by side: {figures} (measured in {seconds:.1f} s)")
    return slowdown


# -- splits and their forecasts ----------------------------------------------------------------


def list_splits(cores: int, tasks: int) -> tuple[CoreSplit, ...]:
    """Splits worth a trial: as many threads as there are cores, fewest workers first.

    One for each divisor of `cores`, until every task has a worker. Workers in excess of the tasks
    would idle, because a task runs one frame at a time; the threads of the split before such a one
    are not given up for them.
    """
    if cores < 1 or tasks < 1:
        raise ValueError(f"cores and tasks must be >= 1: {cores}, {tasks}")
    splits = []
    for workers in (n for n in range(1, cores + 1) if not cores % n):
        splits.append(CoreSplit(min(workers, tasks), cores // workers))
        if workers >= tasks:
            break
    return tuple(splits)


def choose_split(figures: Sequence[SplitFigures]) -> SplitFigures:
    """The best: most met frames, then the largest capacity, then the shortest responses.

    Differences within `MET_MARGIN` and `CAPACITY_MARGIN` of the best do not count.
    """
    met = max(one.forecast.met_share for one in figures)
    left = [one for one in figures if one.forecast.met_share >= met - MET_MARGIN]
    capacity = max(one.capacity_hz for one in left)
    left = [one for one in left if one.capacity_hz >= capacity * (1.0 - CAPACITY_MARGIN)]
    return min(left, key=lambda one: (one.forecast.response_ms, one.split.workers))


def describe_splits(figures: Sequence[SplitFigures]) -> list[str]:
    """A line for each split, the chosen one marked."""
    chosen = choose_split(figures)
    lines = []
    for one in figures:
        times = ", ".join(f"{task} {ms:.1f} ms" for task, ms in one.frame_ms.items())
        lines.append(
            f"{'->' if one is chosen else '  '} {one.split}: "
            f"{100 * one.forecast.met_share:.1f} % of the frames met, {one.capacity_hz:.1f} "
            f"frames/s, response {one.forecast.response_ms:.1f} ms; {times}"
        )
    return lines


def judge_trial(
    split: CoreSplit, times: Mapping[str, Times], tasks: Sequence[TrialTask], discipline: str
) -> SplitFigures:
    """Forecast, from the times of a trial, for the tasks at their rates and deadlines."""
    frame_ms = {task: statistics.median(map(sum, runs)) / 1e6 for task, runs in times.items()}
    return SplitFigures(
        split,
        frame_ms,
        split.workers * 1e3 / max(1e-6, statistics.fmean(frame_ms.values())),
        forecast(tasks, times, split.workers, discipline),
    )


# -- running side by side ----------------------------------------------------------------------


def run_side_by_side(
    pipelines: Pipelines, frames: Sequence[Frame], workers: int, clock: Clock
) -> dict[str, Times]:
    """Let workers take the tasks in turn, a frame of each at a time, and time the stages.

    There is one frame for each task and at most one worker. Returns by task the times of the
    stages of its measured runs in nanoseconds, at least `LEAST_RUNS`. Raises `ModelError` when a
    task fails.
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
