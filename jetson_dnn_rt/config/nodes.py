"""What a user may set of the nodes that are no tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetson_dnn_rt.config.declaration import parameter
from jetson_dnn_rt.config.process import ProcessConfig, RealtimeConfig
from jetson_dnn_rt.config.task import AUTO, QOS_NAMES
from jetson_dnn_rt.errors import ConfigurationError

PERCEPTION, COORDINATOR = "perception", "coordinator"
"""Names of the node of all tasks of a process, and of the one that decides for them."""

DEFAULT_TASKS = ("detector", "segmenter")

POLICY_NAMES = (
    "static", "max_n", "max_q", "race_to_idle", "predjoule", "poet", "apnet", "alert",
    "neuos_min_energy", "neuos_max_accuracy", "neuos_balanced", "horizon",
)  # fmt: skip

MODES = ("balanced", "min_energy", "max_accuracy")


@dataclass(frozen=True)
class PerceptionNodeConfig(ProcessConfig):
    """Which tasks and cameras there are, and how they are run."""

    tasks: tuple[str, ...] = parameter(
        DEFAULT_TASKS,
        "Names of the task nodes, with a namespace where wanted: rear/detector; among equal "
        "deadlines the first goes first",
        read_only=True,
    )
    cameras: tuple[str, ...] = parameter(
        ("camera",), "Names of the camera nodes in this process; [''] = none", read_only=True
    )
    threads: int | str = parameter(
        0,
        "Threads of one inference of the tasks that name no number: 0 = cores divided by workers; "
        "auto = measured at start-up together with the workers, which `workers` then is not",
        limits=(0, 1024),
        words=(AUTO,),
    )
    coordinator: bool = parameter(
        True, "Start the node coordinator, which decides for all tasks together", read_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = (*self.tasks, *self.cameras, *([COORDINATOR] if self.coordinator else []))
        _refuse_twins("nodes", names)


@dataclass(frozen=True)
class CameraConfig:
    """Source, stream and topics of one camera; `name` is no parameter, but the node's."""

    name: str = ""
    source: str = parameter(
        "synthetic",
        "synthetic[:WxH], video:PATH, images:DIR, device:/dev/videoN or gstreamer:PIPELINE",
    )
    loop: bool = parameter(True, "Start a video or a folder anew at its end")
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
    frame_limit: int = parameter(0, "End after so many frames; 0 = never", limits=(0, 1 << 40))
    frame_id: str = parameter("camera", "Coordinate frame in the headers")
    camera_info_url: str = parameter("", "Calibration file; empty = not calibrated")
    output_qos: str = parameter("DEFAULT", "Quality of service of images", choices=QOS_NAMES)
    output_qos_depth: int = parameter(2, "Depth of the publishers' queue", limits=(1, 100))
    output_qos_deadline_ms: float = parameter(
        0.0,
        "DEADLINE offered with the images; 0 = none",
        unit="ms",
        limits=(0.0, 3.6e6),
    )
    jpeg_quality: int = parameter(
        90, "Quality of image_raw/compressed", unit="percent", limits=(1, 100), dynamic=True
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

    autostart: bool = parameter(
        False, "Configure and activate by itself when the process starts", read_only=True
    )


@dataclass(frozen=True)
class CoordinatorConfig:
    """Which policy decides, its aim, and what it may change."""

    enable: bool = parameter(
        True,
        "Whether it decides; without it tasks stay in the variant that they run",
        dynamic=True,
    )
    policy: str = parameter(
        "static",
        "Who decides on variants and clocks; static = each task runs its own variant",
        choices=POLICY_NAMES,
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


@dataclass(frozen=True)
class CoordinatorProcessConfig:
    """Parameters of a coordinator that has a process of its own."""

    tasks: tuple[str, ...] = parameter(
        DEFAULT_TASKS,
        "Names of the task nodes, with a namespace where wanted: rear/detector",
        read_only=True,
    )
    autostart: bool = parameter(
        False, "Configure and activate by itself when the process starts", read_only=True
    )

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ConfigurationError("tasks must name at least one task node")
        _refuse_twins("tasks", self.tasks)


def _refuse_twins(what: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{what}: {', '.join(twice)} is there twice")
