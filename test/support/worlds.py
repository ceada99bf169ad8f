# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Small worlds without noise, whose outcome can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.lab.simulate.session import Source, simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame, Simulation
from jetson_dnn_rt.lab.simulate.world import World, WorldTask
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.tasks import TaskParameters

MS = 1_000_000
IDLE_W, GPU_W, CPU_W, MEMORY_W = 2.0, 6.0, 3.0, 1.0
VARIANTS = ("full", "half")


def make_clocks(delay_ms: float = 5.0) -> ClockTable:
    """Two configurations of a GPU: half speed at 1 W idle, full speed at `IDLE_W`."""
    options = (ClockOption(500_000_000), ClockOption(1_000_000_000))
    space = ClockSpace([ClockDomain("gpu", options, round(delay_ms * MS))])
    return ClockTable(space, np.arange(2), np.array([1.0, IDLE_W]), 1, 0)


def make_task(
    name: str,
    releases_ms: Sequence[float],
    stages_ms: Sequence[float] = (2.0, 3.0),
    *,
    deadline_ms: float = 100.0,
    levels: int = 1,
    noise: Any = None,
    activity: tuple[float, float, float] = (1.0, 0.0, 0.0),
    overhead_ms: float = 0.0,
    wake_ms: float = 0.0,
) -> WorldTask:
    """A task that takes twice as long at the slow clocks, three times when throttled.

    Its variant ``half`` takes half the time and loses 0.1 in each stage.
    """
    stages = tuple(f"inference-{index + 1}" for index in range(len(stages_ms)))
    base = np.array([stages_ms, np.array(stages_ms) / 2.0]) * MS
    slowdown = np.empty((levels, 2, len(stages), 2))
    slowdown[..., 0], slowdown[..., 1] = 2.0, 1.0
    if levels > 1:
        slowdown[1] *= 3.0
    frames = len(releases_ms)
    return WorldTask(
        parameters=TaskParameters(
            name, round(deadline_ms * MS), 10 * MS, stages, VARIANTS, VARIANTS[0]
        ),
        spans={variant: (1,) * len(stages) for variant in VARIANTS},
        arrivals=tuple(
            (round(release * MS), round(release * MS), index)
            for index, release in enumerate(releases_ms)
        ),
        base_ns=base,
        noise=np.ones((frames, len(stages))) if noise is None else np.asarray(noise, float),
        slowdown=slowdown,
        activity=np.broadcast_to(np.array(activity), (*slowdown.shape, 3)),
        loss=np.array([[0.0] * len(stages), [0.1] * len(stages)]),
        overhead_ns=np.full((frames, len(stages)), round(overhead_ms * MS), np.int64),
        wake_ns=np.full(frames, round(wake_ms * MS), np.int64),
    )


def make_world(
    *tasks: WorldTask,
    workers: int = 1,
    interference: Sequence[float] = (1.0,),
    end_ms: float = 0.0,
    delay_ms: float = 5.0,
    **more: Any,
) -> World:
    levels = tasks[0].slowdown.shape[0]
    return World(
        tasks=tasks,
        clock_table=make_clocks(delay_ms),
        workers=workers,
        discipline="edf",
        interference=tuple(interference),
        idle_w=np.broadcast_to(np.array([1.0, IDLE_W]), (levels, 2)),
        dynamic_w=np.broadcast_to(np.array([GPU_W, CPU_W, MEMORY_W]), (levels, 2, 3)),
        end_ns=round(end_ms * MS),
        **more,
    )


def table_of(task: WorldTask) -> TaskTable:
    """What a profile without errors would have measured of the task."""
    slowdown = task.slowdown[0]
    return TaskTable(
        task=task.parameters.name,
        stages=task.parameters.stages,
        variants=task.parameters.variants,
        deadline_ns=task.parameters.deadline_ns,
        period_ns=task.parameters.period_ns,
        times_ns=np.rint(task.base_ns[:, :, None]).astype(np.int64),
        slowdown=slowdown,
        power_w=np.ones(slowdown.shape),
        loss=task.loss,
    )


def run(
    world: World, clock_requests: Mapping[float, int] | None = None
) -> tuple[Simulation, list[SimulatedFrame]]:
    """Simulate without a policy; `clock_requests` maps milliseconds to positions."""
    frames: list[SimulatedFrame] = []
    simulation = Simulation(world, frames.append)
    for time_ms, position in (clock_requests or {}).items():
        simulation.request_clocks(position, round(time_ms * MS))
    simulation.run()
    return simulation, frames


@cache
def laboratory(name: str) -> Laboratory:
    """The laboratory of one of the package's scenarios."""
    return Laboratory(open_scenario(name))


def simulate_frames(source: Source, policy: str, **options: Any) -> list[SimulatedFrame]:
    """The frames of one seed under a policy."""
    frames: list[SimulatedFrame] = []
    simulate(source, policy, observer=frames.append, **options)
    return frames
