"""A recorded run as a world: its arrivals as they were, its execution times in blocks put anew.

A job trace (of ``jetson-dnn-rt run --output``) says when every frame was released
and how long each of its stages took. In the simulator the frames come again at the same times, and
take the times of other recorded frames: recorded time is cut into blocks, and blocks drawn at
random are put one after the other. Inside a block nothing is torn apart, so bursts survive; all
tasks take the same block, so what disturbed them together still does (the circular block bootstrap
of Politis & Romano, 1992).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.network import Floats
from jetson_dnn_rt.lab.simulate.noise import make_generator
from jetson_dnn_rt.lab.simulate.recorded_task import RecordedTask, read_recording
from jetson_dnn_rt.lab.simulate.scenario import Scenario
from jetson_dnn_rt.lab.simulate.world import World, WorldTask
from jetson_dnn_rt.platforms.clocks import ClockSpace


class RecordedLaboratory:
    """Makes the worlds of a scenario with a recording.

    Parameters
    ----------
    scenario : Scenario
        One with a recording.
    recorded : sequence of RecordedTask, optional
        What was recorded, or what would have been; by default it is read from the scenario's
        trace.

    Raises
    ------
    ConfigurationError
        When the trace is missing, damaged, or too short to say anything.
    """

    def __init__(self, scenario: Scenario, recorded: Sequence[RecordedTask] | None = None) -> None:
        if scenario.recording is None or scenario.trace is None:
            raise ConfigurationError(f"scenario {scenario.name} has no recording")
        self.scenario = scenario
        self._recording = scenario.recording
        self.recorded = read_recording(scenario.trace) if recorded is None else list(recorded)
        for variant in self._recording.loss:
            if not any(variant in task.variants for task in self.recorded):
                raise ConfigurationError(
                    f"{scenario.name}: recording.loss: no task ran a variant {variant!r}"
                )

    @cached_property
    def clock_table(self) -> ClockTable:
        """One configuration: the clocks that it was recorded at."""
        idle_w = np.array([self._recording.idle_w])
        return ClockTable(ClockSpace(()), np.zeros(1, np.int64), idle_w, 0, 0)

    @cached_property
    def tables(self) -> list[TaskTable]:
        """The recorded frames as a profile."""
        return [self._table(task) for task in self.recorded]

    @property
    def true_tables(self) -> list[TaskTable]:
        """With the medians alone."""
        return [
            TaskTable(
                table.task,
                table.stages,
                table.variants,
                table.deadline_ns,
                table.period_ns,
                np.maximum(1, np.rint(task.base_ns)).astype(np.int64)[:, :, np.newaxis],
                table.slowdown,
                table.power_w,
                table.loss,
            )
            for table, task in zip(self.tables, self.recorded, strict=True)
        ]

    @property
    def interference(self) -> tuple[float, ...]:
        """None: the recorded times hold it already."""
        return (1.0,) * self.scenario.workers

    def world(self, seed: int, frames: int | None = None) -> World:
        """The recorded arrivals, with times resampled by the seed.

        Raises
        ------
        ConfigurationError
            When more frames are wanted than were recorded.
        """
        recorded = max(len(task.sequences) for task in self.recorded)
        if frames is not None and frames > recorded:
            raise ConfigurationError(
                f"{self.scenario.name}: {frames} frames wanted, the trace has {recorded}"
            )
        origin_ns = min(int(task.releases_ns[0]) for task in self.recorded)
        last_ns = max(int(task.releases_ns[-1]) for task in self.recorded)
        resampling = Resampling(
            round(self._recording.block_ms * 1e6), last_ns - origin_ns, seed, self.scenario.name
        )
        tasks = tuple(
            self._world_task(task, origin_ns, resampling, frames) for task in self.recorded
        )
        power_w = np.zeros((1, 1, 3))
        power_w[0, 0, 0] = self._recording.busy_w - self._recording.idle_w
        return World(
            tasks=tasks,
            clock_table=self.clock_table,
            workers=self.scenario.workers,
            discipline=self.scenario.discipline,
            interference=self.interference,
            idle_w=self.clock_table.idle_w[np.newaxis],
            dynamic_w=power_w,
            end_ns=max(task.arrivals[-1][0] + task.parameters.deadline_ns for task in tasks),
            co_runners=self.scenario.co_runners,
        )

    def _loss(self, task: RecordedTask) -> Floats:
        stages = len(task.stages)
        losses = [self._recording.loss.get(variant, 0.0) for variant in task.variants]
        return np.repeat(np.array(losses)[:, np.newaxis] / stages, stages, axis=1)

    def _table(self, task: RecordedTask) -> TaskTable:
        times = task.base_ns[:, :, np.newaxis] * task.noise.T
        ones = np.ones((*task.base_ns.shape, 1))
        return TaskTable(
            task.name,
            task.stages,
            task.variants,
            task.deadline_ns,
            task.period_ns,
            np.maximum(1, np.rint(times)).astype(np.int64),
            ones,
            ones * self._recording.busy_w,
            self._loss(task),
        )

    def _world_task(
        self, task: RecordedTask, origin_ns: int, resampling: Resampling, frames: int | None
    ) -> WorldTask:
        count = len(task.sequences) if frames is None else min(frames, len(task.sequences))
        releases = task.releases_ns[:count] - origin_ns
        captures = task.captures_ns[:count] - origin_ns
        rows = resampling.rows(releases, task.releases_ns - origin_ns)
        shape = (1, *task.base_ns.shape, 1)
        activity = np.zeros((*shape, 3))
        activity[..., 0] = 1.0
        return WorldTask(
            parameters=TaskConfig(
                task.name, budget_quantile=self.scenario.budget_quantile
            ).for_engine(
                task.stages,
                task.variants,
                period_ns=task.period_ns,
                deadline_ns=task.deadline_ns,
            ),
            spans=task.spans,
            arrivals=tuple(
                zip(
                    releases.tolist(),
                    captures.tolist(),
                    task.sequences[:count].tolist(),
                    strict=True,
                )
            ),
            base_ns=task.base_ns,
            noise=task.noise[rows],
            slowdown=np.ones(shape),
            activity=activity,
            loss=self._loss(task),
            overhead_ns=task.overhead_ns[rows],
            wake_ns=task.wake_ns[rows],
        )


class Resampling:
    """Which recorded time stands for which simulated one.

    Parameters
    ----------
    block_ns, length_ns : int
        Of a block, and of the recording. One block that is as long as the recording leaves
        everything where it was.
    seed, name : int, str
        Of the random numbers.
    """

    def __init__(self, block_ns: int, length_ns: int, seed: int, name: str) -> None:
        self._block_ns = block_ns
        self._length_ns = length_ns
        blocks = length_ns // block_ns + 1
        starts_ns: Integers = np.zeros(1, np.int64)
        if blocks > 1:
            generator = make_generator(seed, "blocks", name)
            starts_ns = generator.integers(0, length_ns + 1, blocks)
        self._starts_ns = starts_ns

    def rows(self, times_ns: Integers, recorded_ns: Integers) -> Integers:
        """For each time the recorded frame that stands for it.

        Parameters
        ----------
        times_ns : int64 [M]
            Releases, from the beginning.
        recorded_ns : int64 [N]
            Rising recorded releases, on the same origin.

        Returns
        -------
        int64 [M]
            Positions in `recorded_ns`: the nearest in time.
        """
        blocks = times_ns // self._block_ns
        sources = self._starts_ns[blocks] + times_ns - blocks * self._block_ns
        # What goes beyond the end goes on at the beginning: no time is taken less often.
        sources %= self._length_ns + 1
        after = np.clip(np.searchsorted(recorded_ns, sources), 1, max(1, len(recorded_ns) - 1))
        after = np.minimum(after, len(recorded_ns) - 1)
        before = np.maximum(after - 1, 0)
        nearer = sources - recorded_ns[before] <= recorded_ns[after] - sources
        return np.asarray(np.where(nearer, before, after), dtype=np.int64)
