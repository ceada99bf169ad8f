# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A board and its networks as models: speed and power at every clock configuration.

Time. A stage takes the sum of three parts, none hidden behind another: operations on the GPU,
bytes through memory, launches by the CPU::

    slow-down = gpu_share * f_max / f_gpu + cpu_share * s_max / s_cpu + memory_share * m(f_emc)

The memory part m is a table of the board's memory clock: a 1/f term does not fit measurements
(arXiv 2606.16106). CPU work is one thread on the fastest core that is on, except a share that
spreads over all cores (Amdahl).

Power. The board's constant part, plus for every domain a static part (leakage and clock tree, as
long as it is on) and a dynamic part while work is on it, both proportional to V^2, the dynamic one
also to f; V is linear in f between the two voltages of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.simulate.fields import (
    BelowOne,
    Factor,
    NotNegative,
    Positive,
    PositiveCount,
    Share,
    check,
)
from jetson_dnn_rt.platforms.clocks import ClockSpace

Floats = npt.NDArray[np.float64]

CPU_DOMAINS = ("cpu", "little", "big")
EMC = "emc"
GPU = "gpu"

# -- files: boards/*.yaml, networks.yaml ---------------------------------------------------------


@dataclass(frozen=True)
class DomainPower:
    """Power of a clock domain at its fastest clock."""

    static_w: NotNegative  # while it is on
    dynamic_w: NotNegative  # added while work is on it
    voltage_v: tuple[float, float]  # at its slowest and at its fastest clock

    def __post_init__(self) -> None:
        low, high = self.voltage_v
        check(0.0 < low <= high, f"voltage_v must be rising and > 0: {self.voltage_v}")


@dataclass(frozen=True)
class Compute:
    """Computing power of the board: work per second at its fastest clocks."""

    gmacs_per_s: Positive  # of the GPU, in 1e9 multiply-accumulates
    memory_gb_per_s: Positive  # in 1e9 bytes
    launch_us: Positive  # CPU time of one kernel launch
    cpu_parallel: Share  # share of the CPU work that spreads over all cores
    core_speed: dict[str, float]  # work per clock cycle of a core by CPU domain, relative
    # Memory clock in MHz, rising, and the time of the memory part relative to the fastest one,
    # interpolated in between. Empty: the memory clock is fixed.
    emc_time: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        clocks = [clock for clock, _ in self.emc_time]
        check(clocks == sorted(clocks), f"emc_time must have rising clocks: {clocks}")


@dataclass(frozen=True)
class Thermal:
    """One heat capacity and one resistance to the air, and the kernel's throttling."""

    ambient_c: float
    initial_c: float  # of the chip at the start
    resistance_k_per_w: Positive  # from the chip to the air
    capacity_j_per_k: Positive  # of chip and heat sink
    trip_c: float  # throttles from here on ...
    hysteresis_k: Positive  # ... until it is this much cooler
    poll_ms: Positive  # period at which the kernel reads the temperature
    cap_mhz: dict[str, float]  # highest clock of each named domain while throttled


@dataclass(frozen=True)
class Noise:
    """Noise of execution times; each sigma is the standard deviation of a logarithm."""

    frame_sigma: Share = 0.0  # of the factor common to the stages of a frame
    frame_correlation: BelowOne = 0.0  # of that factor from one frame of a task to the next
    stage_sigma: Share = 0.0  # of each stage's own factor
    spike_probability: Share = 0.0  # share of the stages that are delayed by a spike
    spike_factor: Factor = 1.0  # how much longer these take


@dataclass(frozen=True)
class Board:
    """A board file."""

    space: str  # its clocks: tx2, xavier or fixed
    base_w: float  # power that does not depend on any clock
    power: dict[str, DomainPower]  # by clock domain
    compute: Compute
    interference_per_stage: float  # share by which each further stage side by side slows a stage
    noise: Noise
    alone_share: float  # time of the full network alone at the fastest clocks / its deadline here
    deadline_ms: dict[str, NotNegative]  # by network
    period_ms: dict[str, NotNegative]  # by network
    thermal: Thermal | None = None  # without it the board never throttles
    # U that was measured for the stages of a network (see `usefulness` of PredJoule); the power
    # of the stages is fit to it in scenarios that say `calibrated`.
    usefulness: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkStage:
    """One stage of a network, counted at batch 1."""

    name: str
    macs_m: Positive  # multiply-accumulates, in millions
    bytes_mb: Positive  # weights, inputs and outputs that go through the memory, in megabytes
    kernels: PositiveCount  # layers, each one launch by the CPU


@dataclass(frozen=True)
class NetworkVariant:
    """A variant that every network has."""

    name: str  # as in the variant library
    time: Positive  # execution time relative to the full network
    loss: Share  # accuracy lost when the whole network runs in it, in [0, 1]


@dataclass(frozen=True)
class Network:
    """A network of ``networks.yaml``."""

    stages: tuple[NetworkStage, ...]

    def __post_init__(self) -> None:
        check(bool(self.stages), "a network needs at least one stage")

    def counts(self, key: str) -> Floats:
        """One of ``macs_m``, ``bytes_mb``, ``kernels`` for every stage, [K]."""
        return np.array([getattr(stage, key) for stage in self.stages], dtype=np.float64)


@dataclass(frozen=True)
class NetworkFile:
    """All networks, and the variants that each of them has."""

    variants: tuple[NetworkVariant, ...]
    networks: dict[str, Network]

    def __post_init__(self) -> None:
        check(
            bool(self.variants) and self.variants[0].loss == 0.0,
            "variants: the first one must be the full network, with loss 0",
        )
        names = [variant.name for variant in self.variants]
        check(len(set(names)) == len(names), f"variants: each name once: {', '.join(names)}")

    def losses(self, network: str) -> Floats:
        """Accuracy lost by each stage in each variant, [V, K].

        Derived: the loss of a whole variant is split among its stages by their operations, since
        these are what a decomposition takes away.
        """
        macs = self.networks[network].counts("macs_m")
        return np.outer([variant.loss for variant in self.variants], macs / macs.sum())

    def times(self) -> Floats:
        """Time of each variant relative to the full network, [V]."""
        return np.array([variant.time for variant in self.variants])


# -- model ---------------------------------------------------------------------------------------


class StageShares(NamedTuple):
    """Shares of each stage's time at the fastest clocks; the three sum to 1, each [K]."""

    gpu: Floats
    cpu: Floats
    memory: Floats


class BoardModel:
    """Speed and power of a board at C clock configurations, `indices` of the clock space.

    `caps_hz` has the highest clock of each capped domain: the board while it throttles.
    `idle_w`, [C], is the power while nothing runs; `dynamic_w`, [C, 3], what is added while the
    GPU, the CPU and the memory work.
    """

    def __init__(
        self,
        board: Board,
        space: ClockSpace,
        indices: npt.NDArray[np.int64],
        caps_hz: dict[str, float] | None = None,
    ) -> None:
        self._board = board
        self._names = space.names
        self._frequencies = space.frequencies_hz()[indices].astype(np.float64)
        self._cores = space.core_counts()[indices].astype(np.float64)
        self._top = space.frequencies_hz()[[space.fastest]].astype(np.float64)
        self._top_cores = space.core_counts()[[space.fastest]].astype(np.float64)
        self._ranges = [
            (min(o.frequency_hz for o in d.options if o.frequency_hz), d.options[-1].frequency_hz)
            for d in space.domains
        ]
        for name, cap_hz in (caps_hz or {}).items():
            column = self._names.index(name)
            np.minimum(self._frequencies[:, column], cap_hz, out=self._frequencies[:, column])
        self.idle_w, self.dynamic_w = self._power()

    def shares(self, network: Network) -> StageShares:
        """Shares of the time of a network's stages at the board's fastest clocks."""
        gpu, cpu, memory = self._parts_s(network)
        total = gpu + cpu + memory
        return StageShares(gpu / total, cpu / total, memory / total)

    def stage_weights(self, network: Network) -> Floats:
        """Share of each stage in the time of the whole network at the fastest clocks, [K]."""
        total = np.add.reduce(self._parts_s(network))
        return np.asarray(total / total.sum())

    def slowdown(self, shares: StageShares) -> Floats:
        """Time of each stage relative to the fastest clocks, [K, C]."""
        gpu, cpu, memory = map(np.outer, shares, self._stretches)
        return np.asarray(gpu + cpu + memory)

    def activity(self, shares: StageShares) -> Floats:
        """Share of a stage's time in which GPU, CPU and memory work, [K, C, 3]."""
        parts = np.stack(list(map(np.outer, shares, self._stretches)), axis=-1)
        return np.asarray(parts / parts.sum(axis=-1, keepdims=True))

    def _parts_s(self, network: Network) -> tuple[Floats, Floats, Floats]:
        compute = self._board.compute
        return (
            network.counts("macs_m") / (compute.gmacs_per_s * 1e3),
            network.counts("kernels") * compute.launch_us * 1e-6,
            network.counts("bytes_mb") / (compute.memory_gb_per_s * 1e3),
        )

    @cached_property
    def _stretches(self) -> tuple[Floats, Floats, Floats]:
        """Time of the GPU, CPU and memory parts relative to the fastest clocks, each [C]."""
        gpu = cpu = memory = np.ones(len(self._frequencies))
        compute, names = self._board.compute, self._names
        if GPU in names:
            column = names.index(GPU)
            gpu = self._top[0, column] / self._frequencies[:, column]
        columns = self._cpu_columns
        if columns:

            def time(frequencies: Floats, cores: Floats) -> Floats:
                spread = compute.cpu_parallel / np.maximum(cores[:, columns].sum(axis=1), 1.0)
                serial = (1.0 - compute.cpu_parallel) + spread
                return np.asarray(serial / self._cpu_speeds(frequencies).max(axis=1))

            cpu = time(self._frequencies, self._cores) / time(self._top, self._top_cores)
        if EMC in names and compute.emc_time:
            clocks, times = np.array(compute.emc_time).T
            column = names.index(EMC)
            fastest = np.interp(self._top[0, column] / 1e6, clocks, times)
            memory = np.interp(self._frequencies[:, column] / 1e6, clocks, times) / fastest
        return gpu, cpu, memory

    @property
    def _cpu_columns(self) -> list[int]:
        return [index for index, name in enumerate(self._names) if name in CPU_DOMAINS]

    def _cpu_speeds(self, frequencies: Floats) -> Floats:
        """Speed of one core of each CPU domain, [C, CPU domains]; 0 where it is off."""
        columns = self._cpu_columns
        factors = [self._board.compute.core_speed[self._names[column]] for column in columns]
        return np.asarray(frequencies[:, columns] * np.array(factors))

    def _power(self) -> tuple[Floats, Floats]:
        count = len(self._frequencies)
        idle = np.full(count, self._board.base_w)
        dynamic = np.zeros((count, 3))
        speeds, cpus = self._cpu_speeds(self._frequencies), self._cpu_columns
        for column, name in enumerate(self._names):
            power = self._board.power[name]
            frequency = self._frequencies[:, column]
            slowest, fastest = self._ranges[column]
            low, high = power.voltage_v
            slope = (high - low) / max(fastest - slowest, 1.0)
            volts = (low + slope * (frequency - slowest)) / high
            on = frequency > 0.0
            cores = self._top_cores[0, column]
            share_on = self._cores[:, column] / cores if cores else 1.0
            idle += np.where(on, power.static_w * volts**2 * share_on, 0.0)
            active = np.where(on, power.dynamic_w * volts**2 * frequency / fastest, 0.0)
            if name in CPU_DOMAINS:
                # The work is on the fastest cores that are on.
                hosts = speeds.argmax(axis=1) == cpus.index(column)
                dynamic[:, 1] += np.where(hosts, active, 0.0)
            else:
                dynamic[:, 0 if name == GPU else 2] += active
        return idle, dynamic


INTENSITIES = (0.25, 1.4)
"""Least and most that a stage may draw of the dynamic power of the units that it works on. With
the most, the TX2 takes about the 15 W of its data sheet in Max-N."""


def fit_intensity(
    usefulness: Floats, slowdown: Floats, idle_w: Floats, dynamic_w: Floats
) -> Floats:
    """Factor on the dynamic power of each stage with which its U is as measured, [K].

    ``U = max over configurations of (E / Emax) / (T / Tmax)`` rises with the factor: of a stage
    that draws nothing beyond idle power the slow configurations cost most. Where no factor within
    `INTENSITIES` gives U, it is the nearer end. `slowdown` and `dynamic_w` are [K, C].
    """
    low, high = (np.full(len(usefulness), end) for end in INTENSITIES)
    for _ in range(40):
        middle = (low + high) / 2.0
        power = idle_w + middle[:, np.newaxis] * dynamic_w
        energy = (power * slowdown).max(axis=1)
        too_low = power.max(axis=1) * slowdown.max(axis=1) / energy < usefulness
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return np.asarray((low + high) / 2.0)
