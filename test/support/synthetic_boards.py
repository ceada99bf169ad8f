# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boards of which everything is known: what their stages take and draw at every configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.platforms.clocks import ClockSpace

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SyntheticBoard:
    """Times and power by laws that the models may or may not know."""

    space: ClockSpace
    stages: int = 6  # each of another mix of CPU, GPU and memory
    # 0: a stage waits for CPU, GPU and memory one after the other, as the model has it.
    # 1: GPU and memory work at the same time, so that only the slower one counts.
    overlap: float = 0.0
    big_core_speed: float = 1.4  # of a core of the domain `big`
    noise: float = 0.0  # relative standard deviation of what is measured
    seed: int = 0
    emc_slowness: tuple[float, ...] = (4.0, 1.9, 1.25, 1.0)
    mixes: Floats = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        object.__setattr__(self, "mixes", rng.dirichlet((1.0, 0.7, 3.0, 2.0), self.stages))

    def times_ns(self, positions: npt.NDArray[np.int64] | None = None) -> Floats:
        """True times, [C, stages]; 2 ms at the fastest clocks."""
        cpu, parallel, gpu, memory = (part[:, np.newaxis] for part in self._slowness())
        serial_part, parallel_part, gpu_part, memory_part = self.mixes.T
        on_gpu, on_memory = gpu * gpu_part, memory * memory_part
        apart = on_gpu + on_memory
        together = np.maximum(on_gpu, on_memory)
        mixed = (1.0 - self.overlap) * apart + self.overlap * together
        times = cpu * serial_part + parallel * parallel_part + mixed
        times = 2e6 * times / times[-1]
        return times if positions is None else times[positions]

    def power_w(self, positions: npt.NDArray[np.int64] | None = None) -> Floats:
        """True mean power of a frame of all stages, [C]."""
        gpu = self._slowness()[2]
        frequencies = self.space.frequencies_hz() / 1e9
        power = np.full(len(self.space), 1.8)
        for i, name in enumerate(self.space.names):
            share = frequencies[:, i] / frequencies[:, i].max()
            # A floor that many boards have, then linear in the clock.
            volts = np.maximum(0.62, 0.45 + 0.55 * share)
            if name == "emc":
                power += 1.6 * share
            elif name == "gpu":
                busy = self.mixes[:, 2].mean() * gpu / (self.times_ns().mean(axis=1) / 2e6)
                power += 0.5 * volts + busy * 6.0 * volts**2 * share
            else:
                cores = np.maximum(self.space.core_counts()[:, i], share > 0)
                busy = 0.35 * (cores > 0)
                power += cores * 0.12 * volts + (0.06 * cores + busy) * 1.5 * volts**2 * share
        return power if positions is None else power[positions]

    def measure(self, positions: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Times and power of some points with the noise of a measurement."""
        rng = np.random.default_rng([self.seed, 1])
        times, power = self.times_ns(positions), self.power_w(positions)
        return (
            times * np.exp(self.noise * rng.standard_normal(times.shape)),
            power * np.exp(self.noise * rng.standard_normal(power.shape)),
        )

    def _slowness(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of one core, all cores, GPU and memory at all configurations, 1 at the fastest."""
        names = self.space.names
        frequencies = self.space.frequencies_hz() / 1e9
        cores = np.maximum(self.space.core_counts(), frequencies > 0)
        of_cpu = [i for i, name in enumerate(names) if name not in ("gpu", "emc")]
        speeds = [self.big_core_speed if names[i] == "big" else 1.0 for i in of_cpu]
        serial = (frequencies[:, of_cpu] * speeds).max(axis=1)
        parallel = (frequencies[:, of_cpu] * cores[:, of_cpu] * speeds).sum(axis=1)
        gpu = frequencies[:, names.index("gpu")]
        memory = np.ones(len(self.space))
        if "emc" in names:
            digits = self.space.option_indices[:, names.index("emc")]
            memory = np.array(self.emc_slowness)[digits]
        return serial[-1] / serial, parallel[-1] / parallel, gpu[-1] / gpu, memory
