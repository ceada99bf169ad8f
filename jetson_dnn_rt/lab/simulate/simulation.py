# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The simulator: the scheduling engine under a virtual clock.

The second driver of `jetson_dnn_rt.scheduling.engine.Engine`, beside the executor: it calls the
same methods in the same order, but takes the time from a heap of events, and the duration of a
stage from a `World`. Events of one instant are handled by kind, then in the order of their
creation (simpy's heap key), so that a run is reproducible.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.simulate.board import Thermal
from jetson_dnn_rt.lab.simulate.world import World, WorldTask
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import is_in_network
from jetson_dnn_rt.tasks import JobRecord, Work

CLOCKS, SURROUNDINGS, STAGE_END, RELEASE, WAKE = range(5)
"""Kinds of events, in the order in which those of one instant are handled."""

_AWAKE = "awake"
"""Of the event `WAKE`: the time until an idle worker looks for work is over, and with it the
overhead. An event that the engine asked for has None, since a stage that was held then begins as
late as any."""

Quiet = Sequence[float]
"""Shares of a stage's time in which GPU, CPU and memory do not work for it."""

_NO_IMAGE = np.zeros((0, 0), np.uint8)


class ThermalState:
    """Temperature of the chip, and whether the kernel throttles.

    ``C dT/dt = P - (T - T_air) / R``; between two readings the power counts with its mean, for
    which the solution is exact.
    """

    def __init__(self, thermal: Thermal) -> None:
        self._thermal = thermal
        self.temperature_c = thermal.initial_c
        self.throttled = thermal.initial_c >= thermal.trip_c

    def advance(self, time_ns: int, mean_power_w: float) -> bool:
        """Advance at a mean power; return whether `throttled` changed."""
        thermal = self._thermal
        time_constant_s = thermal.resistance_k_per_w * thermal.capacity_j_per_k
        final_c = thermal.ambient_c + thermal.resistance_k_per_w * mean_power_w
        decay = math.exp(-time_ns * 1e-9 / time_constant_s)
        self.temperature_c = final_c + (self.temperature_c - final_c) * decay
        before = self.throttled
        if self.temperature_c >= thermal.trip_c:
            self.throttled = True
        elif self.temperature_c <= thermal.trip_c - thermal.hysteresis_k:
            self.throttled = False
        return self.throttled != before


class _Task:
    """State of a task; true times are lists, since numpy is slow item by item."""

    def __init__(self, truth: WorldTask) -> None:
        self.name = truth.parameters.name
        self.arrivals = truth.arrivals
        self.variants = {variant: v for v, variant in enumerate(truth.parameters.variants)}
        self.base_ns = truth.base_ns.tolist()
        self.noise = truth.noise.tolist()
        # Both by level, variant, clocks and stage.
        self.slowdown = truth.slowdown.transpose(0, 1, 3, 2).tolist()
        self.quiet = (1.0 - truth.activity).transpose(0, 1, 3, 2, 4).tolist()
        self.loss = truth.loss.tolist()
        self.narrow = None if truth.narrow is None else truth.narrow.tolist()
        self.overhead_ns = truth.overhead_ns.tolist()
        self.wake_ns = truth.wake_ns.tolist()
        self.report_ns = None if truth.report_ns is None else truth.report_ns.tolist()
        self.arrived = 0
        self.rows: dict[int, int] = {}
        self.frame_loss = 0.0
        self.frame_watt_ns = 0.0


@dataclass(slots=True, eq=False)
class _Run:
    """A running stage."""

    task: _Task
    job: Job
    variant: int
    stage: int
    span: int
    start_ns: int
    end_ns: int
    report_ns: int  # from there to when the engine is told
    rate: float  # slow-down by clocks, throttling and co-runners that `end_ns` was computed with
    quiet: Quiet
    event: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedFrame:
    """Outcome of one frame."""

    record: JobRecord  # as the executor would have written it
    accuracy: float  # 1 minus the losses of what ran
    energy_j: float  # of the board while its stages ran, divided among the stages side by side


Observer = Callable[[SimulatedFrame], None]


class Simulation:
    """One run of a world.

    `observer` is called with every frame that ends, in order. `clocks` is the position at first,
    by default the fastest. With `instant_clocks` a change takes no time: for the oracle. Set the
    engine's selector and seed its budgets before `run`.
    """

    def __init__(
        self,
        world: World,
        observer: Observer,
        *,
        clocks: int | None = None,
        instant_clocks: bool = False,
    ) -> None:
        self.world = world
        self.engine = Engine(world.workers, world.discipline, helpers=world.helpers)
        self.now_ns = 0
        # Position in effect.
        self.clocks = world.clock_table.fastest if clocks is None else clocks
        self.clock_log = [(0, self.clocks)]  # when each position took effect
        self._observer = observer
        self._instant_clocks = instant_clocks
        self._tasks: dict[str, _Task] = {}
        self._heap: list[tuple[int, int, int, object]] = []
        self._count = 0
        self._running: dict[Job, _Run] = {}
        self._level = 0
        self._co_runner = 1.0
        self._co_runner_w = 0.0
        self._clock_event = 0
        self._wake_ns = 0
        self._asked_ns: int | None = None  # time of the last event that the engine asked for
        # The power is constant between two events, so that its integral is exact.
        self._power_w = 0.0
        self._counted_ns = 0
        self._watt_ns = 0.0
        # By the number of stages already running; the last entry applies to all beyond.
        beyond = self.engine.threads - len(world.interference)
        self._interference = [*world.interference, *world.interference[-1:] * beyond]
        self._idle_w = world.idle_w.tolist()
        self._dynamic_w = world.dynamic_w.tolist()
        self._thermal = ThermalState(world.thermal) if world.thermal else None
        self._thermal_energy_j = 0.0
        self._thermal_ns = 0
        for truth in world.tasks:
            self._tasks[truth.parameters.name] = _Task(truth)
            state = self.engine.add_task(truth.parameters, truth.spans)
            state.set_narrow(truth.narrow_slowdowns)

    @property
    def energy_j(self) -> float:
        """Energy of the board up to the last event."""
        return self._watt_ns * 1e-9

    def request_clocks(self, position: int, now_ns: int) -> int:
        """Change the clocks after their delay, dropping a pending change; return when, in ns."""
        if self._instant_clocks:
            self._clock_event = 0
            self._change_clocks(position)
            return now_ns
        at_ns = now_ns + self.world.clock_table.delay_ns(self.clocks, position)
        self._clock_event = self._push(at_ns, CLOCKS, position)
        return at_ns

    def run(self) -> None:
        """Run until the last job has ended and the world's end is reached."""
        world = self.world
        for task in self._tasks.values():
            if task.arrivals:
                self._push(task.arrivals[0][0], RELEASE, task)
        for other in world.co_runners:
            self._push(round(other.from_s * 1e9), SURROUNDINGS, None)
            self._push(round(other.until_s * 1e9), SURROUNDINGS, None)
        if world.thermal is not None:
            self._level = int(self._thermal is not None and self._thermal.throttled)
            self._push(round(world.thermal.poll_ms * 1e6), SURROUNDINGS, self._thermal)
        self._see_co_runners()
        self._set_power()
        heap, pop = self._heap, heapq.heappop
        while heap:
            now_ns, kind, number, what = pop(heap)
            if kind == STAGE_END:
                run: _Run = what  # type: ignore[assignment]
                if run.event == number:
                    self.now_ns = now_ns
                    self._end_stage(run)
                continue
            if kind in (CLOCKS, SURROUNDINGS) and now_ns > world.end_ns and not self._running:
                continue
            self.now_ns = now_ns
            if kind == RELEASE:
                self._advance_energy()
                self._release(what)  # type: ignore[arg-type]
                if not (heap and heap[0][0] == now_ns and heap[0][1] == RELEASE):
                    self._wake_worker()
            elif kind == WAKE:
                self._advance_energy()
                self._dispatch(awake=what is not None)
            elif kind == SURROUNDINGS:
                self._look_around(what)
            elif number == self._clock_event:
                self._change_clocks(what)  # type: ignore[arg-type]
        self.now_ns = max(self.now_ns, world.end_ns)
        self._advance_energy()

    def _push(self, time_ns: int, kind: int, what: object) -> int:
        self._count += 1
        heapq.heappush(self._heap, (time_ns, kind, self._count, what))
        return self._count

    def _release(self, task: _Task) -> None:
        release_ns, capture_ns, sequence = task.arrivals[task.arrived]
        task.rows[sequence] = task.arrived
        self._wake_ns = max(self._wake_ns, task.wake_ns[task.arrived])
        task.arrived += 1
        if task.arrived < len(task.arrivals):
            self._push(task.arrivals[task.arrived][0], RELEASE, task)
        frame = Frame(_NO_IMAGE, "mono8", capture_ns, sequence)
        self.engine.release(task.name, release_ns, capture_ns, Work(frame))
        self._take_ended()

    def _wake_worker(self) -> None:
        """Wake an idle worker after the releases of one instant: it decides once it is awake."""
        wake_ns, self._wake_ns = self._wake_ns, 0
        if wake_ns and len(self._running) < self.engine.threads:
            self._push(self.now_ns + wake_ns, WAKE, _AWAKE)
        else:
            self._dispatch()

    def _dispatch(self, *, awake: bool = False) -> None:
        """Give every free worker a stage; for one that just woke up the overhead is over."""
        engine, now_ns = self.engine, self.now_ns
        while (job := engine.next(now_ns)) is not None:
            if not job.path:
                # The previous frame may just have ended: process its results first.
                self._take_ended()
            self._start_stage(job, awake=awake)
        again_ns = engine.ask_again_ns
        if again_ns is not None and again_ns != self._asked_ns:
            self._asked_ns = again_ns
            self._push(again_ns, WAKE, None)
        self._take_ended()
        self._set_power()

    def _start_stage(self, job: Job, *, awake: bool) -> None:
        task = self._tasks[job.task]
        variant = task.variants[job.variant]
        stage = job.next_stage
        state = self.engine.tasks[job.task]
        span = state.spans[job.variant][stage]
        if not job.path:
            task.frame_loss = task.frame_watt_ns = 0.0
        row = task.rows[job.sequence]
        noise = task.noise[row]
        base_ns = task.base_ns[variant]
        rate = task.slowdown[self._level][variant][self.clocks][stage] * self._co_runner
        work_ns = base_ns[stage] * noise[stage]
        loss = task.loss[variant]
        task.frame_loss += loss[stage]
        for covered in range(stage + 1, stage + span):
            work_ns += base_ns[covered] * noise[covered]
            task.frame_loss += loss[covered]
        work_ns *= rate * self._interference[len(self._running)]
        if job.work.narrow and task.narrow is not None and is_in_network(state, job):
            work_ns *= task.narrow[variant][stage]
        start_ns = self.now_ns + (0 if awake else task.overhead_ns[row][stage])
        end_ns = start_ns + max(1, round(work_ns))
        quiet = task.quiet[self._level][variant][self.clocks][stage]
        report_ns = 0
        if task.report_ns is not None and stage + span == len(base_ns):
            report_ns = task.report_ns[row]
        run = _Run(task, job, variant, stage, span, start_ns, end_ns, report_ns, rate, quiet)
        self._running[job] = run
        run.event = self._push(end_ns + report_ns, STAGE_END, run)

    def _end_stage(self, run: _Run) -> None:
        self._advance_energy()
        job, now_ns = run.job, self.now_ns
        del self._running[job]
        self.engine.boundary(job, now_ns, run.start_ns, run.end_ns)
        if job.ended:
            self._take_ended()
        self._dispatch()

    def _take_ended(self) -> None:
        for record, _ in self.engine.take_ended():
            task = self._tasks[record.task]
            del task.rows[record.sequence]
            started = record.start_ns is not None
            self._observer(
                SimulatedFrame(
                    record,
                    1.0 - task.frame_loss if started else 0.0,
                    task.frame_watt_ns * 1e-9 if started else 0.0,
                )
            )

    def _change_clocks(self, position: int) -> None:
        self._advance_energy()
        if position != self.clocks:
            self.clocks = position
            self.clock_log.append((self.now_ns, position))
            self._rescale()
        self._set_power()

    def _look_around(self, what: object) -> None:
        self._advance_energy()
        if what is not None:
            assert self._thermal is not None
            assert self.world.thermal is not None
            elapsed_ns = self.now_ns - self._thermal_ns
            energy_j = self.energy_j - self._thermal_energy_j
            self._thermal_ns, self._thermal_energy_j = self.now_ns, self.energy_j
            if self._thermal.advance(elapsed_ns, energy_j / (elapsed_ns * 1e-9)):
                self._level = int(self._thermal.throttled)
                self._rescale()
            poll_ns = round(self.world.thermal.poll_ms * 1e6)
            if self.now_ns < self.world.end_ns:
                self._push(self.now_ns + poll_ns, SURROUNDINGS, what)
        else:
            self._see_co_runners()
            self._rescale()
        self._set_power()

    def _see_co_runners(self) -> None:
        self._co_runner = self.world.co_runner_slowdown(self.now_ns)
        self._co_runner_w = sum(
            other.power_w
            for other in self.world.co_runners
            if other.from_s * 1e9 <= self.now_ns < other.until_s * 1e9
        )

    def _rescale(self) -> None:
        """Continue the rest of the running stages at their new speed."""
        now_ns = self.now_ns
        for run in self._running.values():
            level = run.task.slowdown[self._level]
            rate = level[run.variant][self.clocks][run.stage] * self._co_runner
            run.quiet = run.task.quiet[self._level][run.variant][self.clocks][run.stage]
            if rate == run.rate or now_ns >= run.end_ns:
                continue
            # A stage that has not begun yet waits for its worker at the speed it had.
            done_ns = max(now_ns, run.start_ns)
            run.end_ns = done_ns + max(1, round((run.end_ns - done_ns) * rate / run.rate))
            run.rate = rate
            run.event = self._push(run.end_ns + run.report_ns, STAGE_END, run)

    def _set_power(self) -> None:
        """Set the power from now on; energy must be counted up to now.

        A part of the board (GPU, CPU, memory) works while any of the stages side by side uses it.
        Their uses are taken as independent: with shares a and b it works 1 - (1 - a)(1 - b) of
        the time, which is a for a stage alone and never more than 1.
        """
        dynamic_w = self._dynamic_w[self._level][self.clocks]
        gpu = cpu = memory = 1.0
        for run in self._running.values():
            gpu *= run.quiet[0]
            cpu *= run.quiet[1]
            memory *= run.quiet[2]
        self._power_w = self._co_runner_w + (
            self._idle_w[self._level][self.clocks]
            + dynamic_w[0] * (1.0 - gpu)
            + dynamic_w[1] * (1.0 - cpu)
            + dynamic_w[2] * (1.0 - memory)
        )

    def _advance_energy(self) -> None:
        watt_ns = self._power_w * (self.now_ns - self._counted_ns)
        self._watt_ns += watt_ns
        self._counted_ns = self.now_ns
        if watt_ns and self._running:
            share = watt_ns / len(self._running)
            for run in self._running.values():
                run.task.frame_watt_ns += share
