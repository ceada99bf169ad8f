"""Parameters of the coordinator node."""

from __future__ import annotations

from dataclasses import dataclass

from jetson_dnn_rt.coordinator.policy import MODES, PolicySettings
from jetson_dnn_rt.coordinator.registry import POLICIES
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.declaration import parameter


@dataclass(frozen=True)
class CoordinatorParameters:
    """Which policy decides, what it strives for, and what it may touch."""

    enable: bool = parameter(
        True,
        "Whether it decides; without it tasks stay in the variant that they run",
        dynamic=True,
    )
    policy: str = parameter(
        "static",
        "Who decides on variants and clocks; static = each task runs its own variant",
        choices=tuple(POLICIES),
        dynamic=True,
    )
    confidence: float = parameter(
        0.999,
        "Share of the frames whose deadline horizon plans to keep",
        limits=(0.5, 0.999999),
        dynamic=True,
    )
    accuracy_floor: float = parameter(
        0.0,
        "Least accuracy of a frame, where its deadline allows it; 1 = of the full model",
        limits=(0.0, 1.0),
        dynamic=True,
    )
    power_cap_w: float = parameter(
        0.0, "Most power of the board; 0 = no cap", unit="W", limits=(0.0, 10_000.0), dynamic=True
    )
    threshold: float = parameter(
        0.0,
        "t of neuos_balanced: small = faster clocks; 0 = the deviation of the influence set",
        limits=(0.0, 100.0),
        dynamic=True,
    )
    mode: str = parameter("balanced", "What horizon strives for", choices=MODES, dynamic=True)
    tables: tuple[str, ...] = parameter(
        (),
        "Files of `jetson-dnn-rt profile` with the tasks' tables; [''] = in one process with the "
        "tasks, what their warm-up and the library say",
    )
    allow_clock_writes: bool = parameter(
        False, "Change the clocks of the machine (needs rights); they come back at the end"
    )

    def settings(self) -> PolicySettings:
        """What policies take.

        Raises
        ------
        ConfigurationError
            When a value cannot be used.
        """
        try:
            return PolicySettings(
                confidence=self.confidence,
                accuracy_floor=self.accuracy_floor,
                power_cap_w=self.power_cap_w,
                threshold=self.threshold,
                mode=self.mode,
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def __post_init__(self) -> None:
        self.settings()


@dataclass(frozen=True)
class CoordinatorProcessParameters:
    """Parameters of a coordinator that has a process of its own."""

    tasks: tuple[str, ...] = parameter(
        ("detector", "segmenter"),
        "Names of the task nodes, with a namespace where wanted: rear/detector",
        read_only=True,
    )
    autostart: bool = parameter(
        False, "Configure and activate by itself when the process starts", read_only=True
    )

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ConfigurationError("tasks must name at least one task node")
        twice = sorted({name for name in self.tasks if self.tasks.count(name) > 1})
        if twice:
            raise ConfigurationError(f"tasks: {', '.join(twice)} is there twice")
