"""More and more tasks with real networks: what becomes of the frames beyond saturation.

Every task has a network, buffers and a camera of its own; the cameras are out of step. Each task
alone takes the same share of a core, so that the work that arrives grows with every task. Two
sides run the same stages on as many workers, in turn: this package's executor, and one queue
without deadlines (`FifoQueue`). Both are judged alike: a frame is met when its last stage is over
within the task's relative deadline after it came. On one worker the gaps between stages are taken
from the executor's own records (`find_costs`).
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.queue import FifoQueue
from benchmarks.harness.tasks import configure, drain, draw_frames, find_cost_ns, open_session
from benchmarks.scale.cost import Run, find_costs
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work

SIDES = ("executor", "plain queue")
GOLDEN = 0.6180339887498949
"""Phases at multiples of it are spread evenly, however many there are."""

_SCENES = 4

Submit = Callable[[str, Frame], None]


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
    """So many tasks, loaded once; each number of them is measured on both sides."""

    def __init__(self, stack: ExitStack, args: argparse.Namespace) -> None:
        self._workers = args.workers
        self._frames = draw_frames(_SCENES)
        self._sequence = 0
        self._records: list[JobRecord] = []
        self.tallies: dict[tuple[int, str], Tally] = {}
        variants = [args.variant] if args.variant else []
        configs = [
            configure(f"task-{i}", args.models[i % len(args.models)], variants)
            for i in range(args.tasks[-1])
        ]
        self._session = stack.enter_context(
            open_session(configs, self._frames, args.threads, workers=args.workers)
        )
        self._session.observe(lambda record, result: self._records.append(record))
        self.tasks = list(self._session.tasks.values())
        self.costs_ns = {task.name: find_cost_ns(task) for task in self.tasks}
        self._periods_ns: dict[str, int] = {}
        self._deadlines_ns: dict[str, int] = {}
        for one in configs:
            # The same period for all of one network, from the runs of them all.
            alike = [self.costs_ns[other.name] for other in configs if other.model == one.model]
            period_ns = self._periods_ns[one.name] = round(float(np.median(alike)) / args.share)
            self._deadlines_ns[one.name] = round(args.deadline_factor * period_ns)

    def load_of(self, count: int) -> float:
        """Work per second that the first `count` tasks bring to a worker, in seconds."""
        names = [task.name for task in self.tasks[:count]]
        work = sum(self.costs_ns[name] / self._periods_ns[name] for name in names)
        return work / int(self._workers)

    def play(self, count: int, side: str, seconds: float) -> None:
        """One round of the first `count` tasks on a side."""
        tasks = self.tasks[:count]
        tally = self.tallies.setdefault((count, side), Tally())
        if side == SIDES[0]:
            session = self._session
            self._records.clear()
            for task in tasks:
                session.activate(
                    task.name, period_ns=self._periods_ns[task.name],
                    deadline_ns=self._deadlines_ns[task.name],
                )  # fmt: skip
            session.commit()
            frames = self._release(tasks, lambda n, f: session.submit(f, [n]), seconds)
            drain(session)
            for task in tasks:
                session.deactivate(task.name)
            records = list(self._records)
            tally.outcomes.update(record.outcome.value for record in records)
            failed = [r.reason for r in records if r.outcome is Outcome.FAILED]
            if failed:
                raise BenchmarkError(failed[0])
            met = Counter(r.task for r in records if r.outcome is Outcome.MET)
            if self._workers == 1:
                tally.gaps_ns.append(_find_gaps_ns(records))
        else:
            stages = {task.name: task.stages[task.default] for task in tasks}
            queue = FifoQueue(self._workers)
            done: list[tuple[str, int, Exception | None]] = []

            def submit(name: str, frame: Frame) -> None:
                work, begin_ns = Work(frame), time.monotonic_ns()
                queue.submit(
                    name,
                    [partial(stage.run, work) for stage in stages[name]],
                    lambda error: done.append((name, time.monotonic_ns() - begin_ns, error)),
                )

            frames = self._release(tasks, submit, seconds)
            queue.stop()
            for _, _, error in done:
                if error is not None:
                    raise BenchmarkError(str(error)) from error
            met = Counter(name for name, age_ns, _ in done if age_ns <= self._deadlines_ns[name])
            tally.outcomes.update(
                met=met.total(), late=len(done) - met.total(), dropped=frames - len(done)
            )
        tally.add(seconds, frames, met)

    def _release(self, tasks: Sequence[Task], submit: Submit, seconds: float) -> int:
        """Bring the frames of all tasks, each at its own rate; how many there were."""
        clock = SteadyClock()
        begin_ns = clock.now_ns()
        due = [
            (round(self._periods_ns[task.name] * (index * GOLDEN % 1.0)), index)
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
            heapq.heapreplace(due, (offset_ns + self._periods_ns[tasks[index].name], index))
        clock.sleep_until_ns(begin_ns + round(seconds * 1e9))
        return count


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

    Both arguments are by the number of tasks, loads as work per second and worker. For each number
    with more work than the workers can do: ``change`` is relative to the number before it, and
    ``below_best`` to the most of all smaller numbers.
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
