"""Speed and power of a board, computed for many clock configurations at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.lab.simulate.board import Board
from jetson_dnn_rt.lab.simulate.network import Floats, Network
from jetson_dnn_rt.platforms.clocks import ClockSpace

CPU_DOMAINS = ("cpu", "little", "big")
EMC = "emc"
GPU = "gpu"


@dataclass(frozen=True, eq=False)
class StageShares:
    """Where the time of each stage goes at the fastest clocks; the three add up to 1, each [K]."""

    gpu: Floats
    cpu: Floats
    memory: Floats


class BoardModel:
    """A board at some clock configurations.

    Parameters
    ----------
    board : Board
        Its file.
    space : ClockSpace
        Its clocks.
    indices : int64 [C]
        Configurations of that space.
    caps_hz : mapping of str to float, optional
        Highest clock of a domain: as the board is while it throttles.

    Attributes
    ----------
    idle_w : float64 [C]
        Power while nothing runs.
    dynamic_w : float64 [C, 3]
        More power while the GPU, the CPU and the memory work.
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

    # -- time ----------------------------------------------------------------------------------

    def shares(self, network: Network) -> StageShares:
        """Where the time of a network's stages goes at the board's fastest clocks."""
        gpu, cpu, memory = self._parts_s(network)
        total = gpu + cpu + memory
        return StageShares(gpu / total, cpu / total, memory / total)

    def stage_weights(self, network: Network) -> Floats:
        """Share of each stage in the time of the whole network at the fastest clocks, [K]."""
        total = np.add.reduce(self._parts_s(network))
        return np.asarray(total / total.sum())

    def slowdown(self, shares: StageShares) -> Floats:
        """Time of each stage relative to the fastest clocks, [K, C]."""
        gpu, cpu, memory = self._stretches()
        return (
            np.outer(shares.gpu, gpu) + np.outer(shares.cpu, cpu) + np.outer(shares.memory, memory)
        )

    def activity(self, shares: StageShares) -> Floats:
        """Share of a stage's time in which GPU, CPU and memory work, [K, C, 3]."""
        parts = np.stack(
            [
                np.outer(share, stretch)
                for share, stretch in zip(
                    (shares.gpu, shares.cpu, shares.memory), self._stretches(), strict=True
                )
            ],
            axis=-1,
        )
        return np.asarray(parts / parts.sum(axis=-1, keepdims=True))

    def _parts_s(self, network: Network) -> tuple[Floats, Floats, Floats]:
        compute = self._board.compute
        return (
            network.counts("macs_m") / (compute.gmacs_per_s * 1e3),
            network.counts("kernels") * compute.launch_us * 1e-6,
            network.counts("bytes_mb") / (compute.memory_gb_per_s * 1e3),
        )

    def _stretches(self) -> tuple[Floats, Floats, Floats]:
        """Time of the GPU's, the CPU's and the memory's part relative to the fastest, each [C]."""
        return self._gpu_time(), self._cpu_time(), self._memory_time()

    def _gpu_time(self) -> Floats:
        if GPU not in self._names:
            return np.ones(len(self._frequencies))
        column = self._names.index(GPU)
        return np.asarray(self._top[0, column] / self._frequencies[:, column])

    def _cpu_time(self) -> Floats:
        speeds = self._cpu_speeds(self._frequencies)
        if not speeds.shape[1]:
            return np.ones(len(self._frequencies))
        parallel = self._board.compute.cpu_parallel

        def time(speed: Floats, cores: Floats) -> Floats:
            serial = (1.0 - parallel) + parallel / np.maximum(cores.sum(axis=1), 1.0)
            return np.asarray(serial / speed.max(axis=1))

        columns = self._cpu_columns()
        fastest = time(self._cpu_speeds(self._top), self._top_cores[:, columns])
        return np.asarray(time(speeds, self._cores[:, columns]) / fastest)

    def _memory_time(self) -> Floats:
        curve = self._board.compute.emc_time
        if EMC not in self._names or not curve:
            return np.ones(len(self._frequencies))
        clocks, times = np.array(curve).T
        column = self._names.index(EMC)
        relative = np.interp(self._frequencies[:, column] / 1e6, clocks, times)
        return np.asarray(relative / np.interp(self._top[0, column] / 1e6, clocks, times))

    def _cpu_columns(self) -> list[int]:
        return [index for index, name in enumerate(self._names) if name in CPU_DOMAINS]

    def _cpu_speeds(self, frequencies: Floats) -> Floats:
        """Speed of one core of each CPU domain, [C, CPU domains]; 0 where it is off."""
        columns = self._cpu_columns()
        factors = [self._board.compute.core_speed[self._names[column]] for column in columns]
        return np.asarray(frequencies[:, columns] * np.array(factors))

    # -- power ---------------------------------------------------------------------------------

    def _power(self) -> tuple[Floats, Floats]:
        count = len(self._frequencies)
        idle = np.full(count, self._board.base_w)
        dynamic = np.zeros((count, 3))
        speeds, cpus = self._cpu_speeds(self._frequencies), self._cpu_columns()
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
