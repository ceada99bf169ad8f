# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Generated cases for the model of time: sets of frames with every option, and periodic tasks."""

from __future__ import annotations

import random
from collections.abc import Callable

from model_world import Truth

from jetson_dnn_rt.scheduling.model import (
    DECODE,
    NETWORK,
    PREPARE,
    Machine,
    ModelJob,
    StageTimes,
    State,
    VariantTimes,
)

MS = 1_000_000
SPAN_NS = 1_500 * MS


def make_times(
    prepare: int, network: int, decode: int, narrow: int = 0, *, cores: bool = True
) -> VariantTimes:
    """Three stages; without `narrow` the network cannot run so."""
    stages = [
        StageTimes(PREPARE, prepare),
        StageTimes(NETWORK, network, narrow_ns=narrow, cores=cores),
        StageTimes(DECODE, decode),
    ]
    return VariantTimes(stages)


def draw_case(rng: random.Random) -> tuple[Machine, list[ModelJob]]:
    """2 to 6 tasks with up to twice as many frames, on machines of all kinds."""
    count = rng.randint(2, 6)
    helpers = rng.choice([0, 1, 1, 2])
    limits = rng.choice([(), (1,), (2, 1)])
    machine = Machine(rng.choice([1, 1, 1, 2]), helpers, limits)
    machine.fifo = rng.random() < 0.1
    has_priorities, has_worths = rng.random() < 0.2, rng.random() < 0.3
    tasks = []
    for _ in range(count):
        times = _draw_times(rng, limits, can_run_narrow=helpers > 0)
        priority = rng.randint(0, 2) if has_priorities else 0
        worth = rng.choice([0.5, 1.0, 1.36, 2.0]) if has_worths else 1.0
        tasks.append((times, worth, priority))
    jobs: list[ModelJob] = []
    now, released = 0, set()
    for key in range(rng.randint(2, 2 * count)):
        now += rng.randint(0, 100) if key else 0
        task = rng.randrange(count)
        if (task, now) in released:
            continue
        released.add((task, now))
        times, worth, priority = tasks[task]
        deadline = now + int(times.rest_ns[0] * rng.uniform(0.9, 3.5))
        jobs.append(ModelJob(key, task, now, deadline, times, worth, priority, task))
    return machine, jobs


def _draw_times(
    rng: random.Random, limits: tuple[int, ...], *, can_run_narrow: bool
) -> VariantTimes:
    slow_down = rng.choice([0, 1.0, 1.1, 1.25, 1.5, 1.8]) if can_run_narrow else 0
    cores, device = rng.random() < 0.75, rng.randrange(-1, len(limits))
    stages = []
    if rng.random() < 0.85:
        its_device = device if rng.random() < 0.1 else -1
        stages.append(StageTimes(PREPARE, rng.randint(0, 20), device=its_device))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        wide = rng.randint(20, 100)
        narrow = round(wide * slow_down) if cores else 0
        stages.append(StageTimes(NETWORK, wide, narrow_ns=narrow, cores=cores, device=device))
    if rng.random() < 0.85:
        stages.append(StageTimes(DECODE, rng.randint(0, 20)))
    return VariantTimes(stages)


def draw_small_case(rng: random.Random) -> tuple[Machine, list[ModelJob]]:
    """2 to 4 frames of as many tasks on one worker: few enough to try every schedule."""
    jobs, now = [], 0
    for key in range(rng.randint(2, 4)):
        now += rng.randint(0, 60) if key else 0
        parts = (rng.randint(1, 20), rng.randint(20, 100), rng.randint(1, 20))
        narrow = round(parts[1] * rng.choice([1.1, 1.25, 1.5, 1.8]))
        times = make_times(*parts, narrow)
        deadline = now + int(times.rest_ns[0] * rng.uniform(1, 3))
        jobs.append(ModelJob(key, key, now, deadline, times, precedence=key))
    return Machine(1, rng.choice([0, 1, 1])), jobs


class Traffic:
    """4 to 6 periodic tasks for a second and a half, whose stages take `scatter` more or less."""

    def __init__(self, rng: random.Random, load: float, scatter: float = 0.3) -> None:
        count = rng.randint(4, 6)
        shares = [rng.uniform(0.5, 1.5) for _ in range(count)]
        self.jobs: list[ModelJob] = []
        self._periods_ns: list[int] = []
        for task, share in enumerate(shares):
            times = self._draw_times(rng, scatter)
            whole_ns = times.rest_ns[0]
            period_ns = int(whole_ns / (load * share / sum(shares)))
            limit_ns = max(int(1.3 * whole_ns), int(period_ns * rng.uniform(0.8, 1.2)))
            self._periods_ns.append(period_ns)
            now_ns = rng.randrange(period_ns)
            while now_ns < SPAN_NS:
                job = ModelJob(0, task, now_ns, now_ns + limit_ns, times, precedence=task)
                self.jobs.append(job)
                now_ns += int(period_ns * rng.uniform(0.98, 1.02))
        self.jobs.sort(key=lambda job: (job.release_ns, job.task))
        self._own: dict[int, list[ModelJob]] = {}
        for key, job in enumerate(self.jobs):
            job.key = key
            self._own.setdefault(job.task, []).append(job)
        self._noise = {
            (job.key, index): rng.uniform(1 - scatter, 1 + scatter)
            for job in self.jobs
            for index in range(3)
        }

    @staticmethod
    def _draw_times(rng: random.Random, scatter: float) -> VariantTimes:
        slow_down = rng.uniform(1.2, 1.8)
        stages = []
        for kind, (least, most) in ((PREPARE, (1, 4)), (NETWORK, (10, 40)), (DECODE, (1, 4))):
            time_ns = rng.randint(least, most) * MS
            narrow_ns = int(time_ns * slow_down) if kind == NETWORK else 0
            stages.append(
                StageTimes(
                    kind,
                    time_ns,
                    narrow_ns=narrow_ns,
                    cores=kind == NETWORK,
                    wide_variance=(scatter * time_ns) ** 2 / 3,  # uniform
                    narrow_variance=(scatter * narrow_ns) ** 2 / 3,
                )
            )
        return VariantTimes(stages)

    @property
    def truth(self) -> Truth:
        """How long a stage really takes."""
        return lambda job, time_ns: max(1, int(time_ns * self._noise[job.key, job.index]))

    @property
    def expect(self) -> Callable[[State], list[ModelJob]]:
        """The next frame of each task that has sent three, as far as its period tells."""

        def expect(state: State) -> list[ModelJob]:
            expected = []
            for task, jobs in self._own.items():
                past = [job for job in jobs if job.release_ns <= state.now_ns]
                if len(past) < 3 or len(past) == len(jobs):
                    continue
                last, period_ns = past[-1], self._periods_ns[task]
                due_ns = last.release_ns + period_ns
                if due_ns + 3 * MS <= state.now_ns:
                    continue  # it did not come
                due_ns = max(due_ns, state.now_ns + MS)
                limit_ns = last.deadline_ns - last.release_ns
                key = jobs[len(past)].key
                expected.append(
                    ModelJob(key, task, due_ns, due_ns + limit_ns, last.times, precedence=task)
                )
            return expected

        return expect
