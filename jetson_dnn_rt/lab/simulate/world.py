"""The truth of a simulation: how long everything takes, which no policy may look up.

The same world, seed by seed, is shown to every policy. `World.stage_time_ns`,
`World.frame_times_ns` and `World.stage_factors` are the hook of the oracle, which alone may know
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers
from jetson_dnn_rt.lab.simulate.board import Thermal
from jetson_dnn_rt.lab.simulate.network import Floats
from jetson_dnn_rt.lab.simulate.scenario import CoRunner
from jetson_dnn_rt.tasks import TaskParameters


@dataclass(frozen=True, eq=False)
class WorldTask:
    """The truth about one task: V variants, K stages, C clock configurations, N frames.

    Attributes
    ----------
    parameters : TaskParameters
        As the engine gets them.
    spans : mapping of str to tuple of int
        For each variant how many stages each of its runs does.
    arrivals : tuple of (int, int, int)
        Release, capture and sequence of each frame, in nanoseconds; N of them, in order.
    base_ns : float64 [V, K]
        Time of a stage alone at the fastest clocks when nothing disturbs it.
    noise : float64 [N, K]
        Factor on the time of each frame's stages.
    slowdown : float64 [levels, V, K, C]
        Time relative to the fastest clocks; level 1 is the throttled board.
    activity : float64 [levels, V, K, C, 3]
        Share of a stage's time in which GPU, CPU and memory work.
    loss : float64 [V, K]
        Accuracy lost by each stage in each variant.
    overhead_ns : int64 [N, K]
        From a free worker to the start of a frame's stage.
    wake_ns : int64 [N]
        From a frame's release to when an idle worker looks for work; then its first stage has no
        overhead.
    """

    parameters: TaskParameters
    spans: dict[str, tuple[int, ...]]
    arrivals: tuple[tuple[int, int, int], ...]
    base_ns: Floats
    noise: Floats
    slowdown: Floats
    activity: Floats
    loss: Floats
    overhead_ns: Integers
    wake_ns: Integers

    @property
    def name(self) -> str:
        """Of the task."""
        return self.parameters.name

    @cached_property
    def frame_index(self) -> dict[int, int]:
        """Row of `noise` by the sequence number of a frame."""
        return {sequence: row for row, (_, _, sequence) in enumerate(self.arrivals)}

    @cached_property
    def release_index(self) -> dict[int, int]:
        """Row of `noise` by the time of a frame's release."""
        return {release_ns: row for row, (release_ns, _, _) in enumerate(self.arrivals)}

    @cached_property
    def factors(self) -> list[tuple[float, ...]]:
        """`noise`, row by row."""
        return [tuple(row) for row in self.noise.tolist()]


@dataclass(frozen=True, eq=False)
class World:
    """Everything that happens to a board and its tasks, for one seed.

    Attributes
    ----------
    tasks : tuple of WorldTask
        The cohort.
    clock_table : ClockTable
        The configurations that the simulation knows; positions are those of this table.
    workers, discipline : int, str
        Of the engine.
    interference : tuple of float
        Slow-down of a stage that starts as the n-th one side by side.
    idle_w : float64 [levels, C]
        Power while nothing runs.
    dynamic_w : float64 [levels, C, 3]
        More power while GPU, CPU and memory work.
    co_runners : tuple of CoRunner
        What else runs.
    thermal : Thermal, optional
        Without it there is level 0 only.
    end_ns : int
        Energy is counted at least until then.
    """

    tasks: tuple[WorldTask, ...]
    clock_table: ClockTable
    workers: int
    discipline: str
    interference: tuple[float, ...]
    idle_w: Floats
    dynamic_w: Floats
    end_ns: int
    co_runners: tuple[CoRunner, ...] = ()
    thermal: Thermal | None = None
    names: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", {task.name: i for i, task in enumerate(self.tasks)})

    def interference_of(self, side_by_side: int) -> float:
        """Slow-down of a stage that starts while so many run, itself included."""
        return self.interference[min(side_by_side, len(self.interference)) - 1]

    def stage_time_ns(
        self,
        task: str,
        sequence: int,
        stage: int,
        variant: int,
        clocks: int,
        *,
        side_by_side: int = 1,
        now_ns: int | None = None,
    ) -> float:
        """True execution time of a stage, were it run so.

        Parameters
        ----------
        task, sequence : str, int
            The frame.
        stage, variant, clocks : int
            Which stage, and how: positions in the task's variants and in the clock table. The
            clocks do not change while it runs, and the board does not throttle.
        side_by_side : int
            Stages that run at its start, itself included.
        now_ns : int, optional
            When it starts; what else runs on the board then slows it. None: nothing else runs.
        """
        truth = self.tasks[self.names[task]]
        time = truth.base_ns[variant, stage] * truth.noise[truth.frame_index[sequence], stage]
        time *= truth.slowdown[0, variant, stage, clocks] * self.interference_of(side_by_side)
        return float(time) * (1.0 if now_ns is None else self.co_runner_slowdown(now_ns))

    def frame_times_ns(self, task: str, sequence: int) -> Floats:
        """True execution times of a frame, alone and undisturbed, [V, K, C]."""
        truth = self.tasks[self.names[task]]
        noise = truth.noise[truth.frame_index[sequence]]
        return np.asarray((truth.base_ns * noise)[:, :, np.newaxis] * truth.slowdown[0])

    def stage_factors(self, task: str, release_ns: int) -> Sequence[float]:
        """What the stages of a frame take, relative to the true table of its task.

        True times are table time * slow-down at the clocks * this * interference, in every
        variant alike, as long as the board does not throttle.

        Parameters
        ----------
        task : str
            The task.
        release_ns : int
            When its frame is released.

        Returns
        -------
        sequence of float, [K]
            Noise of the frame, times what else runs on the board at its release.
        """
        truth = self.tasks[self.names[task]]
        factors = truth.factors[truth.release_index[release_ns]]
        if not self.co_runners:
            return factors
        others = self.co_runner_slowdown(release_ns)
        return tuple(factor * others for factor in factors)

    def co_runner_slowdown(self, now_ns: int) -> float:
        """Factor on every stage's time by what else runs now."""
        factor = 1.0
        for other in self.co_runners:
            if other.from_s * 1e9 <= now_ns < other.until_s * 1e9:
                factor *= other.slowdown
        return factor
