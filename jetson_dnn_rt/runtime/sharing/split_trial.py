# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames of all tasks played with a split of the cores, in an executor of its own.

What is played is what will run: the loaded networks, the scheduling engine, the workers; only the
frames are those of the warm-up, all tasks' first ones at once, as from one camera.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, NarrowTimes
from jetson_dnn_rt.runtime.sharing.split_choice import ImplausibleError
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import Outcome

LEAD_NS = 2_000_000  # before the first frame of a round
WAIT_S = 5.0  # for the last frames of a round; a stage that hangs takes longer


class SplitTrial:
    """Plays rounds of frames of loaded tasks, none of which is active; close it.

    A round has `periods` periods of the slowest task. The first one of a split does not count.
    `helpers` has the helpers of each split.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        times: NarrowTimes,
        process: ProcessConfig,
        helpers: Mapping[CoreSplit, int],
        clock: Clock,
        periods_ns: Mapping[str, int],
        deadlines_ns: Mapping[str, int],
        periods: int,
    ) -> None:
        self._tasks, self._times = tasks, times
        self._process, self._helpers, self._clock = process, helpers, clock
        self._periods_ns, self._deadlines_ns = periods_ns, deadlines_ns
        self._arrivals = list(plan_arrivals(periods_ns, periods))
        self._executors: dict[CoreSplit, Executor] = {}
        # One release for all tasks whose frames look alike: a camera has one for all.
        self._alike: dict[tuple[object, ...], list[str]] = {}
        for name, task in tasks.items():
            frame = task.frame
            form = (frame.image.shape, frame.encoding, frame.device_address)
            self._alike.setdefault(form, []).append(name)

    def play(self, split: CoreSplit) -> float:
        """Play a round with a split; the share of its frames that met their deadlines.

        `ImplausibleError` when frames failed, were lost, or did not end.
        """
        if split not in self._executors:
            self._executors[split] = self._start(split)
            self._play(split)
        return self._play(split)

    def close(self) -> None:
        """Stop all executors; the tasks are as they were."""
        for task in self._tasks.values():
            task.variants.run_narrow(False)
        for executor in self._executors.values():
            executor.stop()

    def _start(self, split: CoreSplit) -> Executor:
        process, times = self._process, self._times
        executor = Executor(
            split.workers,
            process.discipline,
            process,
            self._clock,
            process.device_limits,
            self._helpers[split],
            process.cancel_for_urgent,
        )
        slowdowns = times.of_split(split)
        for number, (name, task) in enumerate(self._tasks.items()):
            variant = task.default
            parameters = task.config.for_engine(
                task.stage_names,
                (variant,),
                variant,
                period_ns=self._periods_ns[name],
                deadline_ns=self._deadlines_ns[name],
                precedence=number,
            )
            alone_ns = task.warm_up_times_ns[variant]
            beside_ns = times.beside.get(name, alone_ns)
            executor.add_task(
                parameters,
                {variant: task.stages[variant]},
                lambda record, work: None,
                warm_up_times_ns={variant: beside_ns if split.workers > 1 else alone_ns},
                stage_timeout_ns=int(task.config.stage_timeout_ms * 1e6),
                narrow_slowdowns=slowdowns.get(name, ()),
                cancel_latencies_ns=task.cancel_latencies_ns,
            )
        executor.start()
        return executor

    def _play(self, split: CoreSplit) -> float:
        executor, clock = self._executors[split], self._clock
        for task in self._tasks.values():
            task.variants.run_narrow(split.workers > 1)
        before = self._count(executor)
        begin_ns, submitted = clock.now_ns() + LEAD_NS, 0
        for number, (due_ns, due) in enumerate(self._arrivals):
            clock.sleep_until_ns(begin_ns + due_ns)
            for group in self._alike.values():
                names = [name for name in group if name in due]
                if names:
                    frame = replace(self._tasks[names[0]].frame, sequence=number)
                    executor.submit(names, frame, begin_ns + due_ns)
                    submitted += len(names)
        if not executor.wait_idle(WAIT_S):
            raise ImplausibleError(f"with {split} a frame did not end within {WAIT_S:g} s")
        released, met, failed = (
            now - then for now, then in zip(self._count(executor), before, strict=True)
        )
        if failed or released != submitted:
            raise ImplausibleError(
                f"with {split} {failed} of {submitted} frames failed, {submitted - released} were "
                "lost"
            )
        return met / released

    def _count(self, executor: Executor) -> tuple[int, int, int]:
        """Frames so far, those that were met, and those that failed."""
        counts = [executor.snapshot(name) for name in self._tasks]
        return (
            sum(count.released for count in counts),
            sum(count.outcomes[Outcome.MET] for count in counts),
            sum(count.outcomes[Outcome.FAILED] for count in counts),
        )


def plan_arrivals(
    periods_ns: Mapping[str, int], periods: int
) -> Iterator[tuple[int, Sequence[str]]]:
    """Times of frames in so many periods of the slowest task, and the tasks that get one."""
    end_ns = periods * max(periods_ns.values())
    due = sorted((0, name) for name in periods_ns)  # a heap
    while due[0][0] < end_ns:
        now_ns = due[0][0]
        names = []
        while due[0][0] == now_ns:
            name = due[0][1]
            heapq.heapreplace(due, (now_ns + periods_ns[name], name))
            names.append(name)
        yield now_ns, names
