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

from benchmarks.protocol import BenchmarkError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, TaskParameters, Work
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet

VARIANT = "full@null"
SCRIPTS_MS = ("0.8", "1.0", "1.2/0.9", "1.0/0.8/1.1")
"""Inference times of the tasks, in turn; each has 0.2 ms before it and 0.1 ms after it."""

KINDS = ("sleep", "spin")
"""How a script's time passes."""

DEADLINE_FACTOR = 8
"""Relative deadline over the mean time of a job: several jobs wait at once beyond saturation."""

_SIZE = (48, 64)
_WARM_UP_RUNS = 40
_IDLE_S = 30.0


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
    """Nanoseconds, one entry a stage.

    Attributes
    ----------
    wall_ns, cpu_ns : list of int
        From the end of a stage to the begin of the next on the same worker, where that one was
        ready before the end.
    wake_ns : list of int
        From when a stage was ready to its begin, where a worker waited for it.
    others_ns : float
        Processor time of the whole process outside the stages, per stage: frames brought,
        workers, records delivered, and this benchmark's own.
    """

    wall_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    wake_ns: list[int] = field(default_factory=list)
    others_ns: float = 0.0


def find_costs(runs: Iterable[Run], released_ns: Mapping[tuple[str, int], int]) -> Costs:
    """Sort out what lies between the stages.

    Parameters
    ----------
    runs : iterable of Run
        In any order.
    released_ns : mapping
        When each job was released, by its task and sequence number.
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
    """An executor with so many tasks.

    Parameters
    ----------
    tasks : int
        How many.
    spin : bool
        Whether scripts burn their time.
    workers : int
        Of the executor.
    discipline : str
        Of the executor.
    max_inflight : mapping of str to int, optional
        Of the executor.
    batches : bool
        Whether all tasks are one group whose inference runs as batches; the script's time is then
        that of the first frame.
    """

    def __init__(
        self,
        tasks: int,
        *,
        spin: bool = False,
        workers: int = 1,
        discipline: str = "edf",
        max_inflight: Mapping[str, int] | None = None,
        batches: bool = False,
    ) -> None:
        self.tasks, self._workers, self._spin = tasks, workers, spin
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self._image = np.full((*_SIZE, 3), 114, np.uint8)
        self._stack = ExitStack()
        self._executor = Executor(workers, discipline, max_inflight=max_inflight)
        self._runs: list[tuple[int, str, int, int, int, int, int]] = []
        self._released_ns: dict[tuple[str, int], int] = {}
        self._sequence = 0
        sets = [self._load(index) for index in range(tasks)]
        frame = Frame(self._image, "bgr8", 0, 0)
        clock = self._executor.clock
        times = [
            measure_stages(one.pipelines[VARIANT].stages, [frame], _WARM_UP_RUNS, clock)
            for one in sets
        ]
        self.mean_ns = float(np.mean([np.median(np.sum(rows, axis=1)) for rows in times]))
        for index, (variants, rows) in enumerate(zip(sets, times, strict=True)):
            self._add(index, variants, rows, batches=batches)
        if batches:
            self._seed_batches(times)
        self._executor.start()
        self._stack.callback(self._executor.stop)

    def _load(self, index: int) -> VariantSet:
        script = SCRIPTS_MS[index % len(SCRIPTS_MS)]
        kind = ",spin" if self._spin else ""
        model = load_model(f"null:preprocess=0.2;inference={script};decode=0.1{kind}")
        variants = VariantSet(model, [VARIANT], DecoderSettings(), threads=1)
        self._stack.callback(variants.close)
        return variants

    def _add(
        self, index: int, variants: VariantSet, times: list[tuple[int, ...]], *, batches: bool
    ) -> None:
        parameters = TaskParameters(
            name=f"task-{index}",
            deadline_ns=round(DEADLINE_FACTOR * self.mean_ns),
            period_ns=round(self.tasks * self.mean_ns),
            stages=variants.stage_names,
            variants=(VARIANT,),
            variant=VARIANT,
            precedence=index,
            priority=index,
            batch_group="all" if batches else "",
        )
        stages = [
            self._watch(stage, parameters.name, batches=batches)
            for stage in variants.pipelines[VARIANT].stages
        ]
        self._executor.add_task(
            parameters, {VARIANT: stages}, self._observe, warm_up_times_ns={VARIANT: times}
        )

    def _seed_batches(self, times: Sequence[list[tuple[int, ...]]]) -> None:
        inference_ns = [row[1] for rows in times for row in rows]
        for size in range(2, self.tasks + 1):
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

        Parameters
        ----------
        load : float
            Work per second and worker that arrives, in seconds.
        seconds : float
            How long.

        Raises
        ------
        BenchmarkError
            When a job does not end.
        """
        self._runs.clear()
        self._released_ns.clear()
        clock = self._executor.clock
        names = [f"task-{index}" for index in range(self.tasks)]
        step_ns = self.mean_ns / load / self._workers
        process_ns, begin_ns = time.process_time_ns(), clock.now_ns()
        for count in range(max(1, round(seconds * 1e9 / step_ns))):
            clock.sleep_until_ns(begin_ns + round(count * step_ns))
            frame = Frame(self._image, "bgr8", 0, self._sequence)
            self._sequence += 1
            self._executor.submit(names[count % self.tasks], frame, clock.now_ns())
        if not self._executor.wait_idle(_IDLE_S):
            raise BenchmarkError(f"a job did not end within {_IDLE_S:g} s")
        process_ns = time.process_time_ns() - process_ns
        runs = [Run(*run) for run in self._runs]
        costs = find_costs(runs, self._released_ns)
        stages_ns = sum(run.end_cpu_ns - run.begin_cpu_ns for run in runs)
        costs.others_ns = (process_ns - stages_ns) / max(1, len(runs))
        return costs

    def close(self) -> None:
        """Stop the executor, give the runners back."""
        self._stack.close()
