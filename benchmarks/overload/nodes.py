"""The processes of `overload` and `overhead`: a camera, a listener, and the two consumers.

``naive`` is the usual rclpy node, whose subscription callback infers and publishes, written
fairly: one node per model, both in one process under a `MultiThreadedExecutor` (each node has its
own callback group, so the two run side by side); best effort and depth 1, so that no queue grows;
the same pipeline (one fused preprocessing pass into the runner's input, the same back end with the
same number of threads, the same decoder), the same message writers, the same process set-up
(mallopt, interpreter switch interval, frozen garbage). What differs is the scheduling only.
``ours`` is this package's composed graph, fed by the same topic, with the same log.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rclpy
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from benchmarks.harness.processes import announce_ready, stop_on_term
from benchmarks.harness.tasks import TaskSpec
from benchmarks.overload.log import ConsumerSpec, FrameLog, FrameRow, published_ns
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.process.graph import run_graph
from jetson_dnn_rt.nodes.process.lifecycle import overrides_to_parameters
from jetson_dnn_rt.nodes.process.running import run_node
from jetson_dnn_rt.nodes.tasks.conversion import DetectionsWriter, ImageWriter
from jetson_dnn_rt.results import Detections, Segmentation
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, Work

if TYPE_CHECKING:
    from jetson_dnn_rt.variants.running.pipeline import Pipeline

WARM_UP_RUNS = 5
TOPICS = {"detections": Detection2DArray, "class_mask": Image}

# CDR: four bytes of encapsulation, then the header's stamp: sec (int32), nanosec (uint32).
_STAMPS = {0: struct.Struct(">iI"), 1: struct.Struct("<iI")}


# -- the camera: source, rate in Hz, file for a line with the stamp of each frame in ns ----------


class StampLog:
    """Listens to the camera beside its topics; written line by line: the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1, encoding="ascii")
        self._begun = False

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Note a frame, and want no job for it; the first shows that the camera runs."""
        self._file.write(f"{frame.stamp_ns}\n")
        if not self._begun:
            self._begun = True
            announce_ready()
        return False

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Never called: a camera makes no bad frames."""


def run_camera(source: str, rate_hz: str, path: str) -> int:
    """Run the package's camera node until SIGTERM."""
    values: dict[str, Any] = {"source": source, "rate": float(rate_hz), "autostart": True}

    def make(context: Any, args: list[str]) -> CameraNode:
        overrides = overrides_to_parameters(values)
        node = CameraNode("bench_camera", context=context, parameter_overrides=overrides)
        node.fanout.add("log", StampLog(Path(path)))
        return node

    return run_node(make, [])


# -- the listener: file for the stamps it got, by topic ------------------------------------------


def read_stamp_ns(data: bytes) -> int:
    """Stamp of a serialized message that begins with a header."""
    sec, nanosec = _STAMPS[data[1] & 1].unpack_from(data, 4)
    return int(sec) * 1_000_000_000 + int(nanosec)


def run_listener(path: str) -> int:
    """Subscribe to the results until SIGTERM, so that publishing costs what it costs in use.

    Messages are taken as they are, without making Python objects of them.
    """
    stop = threading.Event()
    stop_on_term(stop)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("bench_listener")
    stamps_ns: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
    for topic, kind in TOPICS.items():

        def take(data: bytes, topic: str = topic) -> None:
            stamps_ns[topic].append(read_stamp_ns(data))

        node.create_subscription(kind, topic, take, qos, raw=True)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    announce_ready()
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.1)
    Path(path).write_text(json.dumps(stamps_ns), encoding="utf-8")
    return 0


# -- the usual node ------------------------------------------------------------------------------


class NaiveNode(Node):  # type: ignore[misc]  # rclpy has no complete types
    """Takes an image, infers, publishes, takes the next one."""

    def __init__(self, task: TaskSpec, pipeline: Pipeline, topic: str, log: FrameLog) -> None:
        super().__init__(f"naive_{task.name}")
        self._name, self._pipeline, self._log = task.name, pipeline, log
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        if task.kind == "detection":
            self._detections = DetectionsWriter()
            self._results = self.create_publisher(Detection2DArray, "detections", reliable)
        else:
            self._mask = ImageWriter("mono8")
            self._results = self.create_publisher(Image, "class_mask", reliable)
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._images = self.create_subscription(Image, topic, self._on_image, newest)

    def _on_image(self, message: Image) -> None:
        start_ns = time.time_ns()
        work = Work(view_image(message, 0))
        self._pipeline.run(work)
        self._results.publish(self._to_message(work))
        end_ns = time.time_ns()
        stamp_ns = work.frame.stamp_ns
        self._log.add(FrameRow(self._name, stamp_ns, start_ns, end_ns, True, "published"))

    def _to_message(self, work: Work) -> Any:
        if isinstance(work.result, Detections):
            return self._detections.write(work.result, work.frame)
        assert isinstance(work.result, Segmentation)
        return self._mask.write(work.result.mask, work.frame)


def run_naive(text: str) -> int:
    """Run a node per model until SIGTERM; `text` is a `ConsumerSpec` in JSON."""
    spec = ConsumerSpec.from_json(text)
    stop = threading.Event()
    stop_on_term(stop)
    realtime = Realtime(RealtimeConfig())
    realtime.apply_to_process()
    log = FrameLog(on_first=announce_ready)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = MultiThreadedExecutor()
    grey = Frame(np.full((spec.height, spec.width, 3), 128, np.uint8), "bgr8", 0, 0)
    for task in spec.tasks:
        pipeline = task.build_pipeline(spec.threads)
        for _ in range(WARM_UP_RUNS):
            pipeline.run(Work(grey))
        executor.add_node(NaiveNode(task, pipeline, spec.topic, log))
    realtime.freeze()
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown(timeout_sec=1.0)
    log.write(spec.output)
    return 0


# -- this package --------------------------------------------------------------------------------


def make_overrides(spec: ConsumerSpec) -> dict[str, dict[str, object]]:
    """Parameters of the nodes that make them do what the specification says."""
    tasks = [task.name for task in spec.tasks]
    process: dict[str, object] = {"tasks": tasks, "cameras": [""], "workers": spec.workers}
    overrides = {"perception": process}
    for task in spec.tasks:
        values: dict[str, object] = {
            "kind": task.kind,
            "model": task.model,
            "weights": task.weights,
            "threads": spec.threads,
            "deadline_ms": spec.deadline_ms,
            "image_width": spec.width,
            "image_height": spec.height,
        }
        if task.variant:
            values["variants"] = [task.variant]
        if task.input_size is not None:
            values["input_size"] = list(task.input_size)
        overrides[task.name] = values
    return overrides


def note(log: FrameLog, record: JobRecord, work: Work) -> None:
    """Log a job that ended; its result, if it was valid, has been published."""
    to_system_ns = time.time_ns() - time.monotonic_ns()
    start_ns = None if record.start_ns is None else record.start_ns + to_system_ns
    end_ns = published_ns(work) + to_system_ns if record.outcome is Outcome.MET else None
    admitted = record.admission is Admission.BUDGET
    outcome = record.outcome.value + (f": {record.reason}" if record.reason else "")
    log.add(FrameRow(record.task, work.frame.stamp_ns, start_ns, end_ns, admitted, outcome))


def run_ours(text: str) -> int:
    """Run the composed graph until SIGTERM; `text` is a `ConsumerSpec` in JSON."""
    spec = ConsumerSpec.from_json(text)
    stop = threading.Event()
    stop_on_term(stop)
    log = FrameLog(on_first=announce_ready)
    run_graph(
        None,
        make_overrides(spec),
        frames=None,
        seconds=None,
        observer=lambda record, work: note(log, record, work),
        stop=stop,
    )
    log.write(spec.output)
    return 0


ROLES: dict[str, Callable[..., int]] = {
    "camera": run_camera,
    "listener": run_listener,
    "naive": run_naive,
    "ours": run_ours,
}

if __name__ == "__main__":
    sys.exit(ROLES[sys.argv[1]](*sys.argv[2:]))
