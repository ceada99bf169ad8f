"""More and more tasks with real networks: what becomes of the frames beyond saturation.

Every task has a network, buffers and a camera of its own; the cameras are out of step. Each task
alone takes the same share of a core, so that the work that arrives grows with every task. Two
sides run the same stages on as many workers, in turn: this package's executor, and one queue
without deadlines (`benchmarks.plain_queue`). Both are judged alike: a frame is met when
its last stage is over within the task's relative deadline after it came. On one worker the gaps
between stages are taken from the executor's own records (`scale_cost.find_costs`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.plain_queue import PlainQueue
from benchmarks.protocol import BenchmarkError
from benchmarks.scale_cost import Run, find_costs
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, TaskParameters, Work
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet, choose_default

SIDES = ("executor", "plain queue")
GOLDEN = 0.6180339887498949
"""Phases at multiples of it are spread evenly, however many there are."""

_SIZE = (480, 640)
_SCENES = 4
_WARM_UP_RUNS = 20
_DRAIN_S = 30.0

Submit = Callable[[str, Frame], None]


@dataclass(frozen=True)
class NetTask:
    """A loaded network with its times.

    Attributes
    ----------
    name : str
        Of the task.
    model, variant : str
        What it is, and how it runs.
    stage_names : tuple of str
        Of the task.
    stages : tuple of Stage
        Of the variant.
    times_ns : list of tuple of int
        Stage times of its runs alone.
    period_ns, deadline_ns : int
        Between two frames, and from a frame's arrival.
    """

    name: str
    model: str
    variant: str
    stage_names: tuple[str, ...]
    stages: tuple[Stage, ...]
    times_ns: list[tuple[int, ...]]
    period_ns: int = 0
    deadline_ns: int = 0

    @property
    def cost_ns(self) -> float:
        """Median time of a frame, alone."""
        return float(np.median(np.sum(self.times_ns, axis=1)))


@dataclass
class Tally:
    """What one side made of its frames over all rounds; the executor's gaps by round."""

    seconds: float = 0.0
    frames: int = 0
    met: Counter[str] = field(default_factory=Counter)
    met_by_round: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    gaps_ns: list[list[int]] = field(default_factory=list)

    def add(self, seconds: float, frames: int, met: Counter[str]) -> None:
        """One round's."""
        self.seconds += seconds
        self.frames += frames
        self.met += met
        self.met_by_round.append(met.total() / seconds)

    @property
    def met_per_s(self) -> float:
        """Met frames a second, median of the rounds."""
        return float(np.median(self.met_by_round))

    def to_dict(self, costs_ns: Mapping[str, float], workers: int) -> dict[str, Any]:
        """For JSON; the work is that of the met frames, as a share of the workers' time."""
        work_ns = sum(count * costs_ns[task] for task, count in self.met.items())
        return {
            "frames": self.frames,
            "met_per_s": self.met_per_s,
            "met_per_s_by_round": [round(value, 2) for value in self.met_by_round],
            "met_ratio": self.met.total() / self.frames,
            "met_work": work_ns / 1e9 / self.seconds / workers,
            "outcomes": dict(self.outcomes.most_common()),
        }


class NetBench:
    """So many tasks, loaded once; each number of them is measured on both sides.

    Parameters
    ----------
    models : sequence of str
        Networks of the tasks, in turn.
    variant : str
        How they run; empty = as `choose_default` has it.
    most : int
        Tasks at most.
    workers, threads : int
        Worker threads of both sides, and threads of one inference.
    share : float
        Of a worker's time that the frames of one task take.
    deadline_factor : float
        Relative deadline over the period.
    """

    def __init__(
        self,
        models: Sequence[str],
        variant: str,
        *,
        most: int,
        workers: int,
        threads: int,
        share: float,
        deadline_factor: float,
    ) -> None:
        self._stack = ExitStack()
        self._workers, self._threads = workers, threads
        self._share, self._deadline_factor = share, deadline_factor
        scenes = [random_scene(held_out_seed(i), _SIZE).image for i in range(_SCENES)]
        self._frames = [Frame(image, "bgr8", 0, i) for i, image in enumerate(scenes)]
        self._executors: dict[int, Executor] = {}
        self._sequence = 0
        self._records: list[JobRecord] = []
        self.tallies: dict[tuple[int, str], Tally] = {}
        try:
            loaded = [self._load(models[i % len(models)], variant, i) for i in range(most)]
        except BaseException:
            self._stack.close()
            raise
        self.tasks = [self._set_rate(task, loaded) for task in loaded]

    def _set_rate(self, task: NetTask, loaded: Sequence[NetTask]) -> NetTask:
        """Give a task its period: the same for all of one network, from the runs of them all."""
        cost_ns = float(np.median([one.cost_ns for one in loaded if one.model == task.model]))
        period_ns = round(cost_ns / self._share)
        return replace(
            task, period_ns=period_ns, deadline_ns=round(self._deadline_factor * period_ns)
        )

    def _load(self, source: str, variant: str, index: int) -> NetTask:
        model = load_model(source, weights="none")
        name = variant or str(choose_default(model))
        variants = VariantSet(model, [name], DecoderSettings(), threads=self._threads)
        self._stack.callback(variants.close)
        if name not in variants.pipelines:
            raise ConfigurationError(f"--variant {name}: {variants.left_out[name]}")
        stages = variants.pipelines[name].stages
        times_ns = measure_stages(stages, self._frames, _WARM_UP_RUNS, SteadyClock())
        return NetTask(
            f"task-{index}", source, name, variants.stage_names, tuple(stages), times_ns
        )

    def load_of(self, count: int) -> float:
        """Work per second that the first `count` tasks bring to a worker, in seconds."""
        work = sum(task.cost_ns / task.period_ns for task in self.tasks[:count])
        return float(work) / self._workers

    def play(self, count: int, side: str, seconds: float) -> None:
        """One round of the first `count` tasks on a side.

        Raises
        ------
        BenchmarkError
            When a stage fails, or a job does not end.
        """
        tasks = self.tasks[:count]
        tally = self.tallies.setdefault((count, side), Tally())
        deadlines_ns = {task.name: task.deadline_ns for task in tasks}
        if side == SIDES[0]:
            executor = self._executor(count)
            self._records.clear()
            frames = self._release(
                tasks, lambda n, f: executor.submit(n, f, executor.clock.now_ns()), seconds
            )
            if not executor.wait_idle(_DRAIN_S):
                raise BenchmarkError(f"a job did not end within {_DRAIN_S:g} s")
            records = list(self._records)
            tally.outcomes.update(record.outcome.value for record in records)
            failed = [r.reason for r in records if r.outcome is Outcome.FAILED]
            if failed:
                raise BenchmarkError(failed[0])
            met = Counter(r.task for r in records if r.outcome is Outcome.MET)
            if self._workers == 1:
                tally.gaps_ns.append(_find_gaps_ns(records))
        else:
            queue = PlainQueue({task.name: task.stages for task in tasks}, self._workers)
            queue.start()
            frames = self._release(tasks, queue.submit, seconds)
            queue.stop()
            if queue.errors:
                raise BenchmarkError(str(queue.errors[0])) from queue.errors[0]
            late = [done.completed_ns - done.released_ns for done in queue.done]
            in_time = [
                done.task
                for done, age_ns in zip(queue.done, late, strict=True)
                if age_ns <= deadlines_ns[done.task]
            ]
            met = Counter(in_time)
            tally.outcomes.update(
                met=met.total(),
                late=len(queue.done) - met.total(),
                dropped=frames - len(queue.done),
            )
        tally.add(seconds, frames, met)

    def _release(self, tasks: Sequence[NetTask], submit: Submit, seconds: float) -> int:
        """Bring the frames of all tasks, each at its own rate; how many there were."""
        clock = SteadyClock()
        begin_ns = clock.now_ns()
        due = [
            (round(task.period_ns * (index * GOLDEN % 1.0)), index)
            for index, task in enumerate(tasks)
        ]
        heapq.heapify(due)
        count = 0
        while due[0][0] < seconds * 1e9:
            offset_ns, index = due[0]
            clock.sleep_until_ns(begin_ns + offset_ns)
            image = self._frames[self._sequence % len(self._frames)].image
            submit(tasks[index].name, Frame(image, "bgr8", 0, self._sequence))
            self._sequence += 1
            count += 1
            heapq.heapreplace(due, (offset_ns + tasks[index].period_ns, index))
        clock.sleep_until_ns(begin_ns + round(seconds * 1e9))
        return count

    def _executor(self, count: int) -> Executor:
        if count not in self._executors:
            executor = Executor(self._workers)
            for task in self.tasks[:count]:
                parameters = TaskParameters(
                    task.name,
                    task.deadline_ns,
                    task.period_ns,
                    task.stage_names,
                    (task.variant,),
                    task.variant,
                )
                executor.add_task(
                    parameters,
                    {task.variant: task.stages},
                    self._observe,
                    warm_up_times_ns={task.variant: task.times_ns},
                )
            executor.start()
            self._stack.callback(executor.stop)
            self._executors[count] = executor
        return self._executors[count]

    def _observe(self, record: JobRecord, work: Work) -> None:
        self._records.append(record)

    def close(self) -> None:
        """Stop the executors, give the networks back."""
        self._stack.close()


def _find_gaps_ns(records: Sequence[JobRecord]) -> list[int]:
    """Between stages on the one worker, where the next one was ready."""
    runs = [
        Run(0, record.task, record.sequence, stage.start_ns, 0, stage.end_ns, 0)
        for record in records
        for stage in record.stages
    ]
    released_ns = {(record.task, record.sequence): record.release_ns for record in records}
    return find_costs(runs, released_ns).wall_ns


def judge(met_per_s: Mapping[int, float], loads: Mapping[int, float]) -> list[dict[str, Any]]:
    """What each added task did to the met frames, beyond saturation.

    Parameters
    ----------
    met_per_s, loads : mapping of int to float
        By the number of tasks: met frames a second, and work per second and worker.

    Returns
    -------
    list of dict
        For each number of tasks with more work than the workers can do: ``change``, relative to
        the number before it, and ``below_best``, relative to the most of all smaller numbers.
    """
    rows = []
    for before, after in pairwise(sorted(met_per_s)):
        if loads[after] <= 1.0:
            continue
        best = max(met_per_s[count] for count in met_per_s if count < after)
        rows.append(
            {
                "tasks": after,
                "load": loads[after],
                "change": met_per_s[after] / met_per_s[before] - 1.0 if met_per_s[before] else 0.0,
                "below_best": 1.0 - met_per_s[after] / best if best else 0.0,
            }
        )
    return rows
