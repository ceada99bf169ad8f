# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parameters of the nodes other than tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetson_dnn_rt.config.camera_sources import ANY_SOURCE
from jetson_dnn_rt.config.declaration import dynamic_parameter, fixed_parameter, parameter
from jetson_dnn_rt.config.process import AUTOSTART, ProcessConfig, RealtimeConfig
from jetson_dnn_rt.config.task import AUTO, LEAST_AGREEMENT, QOS_NAMES
from jetson_dnn_rt.errors import ConfigurationError

PERCEPTION, COORDINATOR = "perception", "coordinator"
"""Names of the node that runs all tasks of a process, and of the coordinator."""

DEFAULT_TASKS = ("detector", "segmenter")

POLICIES = {
    "static": "static:Static",
    "max_n": "static:MaxN",
    "max_q": "static:MaxQ",
    "race_to_idle": "static:RaceToIdle",
    "predjoule": "predjoule:PredJoule",
    "poet": "poet:Poet",
    "apnet": "apnet:ApNet",
    "alert": "alert:Alert",
    "clockwork": "clockwork:Clockwork",
    "d3": "d3:D3",
    "subflow": "subflow:SubFlow",
    "neuos_min_energy": "neuos:NeuOSMinEnergy",
    "neuos_max_accuracy": "neuos:NeuOSMaxAccuracy",
    "neuos_balanced": "neuos:NeuOSBalanced",
    "neuos_artifact_min_energy": "neuos_artifact:NeuOSArtifactMinEnergy",
    "neuos_artifact_max_accuracy": "neuos_artifact:NeuOSArtifactMaxAccuracy",
    "neuos_artifact_balanced": "neuos_artifact:NeuOSArtifactBalanced",
    "horizon": "horizon.policy:Horizon",
}
"""Module in `coordinator.policies`, imported on use, and class."""

MODES = ("balanced", "min_energy", "max_accuracy", "streaming")


@dataclass(frozen=True)
class PerceptionNodeConfig(ProcessConfig):
    """Tasks and cameras of a process, and how they are run."""

    tasks: tuple[str, ...] = fixed_parameter(
        DEFAULT_TASKS,
        "Names of the task nodes, with a namespace where wanted: rear/detector; among equal "
        "deadlines the first goes first",
    )
    cameras: tuple[str, ...] = fixed_parameter(
        ("camera",), "Names of the camera nodes in this process; [''] = none"
    )
    threads: int | str = parameter(
        0,
        "Threads of one inference of the tasks that name no number: 0 = cores divided by workers; "
        "auto = all cores for one, a share for each of several side by side, or either frame by "
        "frame: what meets more deadlines at the expected rates, tried for at most 30 s at the "
        "first start and kept in the library; networks are loaded for both, and `workers` is "
        "ignored",
        limits=(0, 1024),
        words=(AUTO,),
    )
    coordinator: bool = fixed_parameter(
        True, "Start the node coordinator, which decides for all tasks together"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        others = (*self.cameras, *([COORDINATOR] if self.coordinator else []))
        _refuse_twins("nodes", self.tasks, others)


@dataclass(frozen=True)
class CameraConfig:
    """Source, stream and topics of one camera; `name` is not a parameter but the node's."""

    name: str = ""
    source: str = parameter("synthetic", ANY_SOURCE)
    loop: bool = parameter(True, "Restart a video or folder at its end")
    rate: float = parameter(
        0.0, "Rate of the frames; 0 = the source's own", unit="Hz", limits=(0.0, 1000.0)
    )
    width: int = parameter(
        0, "Width asked of a device or synthetic; 0 = its own", unit="pixels", limits=(0, 16384)
    )
    height: int = parameter(
        0, "Height asked of a device or synthetic; 0 = its own", unit="pixels", limits=(0, 16384)
    )
    seed: int = parameter(1, "Which synthetic drive", limits=(0, 1 << 31))
    frame_limit: int = parameter(0, "Stop after this many frames; 0 = never", limits=(0, 1 << 40))
    frame_id: str = parameter(
        "camera_optical_frame", "Coordinate frame in the headers: an optical one (REP 103)"
    )
    camera_info_url: str = parameter("", "Calibration file; empty = not calibrated")
    output_qos: str = parameter("DEFAULT", "Quality of service of images", choices=QOS_NAMES)
    output_qos_depth: int = parameter(2, "Depth of the publishers' queue", limits=(1, 100))
    output_qos_deadline_ms: float = parameter(
        0.0, "DEADLINE offered with the images; 0 = none", unit="ms", limits=(0.0, 3.6e6)
    )
    jpeg_quality: int = dynamic_parameter(
        90, "Quality of image_raw/compressed", unit="percent", limits=(1, 100)
    )
    expected_frequency: float = parameter(
        0.0, "Rate for diagnostics; 0 = the camera's", unit="Hz", limits=(0.0, 1000.0)
    )
    tolerance: float = parameter(
        0.1, "Share by which the rate may differ from the expected one", limits=(0.0, 1.0)
    )


@dataclass(frozen=True)
class CameraProcessConfig(RealtimeConfig):
    """Parameters of a camera that has a process of its own."""

    autostart: bool = fixed_parameter(*AUTOSTART)


@dataclass(frozen=True)
class CoordinatorConfig:
    """Which policy decides, its aim, and what it may change."""

    enable: bool = dynamic_parameter(
        True, "Whether it decides; without it tasks stay in the variant that they run"
    )
    policy: str = dynamic_parameter(
        "static",
        "Policy that decides on variants and clocks; static = each task runs its own variant",
        choices=tuple(POLICIES),
    )
    confidence: float = dynamic_parameter(
        0.999, "Share of the frames whose deadline horizon plans to keep", limits=(0.5, 0.999999)
    )
    accuracy_floor: float = dynamic_parameter(
        0.0,
        "Least accuracy of a frame, where its deadline allows it; 1 = of the full model",
        limits=(0.0, 1.0),
    )
    least_agreement: float = parameter(
        LEAST_AGREEMENT,
        "Least agreement with the full model of a variant in `tables`; others are not used. Of "
        "those in the library see the tasks' parameter of this name",
        limits=(0.0, 1.0),
    )
    power_cap_w: float = dynamic_parameter(
        0.0, "Most power of the board; 0 = no cap", unit="W", limits=(0.0, 10_000.0)
    )
    threshold: float = dynamic_parameter(
        0.0,
        "t of neuos_balanced: small = faster clocks; 0 = the deviation of the influence set",
        limits=(0.0, 100.0),
    )
    mode: str = dynamic_parameter("balanced", "Objective of horizon", choices=MODES)
    accuracy_lifetime_ms: float = dynamic_parameter(
        90.0,
        "Age at which the accuracy of a result has fallen to 1/e, for horizon's mode streaming",
        unit="ms",
        limits=(1.0, 60_000.0),
    )
    tables: tuple[str, ...] = parameter(
        (),
        "Files of `jetson-dnn-rt profile` with the tasks' tables; [''] = in one process with the "
        "tasks, those of their warm-up and the library",
    )
    allow_clock_writes: bool = parameter(
        False, "Change the clocks of the machine (needs rights); they are restored at the end"
    )


@dataclass(frozen=True)
class CoordinatorProcessConfig:
    """Parameters of a coordinator that has a process of its own."""

    tasks: tuple[str, ...] = fixed_parameter(
        DEFAULT_TASKS, "Names of the task nodes, with a namespace where wanted: rear/detector"
    )
    autostart: bool = fixed_parameter(*AUTOSTART)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ConfigurationError("tasks must name at least one task node", "tasks")
        _refuse_twins("tasks", self.tasks)


def _refuse_twins(what: str, tasks: Sequence[str], others: Sequence[str] = ()) -> None:
    names = (*tasks, *others)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        parameter = "tasks" if set(twice) & set(tasks) else "cameras"
        raise ConfigurationError(f"{what}: {', '.join(twice)} appears twice", parameter)
