"""A board as a model: how fast and at what power it runs at every clock configuration.

Time. A stage takes the sum of three parts, none hidden behind another: operations on the GPU,
bytes through the memory, launches by the CPU::

    slow-down = gpu_share * f_max / f_gpu + cpu_share * s_max / s_cpu + memory_share * m(f_emc)

The memory part m is a table of the board's memory clock: a 1/f term does not fit what was measured
(arXiv 2606.16106). CPU work is one thread on the fastest core that is on, except a share that
spreads over all cores (Amdahl).

Power. The board's constant part, plus for every domain a static part (leakage and clock tree, as
long as it is on) and a dynamic part while work is on it, both proportional to V^2, the dynamic one
also to f; V is linear in f between the two voltages of the file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DomainPower:
    """Power of a clock domain at its fastest clock.

    Attributes
    ----------
    static_w : float
        While it is on, in watts.
    dynamic_w : float
        More, while work is on it.
    voltage_v : (float, float)
        At its slowest and at its fastest clock.
    """

    static_w: float
    dynamic_w: float
    voltage_v: tuple[float, float]

    def __post_init__(self) -> None:
        if self.static_w < 0.0 or self.dynamic_w < 0.0:
            raise ValueError(
                f"static_w and dynamic_w must be >= 0: {self.static_w}, {self.dynamic_w}"
            )
        if not 0.0 < self.voltage_v[0] <= self.voltage_v[1]:
            raise ValueError(f"voltage_v must be rising and > 0: {self.voltage_v}")


@dataclass(frozen=True)
class Compute:
    """What the board does per second at its fastest clocks.

    Attributes
    ----------
    gmacs_per_s : float
        Multiply-accumulates of the GPU, in 1e9 per second.
    memory_gb_per_s : float
        Memory, in 1e9 bytes per second.
    launch_us : float
        CPU time of one kernel launch, in microseconds.
    cpu_parallel : float
        Share of the CPU work that spreads over all cores.
    core_speed : mapping of str to float
        Work per clock cycle of a core, by CPU domain, relative to each other.
    emc_time : tuple of (float, float)
        Memory clock in MHz and the time of the memory part relative to the fastest one, rising;
        between them it is interpolated. Empty: the memory clock is fixed.
    """

    gmacs_per_s: float
    memory_gb_per_s: float
    launch_us: float
    cpu_parallel: float
    core_speed: dict[str, float]
    emc_time: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for key in ("gmacs_per_s", "memory_gb_per_s", "launch_us"):
            if not getattr(self, key) > 0.0:
                raise ValueError(f"{key} must be > 0: {getattr(self, key)}")
        if not 0.0 <= self.cpu_parallel <= 1.0:
            raise ValueError(f"cpu_parallel must be in [0, 1]: {self.cpu_parallel}")
        clocks = [clock for clock, _ in self.emc_time]
        if clocks != sorted(clocks):
            raise ValueError(f"emc_time must have rising clocks: {clocks}")


@dataclass(frozen=True)
class Thermal:
    """One heat capacity and one resistance to the air, and the kernel's throttling.

    Attributes
    ----------
    ambient_c, initial_c : float
        Temperature of the air, and of the chip at first, in degrees Celsius.
    resistance_k_per_w : float
        From the chip to the air.
    capacity_j_per_k : float
        Of chip and heat sink.
    trip_c, hysteresis_k : float
        Throttled from this temperature on, until it is that much lower.
    poll_ms : float
        How often the temperature is looked at, in milliseconds.
    cap_mhz : mapping of str to float
        Highest clock of each domain named while throttled.
    """

    ambient_c: float
    initial_c: float
    resistance_k_per_w: float
    capacity_j_per_k: float
    trip_c: float
    hysteresis_k: float
    poll_ms: float
    cap_mhz: dict[str, float]

    def __post_init__(self) -> None:
        for key in ("resistance_k_per_w", "capacity_j_per_k", "hysteresis_k", "poll_ms"):
            if not getattr(self, key) > 0.0:
                raise ValueError(f"{key} must be > 0: {getattr(self, key)}")


@dataclass(frozen=True)
class Noise:
    """How execution times scatter.

    Attributes
    ----------
    frame_sigma : float
        Standard deviation of the logarithm of what is common to the stages of a frame.
    frame_correlation : float
        Of that between one frame of a task and the next.
    stage_sigma : float
        Standard deviation of the logarithm of what each stage has of its own.
    spike_probability : float
        Share of the stages that are disturbed.
    spike_factor : float
        How much longer these take.
    """

    frame_sigma: float = 0.0
    frame_correlation: float = 0.0
    stage_sigma: float = 0.0
    spike_probability: float = 0.0
    spike_factor: float = 1.0

    def __post_init__(self) -> None:
        for key in ("frame_sigma", "stage_sigma"):
            if not 0.0 <= getattr(self, key) <= 1.0:
                raise ValueError(f"{key} must be in [0, 1]: {getattr(self, key)}")
        if not 0.0 <= self.frame_correlation < 1.0:
            raise ValueError(f"frame_correlation must be in [0, 1): {self.frame_correlation}")
        if not 0.0 <= self.spike_probability <= 1.0:
            raise ValueError(f"spike_probability must be in [0, 1]: {self.spike_probability}")
        if not self.spike_factor >= 1.0:
            raise ValueError(f"spike_factor must be >= 1: {self.spike_factor}")


@dataclass(frozen=True)
class Board:
    """A board file.

    Attributes
    ----------
    space : str
        Which clocks it has: ``tx2``, ``xavier`` or ``fixed``.
    base_w : float
        Power that no clock changes, in watts.
    power : mapping of str to DomainPower
        By clock domain.
    compute : Compute
        Speed.
    interference_per_stage : float
        Share by which each further stage side by side slows a stage.
    noise : Noise
        Of execution times.
    alone_share : float
        Time of the full network alone at the fastest clocks, as a share of its deadline here.
    deadline_ms, period_ms : mapping of str to float
        By network.
    thermal : Thermal, optional
        Without it the board never throttles.
    """

    space: str
    base_w: float
    power: dict[str, DomainPower]
    compute: Compute
    interference_per_stage: float
    noise: Noise
    alone_share: float
    deadline_ms: dict[str, float]
    period_ms: dict[str, float]
    thermal: Thermal | None = None
