# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How the cores are shared: workers, and the threads of an inference.

On two cores one worker whose inferences take both (1 x 2) ends a frame sooner; two with a thread
each (2 x 1) lose nothing to the threads' waiting for each other, and get more done. Which one
meets more deadlines depends on the load and the deadlines. With ``threads: auto`` networks are
loaded for both, and `split_choice` chooses: one of the two, or that the scheduling engine does so
for every frame (`scheduling.places`). The engine has to know how much longer a network takes with
fewer threads beside others: that is measured here.
"""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.safety.records import within
from jetson_dnn_rt.tasks import SHARED_STAGES, Stage, Work
from jetson_dnn_rt.variants.measuring.timing import time_stages

COLD_RUNS = 2  # first runs of each task, which do not count: memory pools, page faults
RUNS = 12  # measured runs of each task that are enough
LEAST_RUNS = 3
TRIAL_NS = 700_000_000  # after that a trial ends, once each task has `LEAST_RUNS`

Times = list[tuple[int, ...]]
"""Run by run the times of the stages of a task."""

Pipelines = Mapping[str, Sequence[Stage]]  # by task the stages of one variant; no memory is shared
Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class CoreSplit:
    """A number of workers, and the threads of one inference on each.

    Where `narrow_threads` is not 0, `side_by_side` inferences with so many threads may run in
    place of one with all of a worker's.
    """

    workers: Annotated[int, within(1, 1024)]
    threads: Annotated[int, within(1, 1024)]
    narrow_threads: Annotated[int, within(0, 1024)] = 0
    side_by_side: Annotated[int, within(1, 1024)] = 1

    @property
    def wide(self) -> CoreSplit:
        """The same without narrow networks."""
        return CoreSplit(self.workers, self.threads)

    @property
    def narrow(self) -> CoreSplit:
        """The same with narrow networks only, each on a worker."""
        return CoreSplit(self.side_by_side, self.narrow_threads)

    def __str__(self) -> str:
        wide = f"{self.workers} x {self.threads}"
        if not self.narrow_threads:
            return wide
        return f"{wide} or {self.side_by_side} x {self.narrow_threads}"


def share_cores(cores: int, tasks: int) -> CoreSplit:
    """What networks are loaded for: all cores for one inference, or a share for each task's."""
    if cores < 1 or tasks < 1:
        raise ValueError(f"cores and tasks must be >= 1: {cores}, {tasks}")
    side_by_side = min(cores, tasks)
    if side_by_side == 1:
        return CoreSplit(1, cores)
    return CoreSplit(1, cores, cores // side_by_side, side_by_side)


@dataclass(frozen=True)
class NarrowTimes:
    """How long networks take narrow beside others, of tasks that can run so."""

    slowdowns: dict[str, list[float]] = field(default_factory=dict)
    """Run by run how many times as long a task's network takes as wide alone. That of one that has
    one core anyway takes no longer."""
    alike: frozenset[str] = frozenset()  # the tasks whose networks have one core anyway
    beside: dict[str, Times] = field(default_factory=dict)
    """Times of the stages narrow beside others."""

    @property
    def can_choose(self) -> bool:
        """Whether there is a network that can be either."""
        return len(self.slowdowns) > len(self.alike)

    def of_split(self, split: CoreSplit) -> dict[str, list[float]]:
        """The slow-downs of the networks that may run narrow beside others with a split."""
        if split.narrow_threads:
            return self.slowdowns
        # With several workers each network has its share anyway.
        return {} if split.workers > 1 else {name: self.slowdowns[name] for name in self.alike}


def measure_narrow(
    tasks: Mapping[str, Task], split: CoreSplit, clock: Clock, log: Log
) -> NarrowTimes:
    """How much longer each task's network takes narrow beside others than wide alone, run by run.

    Of the default variants of loaded tasks that do not run. Those that have one core anyway take
    no longer; other ones of the null back end are left out whose script does not depend on the
    threads. Without the others where too few are narrow.
    """
    if not split.narrow_threads:
        return NarrowTimes()
    single = frozenset(name for name, task in tasks.items() if task.has_one_core)
    narrow = {name: task for name, task in tasks.items() if task.is_narrow or name in single}
    alike: dict[str, list[float]] = {name: [1.0] for name in single}
    side_by_side = min(split.side_by_side, len(narrow))
    if side_by_side < 2 or len(single) == len(narrow):
        return NarrowTimes(alike, single)
    begin_ns = clock.now_ns()
    stages = {name: task.stages[task.default] for name, task in narrow.items()}
    frames = [task.frame for task in narrow.values()]
    alone = _network_times(stages, run_side_by_side(stages, frames, 1, clock))
    times = run_side_by_side(stages, frames, side_by_side, clock, narrow=True)
    beside = _network_times(stages, times)
    slowdowns = {
        name: [time_ns / statistics.median(alone[name]) for time_ns in beside[name]]
        for name in narrow
    }
    slowdowns.update(alike)
    figures = ", ".join(
        f"{name} {statistics.median(factors):.2f}" for name, factors in slowdowns.items()
    )
    log(
        f"threads: auto: {side_by_side} x {split.narrow_threads} (workers x threads) takes a "
        f"network longer than {split.wide} by the factor {figures} (measured in "
        f"{(clock.now_ns() - begin_ns) / 1e9:.1f} s)"
    )
    return NarrowTimes(slowdowns, single, times)


def _network_times(stages: Pipelines, times: Mapping[str, Times]) -> dict[str, list[int]]:
    """Times of the network by task, without the stages before and after it."""
    found = {}
    for name, runs in times.items():
        inner = [i for i, stage in enumerate(stages[name]) if stage.name not in SHARED_STAGES]
        found[name] = [max(1, sum(run[i] for i in inner)) for run in runs]
    return found


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


# -- running side by side ----------------------------------------------------------------------


def run_side_by_side(
    pipelines: Pipelines,
    frames: Sequence[Frame],
    workers: int,
    clock: Clock,
    *,
    narrow: bool = False,
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
                times_ns = time_stages(pipelines[task], Work(given[task], narrow=narrow), clock)
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
