"""What the executor adds to a stage, by the number of tasks: null back end, scripted times.

The script's times are slept through, as a worker does whose network runs on a GPU, or spun through
on the processor, as with a network on the CPU: a core that slept begins with a low clock and cold
caches.

A worker that ends a stage while another one is ready begins that one at once: what lies between
is the price of scheduling. It is taken around the stages themselves, on the worker's own thread,
as time on the wall and as processor time of that thread; what else runs on the machine is in the
first only. A worker that had to wait for a frame is another matter, the time to wake it: shown
apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from benchmarks.harness.tasks import (
    add_task,
    configure,
    drain,
    find_cost_ns,
    load_task,
    running,
    tick,
)
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, Work

VARIANT = "full@null"
SCRIPTS_MS = ("0.8", "1.0", "1.2/0.9", "1.0/0.8/1.1")
"""Inference times of the tasks, in turn; each has 0.2 ms before it and 0.1 ms after it."""

KINDS = ("sleep", "spin")
"""How a script's time passes."""

DEADLINE_FACTOR = 8
"""Relative deadline over the mean time of a job: several jobs wait at once beyond saturation."""

_SIZE = (48, 64)
_WARM_UP_RUNS = 40


class Run(NamedTuple):
    """One stage on one worker: nanoseconds at both ends, on the wall and of the thread."""

    thread: int
    task: str
    sequence: int
    begin_ns: int
    begin_cpu_ns: int
    end_ns: int
    end_cpu_ns: int


@dataclass
class Costs:
    """Nanoseconds, one entry a stage."""

    wall_ns: list[int] = field(default_factory=list)
    """From the end of a stage to the begin of the next on the same worker, where that one was
    ready before the end."""
    cpu_ns: list[int] = field(default_factory=list)
    """The same in processor time of the worker."""
    wake_ns: list[int] = field(default_factory=list)
    """From when a stage was ready to its begin, where a worker waited for it."""
    others_ns: float = 0.0
    """Processor time of the whole process outside the stages, per stage: frames brought, workers,
    records delivered, and this benchmark's own."""


def find_costs(runs: Iterable[Run], released_ns: Mapping[tuple[str, int], int]) -> Costs:
    """Sort out what lies between the stages, given in any order.

    `released_ns` says when each job was released, by its task and sequence number.
    """
    costs = Costs()
    on_thread: dict[int, Run] = {}
    of_task: dict[str, int] = {}
    for run in sorted(runs, key=lambda run: run.begin_ns):
        # A task does one thing at a time: it was ready when its last stage was over.
        ready_ns = max(released_ns[run.task, run.sequence], of_task.get(run.task, 0))
        before = on_thread.get(run.thread)
        if before is not None and ready_ns <= before.end_ns:
            costs.wall_ns.append(run.begin_ns - before.end_ns)
            costs.cpu_ns.append(run.begin_cpu_ns - before.end_cpu_ns)
        else:
            costs.wake_ns.append(run.begin_ns - ready_ns)
        on_thread[run.thread] = run
        of_task[run.task] = run.end_ns
    return costs


class CostBench:
    """An executor with so many tasks, stopped by `stack`.

    With `spin` scripts burn their time. With `batches` all tasks are one group whose inference
    runs as batches, each in the time of its first frame.
    """

    def __init__(
        self,
        stack: ExitStack,
        tasks: int,
        *,
        spin: bool = False,
        workers: int = 1,
        discipline: str = "edf",
        max_inflight: Mapping[str, int] | None = None,
        batches: bool = False,
    ) -> None:
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self._workers = workers
        self._image = np.full((*_SIZE, 3), 114, np.uint8)
        # Not a session: it would run the stages as they are, without the stopwatch around them.
        self._executor = Executor(workers, discipline, max_inflight=max_inflight)
        self._runs: list[tuple[int, str, int, int, int, int, int]] = []
        self._released_ns: dict[tuple[str, int], int] = {}
        self._sequence = 0
        script = f"null:preprocess=0.2;inference={{}};decode=0.1{',spin' if spin else ''}"
        sources = [script.format(SCRIPTS_MS[i % len(SCRIPTS_MS)]) for i in range(tasks)]
        frame = Frame(self._image, "bgr8", 0, 0)
        configs = [
            configure(f"task-{i}", source, [VARIANT], warmup_runs=_WARM_UP_RUNS, priority=i)
            for i, source in enumerate(sources)
        ]
        self._tasks = [load_task(stack, config, [frame]) for config in configs]
        self.mean_ns = float(np.mean([find_cost_ns(task) for task in self._tasks]))
        for index, task in enumerate(self._tasks):
            self._add(index, task, batches=batches)
        if batches:
            self._seed_batches()
        stack.enter_context(running(self._executor))

    def _add(self, index: int, task: Task, *, batches: bool) -> None:
        watched = [self._watch(one, task.name, batches=batches) for one in task.stages[VARIANT]]
        add_task(
            self._executor, task, self._observe, stages={VARIANT: watched}, precedence=index,
            period_ns=round(len(self._tasks) * self.mean_ns),
            deadline_ns=round(DEADLINE_FACTOR * self.mean_ns),
            batch_group="all" if batches else "",
        )  # fmt: skip

    def _seed_batches(self) -> None:
        inference_ns = [row[1] for task in self._tasks for row in task.warm_up_times_ns[VARIANT]]
        for size in range(2, len(self._tasks) + 1):
            self._executor.seed_batch_budgets("task-0", VARIANT, "inference", size, inference_ns)

    def _watch(self, stage: Stage, task: str, *, batches: bool) -> Stage:
        take = self._runs.append

        def run(work: Work) -> None:
            begin_ns, begin_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
            stage.run(work)
            end_cpu_ns, end_ns = time.thread_time_ns(), time.monotonic_ns()
            thread, sequence = threading.get_ident(), work.frame.sequence
            # A plain tuple: this is in the gap that is measured.
            take((thread, task, sequence, begin_ns, begin_cpu_ns, end_ns, end_cpu_ns))

        def run_batch(works: Sequence[Work]) -> None:
            run(works[0])
            for work in works[1:]:
                work.scratch.update(works[0].scratch)

        as_batch = run_batch if batches and stage.name == "inference" else None
        return replace(stage, run=run, run_batch=as_batch)

    def _observe(self, record: JobRecord, work: Work) -> None:
        self._released_ns[record.task, record.sequence] = record.release_ns
        self.outcomes[record.outcome] += 1

    def play(self, load: float, seconds: float) -> Costs:
        """Release frames for a while; the tasks take turns at even distances.

        `load` is the work per second and worker that arrives, in seconds.
        """
        self._runs.clear()
        self._released_ns.clear()
        clock = self._executor.clock
        step_ns = self.mean_ns / load / self._workers
        process_ns = time.process_time_ns()
        for count, _ in tick(clock, step_ns, max(1, round(seconds * 1e9 / step_ns))):
            frame = Frame(self._image, "bgr8", 0, self._sequence)
            self._sequence += 1
            name = self._tasks[count % len(self._tasks)].name
            self._executor.submit(name, frame, clock.now_ns())
        drain(self._executor)
        process_ns = time.process_time_ns() - process_ns
        runs = [Run(*run) for run in self._runs]
        costs = find_costs(runs, self._released_ns)
        stages_ns = sum(run.end_cpu_ns - run.begin_cpu_ns for run in runs)
        costs.others_ns = (process_ns - stages_ns) / max(1, len(runs))
        return costs
