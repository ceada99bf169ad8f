# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parameters of a task."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from jetson_dnn_rt.config.declaration import dynamic_parameter, fixed_parameter, parameter
from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from jetson_dnn_rt.tasks import TaskParameters

OUTPUTS = {
    "detection": "detections",
    "segmentation": "class_mask",
    "classification": "classification",
}
"""Main topic of each kind of task, in the namespace of its node."""

KINDS = tuple(OUTPUTS)
MEMORY_KINDS = ("auto", "mapped", "pinned", "pageable")
QOS_NAMES = ("SENSOR_DATA", "DEFAULT", "SYSTEM_DEFAULT")
CLASS_IDS = ("number", "name")
TRANSPORTS = ("raw", "compressed")
STAMP_CLOCKS = ("synchronised", "unsynchronised")
TRACKERS = ("", "bytetrack")

MAX_STAGES = 64

MOST_FRAMES_OF = 60
"""Largest k of `met_of`: two seconds at 30 Hz. A longer window hides how long a task may be
without a result, and this one's outcomes are the bits of one machine word."""

MAX_DETECTIONS = 1000
"""Boxes of a frame that are compared with each other: suppression compares every pair, and a
threshold near 0 must not make a frame take a second."""

AUTO = "auto"
"""Value of `threads` and `stages` with which they are measured."""

NO_CACHE = "none"
"""Value of `engine_cache` that disables the library."""

DEFAULT_FREQUENCY_HZ = 30.0
"""Rate of the frames where neither the camera nor the configuration gives one."""

LEAST_AGREEMENT = 0.9
"""A variant that agrees less with the full model is refused, unless less is asked for."""

_preprocessing = partial(parameter, group="preprocessing")


@dataclass(frozen=True)
class TaskConfig:
    """Model, stream, deadline, thresholds and reports of one task.

    `name` is not a parameter: nodes use their own, with the namespace where there is one.
    """

    name: str = ""
    # -- the model -----------------------------------------------------------------------------
    kind: str = parameter("detection", "What it does", choices=KINDS)
    model: str = parameter(
        "builtin:detector", "builtin:NAME, onnx:PATH, torchvision:NAME, exported:PATH or null:MS"
    )
    weights: str = parameter("DEFAULT", "Of torchvision models: DEFAULT, none or a file")
    head: str = fixed_parameter(
        "auto",
        "Layout of the outputs; auto = recognised by the file's metadata and the outputs; "
        "package.module:Class = a decoder of your own, which is code",
    )
    outputs: tuple[str, ...] = parameter(
        (), "Outputs of an ONNX file to use, of masks one topic each; [''] = all"
    )
    constant_inputs: tuple[str, ...] = parameter(
        (),
        "NAME=VALUE of the inputs of an ONNX file beside the image; [''] = known ones",
        example='["scale=1.0", "size=[480, 640]"]',
    )
    labels: tuple[str, ...] = parameter(
        (), "Names of the classes, or one of coco80, coco91, voc21, imagenet, a file; [''] = auto"
    )
    input_size: tuple[int, ...] = parameter(
        (), "Height and width of the network's input, where it leaves a choice; [-1] = its own"
    )
    preprocessing_resize: str = _preprocessing(
        "auto",
        "How a frame is fitted to the input",
        choices=("auto", "letterbox_topleft", "letterbox_center", "stretch"),
    )
    preprocessing_color: str = _preprocessing(
        "auto", "Order of the colours that the network expects", choices=("auto", "bgr", "rgb")
    )
    preprocessing_pad_value: int = _preprocessing(
        -1, "Pixel value of the letterbox's bars; -1 = auto", limits=(-1, 255)
    )
    preprocessing_scale: float = _preprocessing(
        0.0, "Factor on the pixels; 0 = auto", limits=(0.0, 1.0)
    )
    preprocessing_mean: tuple[float, ...] = _preprocessing(
        (), "Subtracted per channel after scaling; [-1.0] = auto"
    )
    preprocessing_std: tuple[float, ...] = _preprocessing(
        (), "Divisor per channel after that; [-1.0] = auto"
    )
    variants: tuple[str, ...] = parameter(
        (),
        "Variants kept ready, e.g. full@openvino-fp32; [''] = full in fp32, on the first of "
        "openvino, onnxruntime and torch that is installed (with CUDA on torch)",
    )
    variant: str = dynamic_parameter(
        "", "The one that runs from the next frame on; empty = the first"
    )
    threads: int | str = parameter(
        0,
        "Threads of one inference; 0 = those of the process, by default the cores divided by "
        "workers; auto = the process shares its cores as load and deadlines want",
        limits=(0, 1024),
        words=(AUTO,),
    )
    warmup_runs: int = parameter(
        20, "Measured runs of every variant before it is used", limits=(0, 10_000)
    )
    stages: int | str = parameter(
        1,
        "Stages the network is cut into: boundaries to abort and to switch at; 0 = so many that "
        "one takes about 2 ms; auto = cut only where that costs nothing, as measured",
        limits=(0, MAX_STAGES),
        words=(AUTO,),
    )
    finest_stages: bool = parameter(
        False,
        "One run per stage on every back end, even if that is slower: a frame can then be "
        "stopped, and go on in another variant, at every boundary",
    )
    memory_limit_mb: float = parameter(
        0.0,
        "Memory of all variants together; what does not fit is left out; 0 = no limit",
        unit="MB",
        limits=(0.0, 1e6),
    )
    batch: str = parameter(
        "auto",
        "Run frames of tasks of this process that have the same model, variants and stages as one "
        "batch, where that is measured faster and every deadline allows it",
        choices=("auto", "off"),
    )
    memory: str = parameter(
        "auto",
        "Where the input of variants on a CUDA device lies, and the frames of a camera of this "
        "process; auto = mapped on an integrated GPU, pinned on others",
        choices=MEMORY_KINDS,
    )
    engine_cache: str = parameter(
        "", "Folder of what was built; empty = ~/.cache/jetson_dnn_rt, none = nothing is kept"
    )
    build_missing: bool = parameter(
        True,
        "Build decomposed variants that are not there yet, in the background; kernels of TVM are "
        "compiled there, and tuned by `jetson-dnn-rt build` only",
    )
    build_frames: str = parameter(
        "",
        "Frames they are fitted to: video:PATH, images:DIR, bag:PATH or synthetic[:SEED]; "
        "empty = synthetic",
    )
    least_agreement: float = parameter(
        LEAST_AGREEMENT,
        "Least agreement with the full model of a variant that is loaded, as it was measured; 0 = "
        "any, also an unknown one, which no coordinator chooses",
        limits=(0.0, 1.0),
    )
    tvm_trials: int = parameter(
        64,
        "Candidates that `build` measures of each kernel of TVM's variants",
        limits=(1, 100_000),
    )
    tvm_minutes: float = parameter(
        0.0,
        "Limit after which tuning of a TVM variant stops, to continue with the next `build`; 0 = "
        "no limit",
        unit="min",
        limits=(0.0, 100_000.0),
    )
    tvm_rpc: str = parameter(
        "",
        "HOST:PORT of a board on which `build` measures TVM's kernels, to tune them for "
        "it; empty = on this machine",
    )
    amp_lists: str = parameter(
        "",
        "File of the operators that TVM's fp16 is for, like config/amp.yaml; empty = those of the "
        "package",
    )
    # -- the stream ----------------------------------------------------------------------------
    camera: str = parameter(
        "", "A camera of this process: frames come without DDS; empty = topic image_raw"
    )
    image_transport: str = parameter("raw", "Of the topic", choices=TRANSPORTS)
    image_width: int = parameter(
        640, "Width of the warm-up frame for a topic", unit="pixels", limits=(1, 16384)
    )
    image_height: int = parameter(
        480, "Height of the warm-up frame for a topic", unit="pixels", limits=(1, 16384)
    )
    input_qos: str = parameter(
        AUTO,
        "Of the image subscription; auto = reliable where every publisher is, else best effort",
        choices=(AUTO, *QOS_NAMES),
    )
    input_qos_depth: int = parameter(
        1, "Depth of its queue, at least 4 where auto makes it reliable", limits=(1, 100)
    )
    input_qos_deadline_ms: float = parameter(
        0.0,
        "DEADLINE requested of the camera, which must offer one; 0 = none",
        unit="ms",
        limits=(0.0, 3.6e6),
    )
    output_qos: str = parameter("DEFAULT", "Of the results", choices=QOS_NAMES)
    output_qos_depth: int = parameter(1, "Depth of their queues", limits=(1, 100))
    debug_image_qos: str = parameter(
        "DEFAULT", "Of debug images and compressed masks; depth 1", choices=QOS_NAMES
    )
    class_id: str = parameter(
        "number",
        "What class_id of detections and classes holds: the number of the class, or its name",
        choices=CLASS_IDS,
    )
    confidence_image: bool = parameter(
        False,
        "Publish `confidence` beside class_mask: how sure the network is of each pixel's class",
    )
    annotations: bool = parameter(
        False, "Publish boxes as Foxglove's ImageAnnotations, too; needs foxglove_msgs"
    )
    stamp_clock: str = parameter(
        "synchronised",
        "Clock of the topic's stamps; unsynchronised = its offset is constant and not known, so a "
        "frame's age is counted from the smallest offset seen",
        choices=STAMP_CLOCKS,
    )
    expected_frequency: float = parameter(
        0.0,
        "Rate of the frames, for analysis and diagnostics; 0 = the camera's, else 30",
        unit="Hz",
        limits=(0.0, 1000.0),
    )
    tolerance: float = parameter(
        0.1, "Share by which the rate may differ from the expected one", limits=(0.0, 1.0)
    )
    # -- deadline ------------------------------------------------------------------------------
    deadline_ms: float = dynamic_parameter(
        0.0,
        "Relative deadline from a frame's release; 0 = one period",
        unit="ms",
        limits=(0.0, 60_000.0),
    )
    max_age_ms: float = dynamic_parameter(
        0.0,
        "A frame that is older at its arrival, or whose stamp does not tell its age, is skipped; "
        "0 = no limit",
        unit="ms",
        limits=(0.0, 60_000.0),
    )
    priority: int = parameter(
        0, "With the discipline priority, the highest goes first", limits=(-1000, 1000)
    )
    met_of: tuple[int, ...] = parameter(
        (),
        "Weakly hard limit [m, k]: at least m of any k consecutive frames are met; 1 <= m <= k <= "
        f"{MOST_FRAMES_OF}; [-1] = none",
        example="[2, 3]",
    )
    late_results: str = dynamic_parameter(
        "drop", "What happens to a result after its deadline", choices=("drop", "publish")
    )
    stage_timeout_ms: float = parameter(
        2000.0, "A stage that runs longer counts as hung", unit="ms", limits=(1.0, 3.6e6)
    )
    budget_quantile: float = parameter(
        0.99, "Quantile of observed times that is the budget", limits=(0.5, 1.0)
    )
    # -- thresholds ----------------------------------------------------------------------------
    confidence_threshold: float = dynamic_parameter(
        0.3, "Smallest score of a box", limits=(0.0, 1.0)
    )
    classes: tuple[str, ...] = dynamic_parameter(
        (), "Detection: classes whose boxes are wanted, by name or number; [''] = all"
    )
    class_thresholds: tuple[str, ...] = dynamic_parameter(
        (),
        "Detection: CLASS=SCORE, the smallest score of a class' boxes; [''] = "
        "confidence_threshold for all",
        example='["car=0.5", "sign=0.25"]',
    )
    nms_iou_threshold: float = dynamic_parameter(
        0.45, "Of two boxes that overlap more, the worse one is dropped", limits=(0.0, 1.0)
    )
    nms_class_agnostic: bool = dynamic_parameter(
        False, "Drop it also where the two are of different classes"
    )
    max_detections: int = dynamic_parameter(
        100, "At most this many boxes per frame", limits=(1, MAX_DETECTIONS)
    )
    # -- tracks --------------------------------------------------------------------------------
    tracker: str = parameter(
        "",
        "Detection: give objects numbers that stay from frame to frame, in the id of their boxes; "
        "needs the extra tracking; empty = none",
        choices=TRACKERS,
    )
    track_start_threshold: float = parameter(
        0.5, "Smallest score of a box that begins a track; all continue one", limits=(0.0, 1.0)
    )
    track_lost_ms: float = parameter(
        1000.0,
        "Time for which an object that is not seen keeps its number, at most 100 periods",
        unit="ms",
        limits=(0.0, 60_000.0),
    )
    # -- reports -------------------------------------------------------------------------------
    debug_topics: tuple[str, ...] = parameter(
        (
            *("processing_time_ms", "pipeline_latency_ms", "lateness_ms"),
            *("deadline_ms", "deadline_misses"),
        ),
        "Topics below ~/debug that are there from the start, for tools that list topics; others "
        "are made when somebody subscribes; [''] = none",
    )
    wcet_exceedance: float = parameter(
        1e-3,
        "Probability that one frame takes longer than ~/debug/pwcet_ms says",
        limits=(1e-9, 0.5),
    )
    statistics_half_life: int = parameter(
        2048,
        "Frames after which one counts half in the percentiles of execution times",
        limits=(16, 10_000_000),
    )
    profile: str = parameter(
        "",
        "Folder of `jetson-dnn-rt profile --output`, or its tables.json: what diagnostics compare "
        "the times with; empty = the first 1000 frames",
    )
    allowed_processing_ms: float = dynamic_parameter(
        0.0,
        "Processing time above which diagnostics warn; 0 = the deadline",
        name="diagnostics.max_allowed_processing_time_ms",
        unit="ms",
        limits=(0.0, 60_000.0),
    )
    acceptable_delay_ms: float = dynamic_parameter(
        1000.0,
        "Time of uninterrupted slow processing after which diagnostics say error; 0 = never",
        name="diagnostics.max_acceptable_consecutive_delay_ms",
        unit="ms",
        limits=(0.0, 3.6e6),
    )

    def __post_init__(self) -> None:
        if self.input_size and len(self.input_size) != 2:
            text = f"input_size must be [height, width]: {self.input_size}"
            raise ConfigurationError(text, "input_size")
        for name in ("mean", "std"):
            if len(getattr(self, f"preprocessing_{name}")) not in (0, 3):
                name = f"preprocessing.{name}"
                raise ConfigurationError(f"{name} needs three values", name)
        if self.met_of and not (
            len(self.met_of) == 2 and 1 <= self.met_of[0] <= self.met_of[1] <= MOST_FRAMES_OF
        ):
            raise ConfigurationError(
                f"met_of must be [m, k], at least m of any k consecutive frames, with 1 <= m <= k "
                f"<= {MOST_FRAMES_OF}: {list(self.met_of)}",
                "met_of",
            )
        for text in self.class_thresholds:
            parse_class_threshold(text)

    @property
    def fixed_threads(self) -> int:
        """The task's own threads of one inference; 0 = those of the process."""
        return self.threads if isinstance(self.threads, int) else 0

    @property
    def fixed_stages(self) -> int:
        """The number of stages; 0 = it is chosen by measuring."""
        return self.stages if isinstance(self.stages, int) else 0

    def period_ns(self, camera_hz: float = 0.0) -> int:
        """Expected time between two frames."""
        return int(1e9 / (self.expected_frequency or camera_hz or DEFAULT_FREQUENCY_HZ))

    def deadline_ns(self, period_ns: int) -> int:
        """Relative deadline; costs are rounded up, deadlines down, but not to 0."""
        return max(1, int(self.deadline_ms * 1e6)) if self.deadline_ms else period_ns

    @property
    def max_age_ns(self) -> int:
        """Age above which a frame is stale; rounded up, as 0 would be no limit."""
        return math.ceil(self.max_age_ms * 1e6)

    def for_engine(
        self,
        stages: tuple[str, ...],
        variants: tuple[str, ...],
        variant: str = "",
        *,
        period_ns: int,
        deadline_ns: int,
        precedence: int = 0,
        batch_group: str = "",
    ) -> TaskParameters:
        """The task for the scheduling engine; `variant` is by default the first."""
        # Not above: it brings numpy, which a launch needs for nothing.
        from jetson_dnn_rt.tasks import TaskParameters

        return TaskParameters(
            name=self.name,
            deadline_ns=deadline_ns,
            period_ns=period_ns,
            stages=stages,
            variants=variants,
            variant=variant or variants[0],
            max_age_ns=self.max_age_ns,
            budget_quantile=self.budget_quantile,
            precedence=precedence,
            priority=self.priority,
            batch_group=batch_group,
            met_of=self.met_of,
        )

    def preprocessing(self) -> dict[str, object]:
        """The parts of the preprocessing that the user has set."""
        group = "preprocessing_"
        values = {f: getattr(self, f.name) for f in fields(self) if f.name.startswith(group)}
        return {f.name.removeprefix(group): v for f, v in values.items() if v != f.default}


def parse_class_threshold(text: str) -> tuple[str, float]:
    """Class and score of an entry of `class_thresholds`: ``car=0.5``."""
    name, sign, score = text.rpartition("=")
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not (sign and name.strip() and 0.0 <= value <= 1.0):
        raise ConfigurationError(
            "class_thresholds must be CLASS=SCORE with a score in [0, 1], as in car=0.5: "
            f"{text!r}",
            "class_thresholds",
        )
    return name.strip(), value


def defaults_of(task: str) -> dict[str, str]:
    """Defaults of a task by its name: ``segmenter``, ``classifier``; all others detect."""
    match task.rpartition("/")[2]:
        case "segmenter":
            return {"kind": "segmentation", "model": "builtin:segmenter"}
        case "classifier":
            return {"kind": "classification", "model": "torchvision:mobilenet_v3_small"}
    return {"kind": "detection", "model": "builtin:detector"}


def follows_load(threads: int | str, tasks: Iterable[TaskConfig]) -> bool:
    """Whether the process or one of its tasks lets workers and threads follow the load."""
    return AUTO in (threads, *(task.threads for task in tasks))


def count_threads(task: TaskConfig, threads: int | str, cores: int, workers: int) -> int:
    """Threads of one inference: the task's number, else the process', else a share of the cores.

    `threads` is that of the process, where ``auto`` counts as 0.
    """
    own = threads if isinstance(threads, int) else 0
    return task.fixed_threads or own or max(1, cores // workers)
