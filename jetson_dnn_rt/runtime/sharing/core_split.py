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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.runtime.sharing.forecast import Forecast, ForecastTask, forecast
from jetson_dnn_rt.runtime.task import Task, open_library, open_model
from jetson_dnn_rt.tasks import Stage, Work
from jetson_dnn_rt.variants.measuring.timing import time_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet

MET_MARGIN = 0.01  # shares of met frames that differ by less are taken for equal
# The same of frames per second: short trials differ by so much from run to run.
CAPACITY_MARGIN = 0.05

COLD_RUNS = 2  # first runs of each task, which do not count: memory pools, page faults
RUNS = 12  # measured runs of each task that are enough
LEAST_RUNS = 3
TRIAL_NS = 700_000_000  # after that a trial ends, once each task has `LEAST_RUNS`

Times = list[tuple[int, ...]]
Pipelines = Mapping[str, Sequence[Stage]]  # by task the stages of one variant; no memory is shared
Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class CoreSplit:
    """So many workers, each with so many threads of one inference."""

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


@dataclass(frozen=True)
class TrialTask:
    """A task before it is loaded; `frame` is as large as those that will come."""

    config: TaskConfig
    frame: Frame
    period_ns: int
    deadline_ns: int


def share_cores(
    tasks: Mapping[str, TrialTask], cores: int, discipline: str, clock: Clock, log: Log
) -> tuple[CoreSplit, dict[str, Model]]:
    """Try every split of the cores with the default variants of the tasks.

    Tasks with a number of threads of their own are tried with it. `log` takes the choice and the
    figures of all splits. Returns the best, and the models that were loaded for it. The text of
    errors, those of `Task`, begins with the name of the task.
    """
    models: dict[str, Model] = {}

    @contextmanager
    def load(split: CoreSplit) -> Iterator[Pipelines]:
        with ExitStack() as stack:
            stages = {}
            for name, task in tasks.items():
                with _naming(name):
                    config = task.config
                    if name not in models:
                        models[name] = open_model(config)
                    first = config.variant or next(iter(config.variants), "")
                    library = open_library(config.engine_cache)
                    variants = VariantSet(
                        replace(config, variants=(first,) if first else (), memory_limit_mb=0.0),
                        models[name],
                        threads=config.fixed_threads or split.threads,
                        library=library,
                        clock=clock,
                        # An engine that is not there yet is no reason to wait for it here.
                        build=library is None,
                        keep_refused=True,
                    )
                stack.callback(variants.close)
                stages[name] = variants.pipelines[variants.default].stages
            yield stages

    forecast_tasks = [
        ForecastTask(name, task.period_ns, task.deadline_ns, (), task.config.budget_quantile)
        for name, task in tasks.items()
    ]
    frames = [task.frame for task in tasks.values()]
    return find_split(cores, load, frames, forecast_tasks, discipline, clock, log), models


def measure_slowdown(
    tasks: Mapping[str, Task], workers: int, clock: Clock, log: Log
) -> dict[int, float]:
    """How much longer a frame takes with 1, 2, ... workers at it, for loaded tasks.

    None of them may be running. Tasks of the null back end are left out: their times are those of
    a script. Empty where nothing was measured, see `find_slowdown`.
    """
    real = {name: task for name, task in tasks.items() if not task.is_scripted}
    most = min(workers, len(real))
    if most < 2:
        return {}
    begin_ns = clock.now_ns()
    stages = {name: task.stages[task.default] for name, task in real.items()}
    slowdown = find_slowdown(stages, [task.frame for task in real.values()], most, clock)
    figures = ", ".join(f"{count}: {factor:.2f}" for count, factor in slowdown.items())
    seconds = (clock.now_ns() - begin_ns) / 1e9
    log(f"slow-down by the number of stages side by side: {figures} (measured in {seconds:.1f} s)")
    return slowdown


# -- splits and what they are worth ------------------------------------------------------------


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


def find_split(
    cores: int,
    load: Callable[[CoreSplit], AbstractContextManager[Pipelines]],
    frames: Sequence[Frame],
    tasks: Sequence[ForecastTask],
    discipline: str,
    clock: Clock,
    log: Log,
) -> CoreSplit:
    """Try every split of the cores and take the best.

    `load` opens the default variants of the tasks with the threads of a split; those of one split
    are closed before those of the next are loaded. There is one frame for each task. Raises
    `ModelError` when a task fails, and what `load` raises.
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


def judge_trial(
    split: CoreSplit, times: Mapping[str, Times], tasks: Sequence[ForecastTask], discipline: str
) -> SplitFigures:
    """What the times of a trial mean for tasks of these rates and deadlines."""
    measured = [replace(task, times_ns=times[task.name]) for task in tasks]
    return SplitFigures(
        split,
        {task: statistics.median(map(sum, runs)) / 1e6 for task, runs in times.items()},
        find_capacity_hz(times, split.workers),
        forecast(measured, split.workers, discipline),
    )


def find_capacity_hz(times: Mapping[str, Times], workers: int) -> float:
    """Frames per second of workers that are always busy, with the tasks in turn."""
    frame_ns = [statistics.median(map(sum, runs)) for runs in times.values()]
    return workers * 1e9 / max(1.0, statistics.fmean(frame_ns))


# -- running side by side ----------------------------------------------------------------------


def find_slowdown(
    pipelines: Pipelines, frames: Sequence[Frame], workers: int, clock: Clock
) -> dict[int, float]:
    """How much longer frames take with 1, 2, ... `workers` at the tasks, without a pause.

    By the number side by side: median time of a frame over the same with one worker, mean over the
    tasks; never below 1, and the first is 1.
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


@contextmanager
def _naming(task: str) -> Iterator[None]:
    try:
        yield
    except JetsonDnnRtError as error:
        raise type(error)(f"task {task}: {error}") from error
