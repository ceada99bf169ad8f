# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""World: the true times and powers of a simulation, hidden from the policies.

Every policy runs in the same world, seed by seed. Every task has a random stream of its own, and
from it a number for each frame and stage: the noise of a (task, sequence, stage) does not depend
on the policy, the variant or the clocks. So two policies differ by their decisions, not by chance.
`World.stage_factors` is for the oracle, the only policy that may know the true times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Integers
from jetson_dnn_rt.lab.simulate.board import Floats, Noise, Thermal
from jetson_dnn_rt.lab.simulate.scenario import CoRunner
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import TaskParameters


@dataclass(frozen=True, eq=False)
class WorldTask:
    """True times of a task: V variants, K stages, C clock configurations, N frames."""

    parameters: TaskParameters  # for the engine
    spans: dict[str, tuple[int | Run, ...]]  # by variant: its runs, or stages in each of them
    arrivals: tuple[tuple[int, int, int], ...]  # release and capture in ns, sequence; N, in order
    base_ns: Floats  # [V, K] time alone, undisturbed, at the fastest clocks
    noise: Floats  # [N, K] factor on the time of each frame's stages
    slowdown: Floats  # [levels, V, K, C] time relative to the fastest clocks; level 1: throttled
    activity: Floats  # [levels, V, K, C, 3] share of a stage's time in which GPU, CPU, memory work
    loss: Floats  # [V, K] accuracy lost by each stage in each variant
    overhead_ns: Integers  # [N, K] from a free worker to the start of the stage
    # [N] from a release to when an idle worker looks for work; its first stage has no overhead.
    wake_ns: Integers
    # [V, K] how many times as long a stage of the network takes narrow; None: it never is.
    narrow: Floats | None = None
    narrow_slowdowns: tuple[float, ...] = ()  # what the engine knows of that at the beginning
    # [N] from the end of the last stage to when the frame is done, by its worker; None: no time.
    report_ns: Integers | None = None

    @cached_property
    def factors(self) -> dict[int, tuple[float, ...]]:
        """Rows of `noise` by the time of the frame's release."""
        rows = map(tuple, self.noise.tolist())
        return {release: row for (release, _, _), row in zip(self.arrivals, rows, strict=True)}


@dataclass(frozen=True, eq=False)
class World:
    """World of a board and its tasks, for one seed."""

    tasks: tuple[WorldTask, ...]
    clock_table: ClockTable  # positions below are those of this table
    workers: int
    discipline: str
    interference: tuple[float, ...]  # slow-down of a stage that starts as the n-th side by side
    idle_w: Floats  # [levels, C] power while nothing runs
    dynamic_w: Floats  # [levels, C, 3] power added while GPU, CPU and memory work
    end_ns: int  # energy is counted at least until then
    co_runners: tuple[CoRunner, ...] = ()
    thermal: Thermal | None = None  # without it there is level 0 only
    helpers: int = 0  # see `scheduling.places`

    @cached_property
    def _by_name(self) -> dict[str, WorldTask]:
        return {task.parameters.name: task for task in self.tasks}

    def stage_factors(self, task: str, release_ns: int) -> Sequence[float]:
        """Factors on the table times of the frame released at `release_ns`, [K].

        They include the frame's noise, and the co-runners at its release. True times are table
        time * slow-down at the clocks * this * interference, in every variant alike, as long as
        the board does not throttle.
        """
        factors = self._by_name[task].factors[release_ns]
        if not self.co_runners:
            return factors
        others = self.co_runner_slowdown(release_ns)
        return tuple(factor * others for factor in factors)

    def co_runner_slowdown(self, now_ns: int) -> float:
        """Factor on every stage's time from the co-runners at this time."""
        factor = 1.0
        for other in self.co_runners:
            if other.from_s * 1e9 <= now_ns < other.until_s * 1e9:
                factor *= other.slowdown
        return factor


def make_generator(seed: int, purpose: str, name: str) -> np.random.Generator:
    """Make a generator of random numbers for a seed, a purpose, and a task or camera."""
    digest = hashlib.blake2b(f"{purpose}/{name}".encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "big")])


def draw_noise(noise: Noise, generator: np.random.Generator, frames: int, stages: int) -> Floats:
    """Factor on the execution time of every frame and stage, [frames, stages]; its median is 1.

    The factor common to a frame's stages is a first-order autoregressive process, so that slow
    frames come together as they do on a board; each stage has its own factor in addition, and
    occasionally a spike.
    """
    # Frame by frame, and spikes from numbers of their own: a longer run begins like a shorter one.
    spike_generator = np.random.default_rng(generator.integers(2**63))
    spikes = spike_generator.random((frames, stages)) < noise.spike_probability
    normal = generator.standard_normal((frames, stages + 1))
    common, own = normal[:, 0], normal[:, 1:]
    if noise.frame_correlation:
        rho = noise.frame_correlation
        innovation = np.sqrt(1.0 - rho * rho)
        level = float(common[0]) if frames else 0.0
        for index in range(1, frames):
            level = rho * level + innovation * float(common[index])
            common[index] = level
    factors = np.exp(noise.frame_sigma * common[:, np.newaxis] + noise.stage_sigma * own)
    return np.asarray(np.where(spikes, factors * noise.spike_factor, factors))
