# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Scenarios drawn from a seed: networks, load, deadlines, noise and what disturbs them.

Nothing of a scenario is chosen by hand but the ranges below, so that none can have been tuned on.
Every one has at least one disturbance: a co-runner, heat, a load step, or bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.policies import BOARDS, NETWORKS
from jetson_dnn_rt.lab.simulate.board import Noise, Thermal
from jetson_dnn_rt.lab.simulate.scenario import (
    CameraSetting,
    CoRunner,
    Scenario,
    SimulatedTask,
    open_scenario,
)
from jetson_dnn_rt.lab.simulate.world import World

DISTURBANCES = ("co-runner", "heat", "load step", "bursts")
_KEY = 22  # so that these numbers are not those of the worlds' noise


@dataclass(frozen=True)
class DrawnScenario:
    """A scenario with its description for people."""

    seed: int
    scenario: Scenario
    disturbances: tuple[str, ...]
    text: str


def draw_scenario(seed: int, frames: int) -> DrawnScenario:
    """Draw the scenario of a seed; `frames` are those of the fastest camera."""
    random = np.random.default_rng([seed, _KEY])

    def between(low: float, high: float) -> float:
        return float(random.uniform(low, high))

    board = BOARDS[int(random.integers(len(BOARDS)))]
    base = open_scenario(f"{board}_cohort4")
    networks = _some(random, NETWORKS, least=2)
    load, deadline = between(0.8, 1.3), between(0.8, 1.4)
    tasks = [_vary(task, load, deadline) for task in base.tasks if task.network in networks]
    duration_s = frames * min(task.period_ns for task in tasks) * 1e-9
    disturbances = _some(random, DISTURBANCES, least=1)[:3]
    words = [f"{board}: {', '.join(networks)}; load x {load:.2f}, deadlines x {deadline:.2f}"]
    co_runners: list[CoRunner] = []
    thermal: Thermal | None = None
    if "co-runner" in disturbances:
        for start in sorted(random.uniform(0.05, 0.7, 2).tolist()):
            until = start + between(0.1, 0.3)
            co_runners.append(
                CoRunner(
                    start * duration_s, until * duration_s, between(1.15, 1.6), between(0.5, 2.0)
                )
            )
        factors = " and ".join(f"x {other.slowdown:.2f}" for other in co_runners)
        words.append(f"co-runners {factors}")
    if "heat" in disturbances:
        usual = open_scenario(f"{board}_thermal").board.thermal
        assert usual is not None
        # Near the trip, and with a small capacity, so that a short run shows it.
        thermal = replace(
            usual,
            ambient_c=usual.ambient_c + between(-5.0, 10.0),
            initial_c=usual.trip_c - between(0.0, 8.0),
            resistance_k_per_w=usual.resistance_k_per_w * between(0.9, 1.4),
            capacity_j_per_k=usual.capacity_j_per_k * between(0.1, 0.5),
        )
        words.append(f"heat ({thermal.ambient_c:.0f} C around it)")
    steady = list(tasks)
    if "load step" in disturbances:
        start = between(0.1, 0.4)
        span = start * duration_s, (start + between(0.2, 0.5)) * duration_s
        extra = [
            steady[int(random.integers(len(steady)))] for _ in range(int(random.integers(1, 3)))
        ]
        tasks += [_extra(task, f"step{i}_{task.name}", span) for i, task in enumerate(extra)]
        words.append(f"load step of {len(extra)}")
    if "bursts" in disturbances:
        task = steady[int(random.integers(len(steady)))]
        for i, start in enumerate(sorted(random.uniform(0.05, 0.9, 3).tolist())):
            span = start * duration_s, (start + between(0.1, 0.25)) * duration_s
            tasks.append(_extra(task, f"burst{i}_{task.name}", span))
        words.append(f"3 bursts of {task.name}")
    scenario = replace(
        base,
        name=f"drawn-{seed}",
        description="; ".join(words),
        frames=frames,
        tasks=tuple(tasks),
        workers=len(tasks),
        cameras={
            task.camera: CameraSetting(task.period_ns * 1e-6, jitter_ms=between(0.0, 2.0))
            for task in tasks
        },
        co_runners=tuple(co_runners),
        board=replace(
            base.board, thermal=thermal, noise=_vary_noise(base.board.noise, between(0.7, 2.0))
        ),
    )
    return DrawnScenario(seed, scenario, disturbances, scenario.description)


def calm(world: World) -> World:
    """The same world without co-runners and heat, as at the desk of who sets it up."""
    return replace(world, co_runners=(), thermal=None)


def _some(random: np.random.Generator, names: Sequence[str], least: int) -> tuple[str, ...]:
    """Draw some of the names, in their order."""
    count = int(random.integers(least, len(names) + 1))
    chosen = set(random.permutation(len(names))[:count].tolist())
    return tuple(name for place, name in enumerate(names) if place in chosen)


def _vary(task: SimulatedTask, load: float, deadline: float) -> SimulatedTask:
    """Frames come `load` times as often; no deadline is beyond the next frame."""
    period_ns = round(task.period_ns / load)
    return replace(
        task, period_ns=period_ns, deadline_ns=min(round(task.deadline_ns * deadline), period_ns)
    )


def _extra(task: SimulatedTask, name: str, span_s: tuple[float, float]) -> SimulatedTask:
    start, until = (round(time * 1e9) for time in span_s)
    return replace(task, name=name, camera=name, from_ns=start, until_ns=until)


def _vary_noise(noise: Noise, factor: float) -> Noise:
    return replace(
        noise,
        frame_sigma=noise.frame_sigma * factor,
        stage_sigma=noise.stage_sigma * factor,
        spike_probability=noise.spike_probability * factor,
    )
