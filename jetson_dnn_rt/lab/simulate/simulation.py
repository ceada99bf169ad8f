"""The simulator: the scheduling engine under a virtual clock.

The second driver of `jetson_dnn_rt.scheduling.engine.Engine`, beside the executor: it calls the
same methods in the same order, but takes the time from a heap of events, and how long a stage
takes from a `World`. Events of one instant go in the order of their kind, then of their making
(simpy's heap key), so that a run is the same every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.simulate.power import EnergyMeter, Quiet, board_power_w
from jetson_dnn_rt.lab.simulate.thermal import ThermalState
from jetson_dnn_rt.lab.simulate.world import World, WorldTask
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import JobRecord, Work

CLOCKS, SURROUNDINGS, STAGE_END, RELEASE, WAKE = range(5)
"""Kinds of events, in the order in which those of one instant go."""

_NO_IMAGE = np.zeros((0, 0), np.uint8)


@dataclass(slots=True, eq=False)
class _Task:
    """A task while it is simulated; the truth as lists, since numpy is slow item by item."""

    truth: WorldTask
    variants: dict[str, int]
    base_ns: list[list[float]]
    noise: list[list[float]]
    slowdown: list[list[list[list[float]]]]
    """[level][variant][clocks][stage]"""
    quiet: list[list[list[list[Quiet]]]]
    """[level][variant][clocks][stage]"""
    loss: list[list[float]]
    overhead_ns: list[list[int]]
    wake_ns: list[int]
    arrived: int = 0
    rows: dict[int, int] = field(default_factory=dict)
    frame_loss: float = 0.0
    frame_watt_ns: float = 0.0
    path: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Run:
    """A stage that runs."""

    task: _Task
    job: Job
    variant: int
    stage: int
    span: int
    start_ns: int
    end_ns: int
    rate: float
    """Slow-down by clocks, throttling and co-runners that `end_ns` was computed with."""
    quiet: Quiet
    event: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedFrame:
    """What became of one frame.

    Attributes
    ----------
    record : JobRecord
        As the executor would have written it.
    accuracy : float
        1 minus the losses of what ran.
    energy_j : float
        Of the board while its stages ran, divided among the stages side by side.
    """

    record: JobRecord
    accuracy: float
    energy_j: float


Observer = Callable[[SimulatedFrame], None]


class Simulation:
    """One run of a world.

    Parameters
    ----------
    world : World
        What happens.
    observer : callable
        Called with every frame that ends, in order.
    clocks : int, optional
        Position in effect at first; the fastest by default.
    instant_clocks : bool
        Clock changes take no time: for the oracle, as a bound.

    Attributes
    ----------
    engine : Engine
        Its tasks are there; set the selector and seed the budgets before `run`.
    clocks : int
        Position in effect.
    now_ns : int
        The virtual clock.
    clock_log : list of (int, int)
        When which position came into effect, from the first one on.
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
        self.engine = Engine(world.workers, world.discipline)
        self.now_ns = 0
        self.clocks = world.clock_table.fastest if clocks is None else clocks
        self.clock_log = [(0, self.clocks)]
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
        self._meter = EnergyMeter()
        self._interference = [world.interference_of(n) for n in range(1, world.workers + 1)]
        self._idle_w = world.idle_w.tolist()
        self._dynamic_w = world.dynamic_w.tolist()
        self._thermal = ThermalState(world.thermal) if world.thermal else None
        self._thermal_energy_j = 0.0
        self._thermal_ns = 0
        for truth in world.tasks:
            self._tasks[truth.name] = _unpack(truth)
            self.engine.add_task(truth.parameters, truth.spans)

    @property
    def energy_j(self) -> float:
        """Of the board, up to now."""
        return self._meter.energy_j

    @property
    def temperature_c(self) -> float | None:
        """Of the chip at its last look; None for a board without."""
        return self._thermal.temperature_c if self._thermal else None

    def request_clocks(self, position: int, now_ns: int) -> int:
        """Change the clocks, after their delay; a change that is under way is given up.

        Returns
        -------
        int
            When it takes effect.
        """
        if self._instant_clocks:
            self._clock_event = 0
            self._change_clocks(position)
            return now_ns
        at_ns = now_ns + self.world.clock_table.delay_ns(self.clocks, position)
        self._clock_event = self._push(at_ns, CLOCKS, position)
        return at_ns

    def run(self) -> None:
        """Let everything happen, until the last job ended and the world's end."""
        world = self.world
        for truth in world.tasks:
            if truth.arrivals:
                self._push(truth.arrivals[0][0], RELEASE, self._tasks[truth.name])
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
            if kind == RELEASE:
                self.now_ns = now_ns
                self._advance_energy()
                self._release(what)  # type: ignore[arg-type]
                if not (heap and heap[0][0] == now_ns and heap[0][1] == RELEASE):
                    self._wake_worker()
                continue
            if kind == WAKE:
                self.now_ns = now_ns
                self._advance_energy()
                self._dispatch(awake=True)
                continue
            if now_ns > world.end_ns and not self._running:
                continue
            self.now_ns = now_ns
            if kind == CLOCKS:
                if number == self._clock_event:
                    self._change_clocks(what)  # type: ignore[arg-type]
            else:
                self._look_around(what)
        self.now_ns = max(self.now_ns, world.end_ns)
        self._advance_energy()

    # -- events --------------------------------------------------------------------------------

    def _push(self, time_ns: int, kind: int, what: object) -> int:
        self._count += 1
        heapq.heappush(self._heap, (time_ns, kind, self._count, what))
        return self._count

    def _release(self, task: _Task) -> None:
        release_ns, capture_ns, sequence = task.truth.arrivals[task.arrived]
        task.rows[sequence] = task.arrived
        self._wake_ns = max(self._wake_ns, task.wake_ns[task.arrived])
        task.arrived += 1
        if task.arrived < len(task.truth.arrivals):
            self._push(task.truth.arrivals[task.arrived][0], RELEASE, task)
        frame = Frame(_NO_IMAGE, "mono8", capture_ns, sequence)
        self.engine.release(task.truth.name, release_ns, capture_ns, Work(frame))
        self._take_ended()

    def _wake_worker(self) -> None:
        """After the releases of one instant: an idle worker decides when it is awake."""
        wake_ns, self._wake_ns = self._wake_ns, 0
        if wake_ns and len(self._running) < self.world.workers:
            self._push(self.now_ns + wake_ns, WAKE, None)
        else:
            self._dispatch()

    def _dispatch(self, *, awake: bool = False) -> None:
        """Give every free worker a stage; one that has just woken up has lost its time already."""
        engine, now_ns = self.engine, self.now_ns
        while (job := engine.next(now_ns)) is not None:
            if not job.path:
                # The frame that it follows may just have ended: its figures are taken first.
                self._take_ended()
            self._start_stage(job, awake=awake)
        self._take_ended()
        self._set_power()

    def _start_stage(self, job: Job, *, awake: bool) -> None:
        task = self._tasks[job.task]
        variant = task.variants[job.variant]
        stage = job.next_stage
        span = self.engine.tasks[job.task].spans[job.variant][stage]
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
        start_ns = self.now_ns + (0 if awake else task.overhead_ns[row][stage])
        end_ns = start_ns + max(1, round(work_ns))
        quiet = task.quiet[self._level][variant][self.clocks][stage]
        run = _Run(task, job, variant, stage, span, start_ns, end_ns, rate, quiet)
        self._running[job] = run
        run.event = self._push(end_ns, STAGE_END, run)

    def _end_stage(self, run: _Run) -> None:
        self._advance_energy()
        job, now_ns = run.job, self.now_ns
        del self._running[job]
        self.engine.boundary(job, now_ns, run.start_ns, now_ns)
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

    # -- clocks and surroundings ---------------------------------------------------------------

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
            energy_j = self._meter.energy_j - self._thermal_energy_j
            self._thermal_ns, self._thermal_energy_j = self.now_ns, self._meter.energy_j
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
        """What is left of the running stages goes on at another speed."""
        now_ns = self.now_ns
        for run in self._running.values():
            level = run.task.slowdown[self._level]
            rate = level[run.variant][self.clocks][run.stage] * self._co_runner
            run.quiet = run.task.quiet[self._level][run.variant][self.clocks][run.stage]
            if rate == run.rate:
                continue
            # A stage that has not begun yet waits for its worker at the speed it had.
            done_ns = max(now_ns, run.start_ns)
            run.end_ns = done_ns + max(1, round((run.end_ns - done_ns) * rate / run.rate))
            run.rate = rate
            run.event = self._push(run.end_ns, STAGE_END, run)

    # -- power ---------------------------------------------------------------------------------

    def _set_power(self) -> None:
        """Power from now on; energy must be counted up to now."""
        level, clocks = self._level, self.clocks
        self._meter.power_w = self._co_runner_w + board_power_w(
            self._idle_w[level][clocks],
            self._dynamic_w[level][clocks],
            [run.quiet for run in self._running.values()],
        )

    def _advance_energy(self) -> None:
        watt_ns = self._meter.advance(self.now_ns)
        if watt_ns and self._running:
            share = watt_ns / len(self._running)
            for run in self._running.values():
                run.task.frame_watt_ns += share


def _unpack(truth: WorldTask) -> _Task:
    return _Task(
        truth=truth,
        variants={variant: v for v, variant in enumerate(truth.parameters.variants)},
        base_ns=truth.base_ns.tolist(),
        noise=truth.noise.tolist(),
        slowdown=truth.slowdown.transpose(0, 1, 3, 2).tolist(),
        quiet=(1.0 - truth.activity).transpose(0, 1, 3, 2, 4).tolist(),
        loss=truth.loss.tolist(),
        overhead_ns=truth.overhead_ns.tolist(),
        wake_ns=truth.wake_ns.tolist(),
    )
