# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The processes of `overload` and `overhead`: a camera, a listener, a bare one, the consumers.

``naive`` is the usual rclpy node, whose subscription callback infers and publishes, written
fairly: one node per model, both in one process under a `MultiThreadedExecutor` (each node has its
own callback group, so the two run side by side); best effort and depth 1, so that no queue grows;
the same pipeline (one fused preprocessing pass into the runner's input, the same back end with the
same number of threads, the same decoder), the same message writers, the same process set-up
(mallopt, interpreter switch interval, frozen garbage). Only the scheduling differs.
``ours`` is this package's composed graph, fed by the same topic, with the same log.
``peer`` starts somebody else's node and logs its results, see `benchmarks.overload.peer`.
"""

from __future__ import annotations

import json
import pickle
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from vision_msgs.msg import Classification as ClassificationMessage
from vision_msgs.msg import Detection2DArray

from benchmarks.harness.processes import (
    START_LIMIT_S,
    BenchmarkError,
    announce_ready,
    foreign_program,
    stop_on_term,
)
from benchmarks.harness.tasks import SIZE, load_task
from benchmarks.overload.bench import (
    TOPIC,
    ConsumerSpec,
    FrameRow,
    PublishedResult,
    published_ns,
    thin_out,
)
from benchmarks.overload.peer import DETECTOR, find_message_type, read_boxes
from jetson_dnn_rt.cameras.image_messages import stamp_to_ns, view_image
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.config.task import NO_CACHE, OUTPUTS
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.process.graph import run_graph
from jetson_dnn_rt.nodes.process.lifecycle import overrides_to_parameters
from jetson_dnn_rt.nodes.process.running import run_node
from jetson_dnn_rt.nodes.tasks.conversion import (
    ClassificationWriter,
    DetectionsWriter,
    ImageWriter,
)
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, Work

WARM_UP_RUNS = 5
STOP_MARGIN_S = 30.0
"""A peer without results is ended so long before this process would be killed."""
TOPICS = {
    "detections": Detection2DArray, "class_mask": Image, "classification": ClassificationMessage,
}  # fmt: skip

# CDR: four bytes of encapsulation, then the header's stamp: sec (int32), nanosec (uint32).
_STAMPS = {0: struct.Struct(">iI"), 1: struct.Struct("<iI")}


# -- the camera: source, rate in Hz, file for the stamp of each frame and when it left -----


class StampLog:
    """Log of the camera's frames; written line by line, since the process is killed.

    A line has the stamp, when the frame was handed on, and the file that it was read from.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1, encoding="ascii")
        self._begun = False

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Log a frame, and request no job for it; the first one shows that the camera runs."""
        self._file.write(f"{frame.stamp_ns} {time.time_ns()} {frame.file}\n")
        if not self._begun:
            self._begun = True
            announce_ready()
        return False

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Never called: the camera makes no bad frames."""


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
    """Read the stamp of a serialized message that begins with a header."""
    sec, nanosec = _STAMPS[data[1] & 1].unpack_from(data, 4)
    return int(sec) * 1_000_000_000 + int(nanosec)


def run_listener(path: str) -> int:
    """Subscribe to the results until SIGTERM, so that publishing costs what it costs in use.

    Messages stay serialized: no Python objects are made of them.
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


# -- a bare subscription to the camera: file for the times of each image, see `Received` ----------


def run_bare(path: str) -> int:
    """Subscribe to the camera until SIGTERM, as plainly as rclpy lets one.

    Its EventsExecutor passes no times of DDS to a callback, so this is the other one.
    """
    stop = threading.Event()
    stop_on_term(stop)
    Realtime(RealtimeConfig()).apply_to_process()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("bench_bare")
    rows: list[tuple[int, ...]] = []

    def take(message: Image, info: Any) -> None:
        now_ns, stamp_ns = time.time_ns(), stamp_to_ns(message.header)
        if not rows:
            announce_ready()
        rows.append((stamp_ns, info["source_timestamp"], info["received_timestamp"], now_ns))

    newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    node.create_subscription(Image, TOPIC, take, newest)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.1)
    Path(path).write_text(json.dumps(rows), encoding="utf-8")
    return 0


# -- the consumers -------------------------------------------------------------------------------


class FrameLog:
    """Rows of a consumer, kept in memory until the end.

    The process is ready with the first row: only then are frames known to arrive, since discovery
    takes time. What was published is kept if it is to be written; a function that makes a result
    is called only then, after all that counts.
    """

    def __init__(self, spec: ConsumerSpec) -> None:
        self._output, self._results = spec.output, spec.results
        self._lock = threading.Lock()
        self._rows: list[FrameRow] = []
        self._published: list[tuple[str, int, Result | Callable[[], Result]]] = []

    def add(self, row: FrameRow, result: Result | Callable[[], Result] | None) -> None:
        """Add the outcome of one frame, and its result."""
        published_ns = row.published_ns
        with self._lock:
            self._rows.append(row)
            first = len(self._rows) == 1
            if self._results is not None and published_ns is not None and result is not None:
                kept = result if callable(result) else thin_out(result)
                self._published.append((row.task, published_ns, kept))
        if first:
            announce_ready()

    def write(self) -> None:
        """Write all rows as JSON, and the published results pickled."""
        with self._lock:
            self._output.write_text(json.dumps(self._rows), encoding="utf-8")
            if self._results is not None:
                published = [
                    PublishedResult(task, time_ns, kept() if callable(kept) else kept)
                    for task, time_ns, kept in self._published
                ]
                self._results.write_bytes(pickle.dumps(published))


def begin(path: str) -> tuple[ConsumerSpec, threading.Event, FrameLog]:
    """Read the specification, prepare the stop, and open the log."""
    stop = threading.Event()
    stop_on_term(stop)
    spec = pickle.loads(Path(path).read_bytes())
    return spec, stop, FrameLog(spec)


class NaiveNode(Node):  # type: ignore[misc]  # rclpy has no complete types
    """Usual node: takes an image, infers, publishes, takes the next one."""

    def __init__(self, task: Task, log: FrameLog) -> None:
        super().__init__(f"naive_{task.name}")
        self._name, self._log = task.name, log
        self._pipeline = task.variants.pipelines[task.default]
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        if task.config.kind == "detection":
            self._detections = DetectionsWriter()
        elif task.config.kind == "segmentation":
            self._mask = ImageWriter("mono8")
        else:
            self._classes = ClassificationWriter()
        topic = OUTPUTS[task.config.kind]
        self._results = self.create_publisher(TOPICS[topic], topic, reliable)
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._images = self.create_subscription(Image, TOPIC, self._on_image, newest)

    def _on_image(self, message: Image) -> None:
        start_ns = time.time_ns()
        work = Work(view_image(message, 0))
        self._pipeline.run(work)
        self._results.publish(self._to_message(work))
        end_ns = time.time_ns()
        stamp_ns = work.frame.stamp_ns
        row = FrameRow(self._name, stamp_ns, start_ns, end_ns, True, "published")
        self._log.add(row, work.result)

    def _to_message(self, work: Work) -> Any:
        if isinstance(work.result, Detections):
            return self._detections.write(work.result, work.frame)
        if isinstance(work.result, Classification):
            return self._classes.write(work.result, work.frame)
        assert isinstance(work.result, Segmentation)
        return self._mask.write(work.result.mask, work.frame)


def run_naive(path: str) -> int:
    """Run a node per model until SIGTERM; `path` is that of a `ConsumerSpec`."""
    spec, stop, log = begin(path)
    realtime = Realtime(RealtimeConfig())
    realtime.apply_to_process()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = MultiThreadedExecutor()
    grey = Frame(np.full((*SIZE, 3), 128, np.uint8), "bgr8", 0, 0)
    with ExitStack() as stack:
        for config in spec.tasks:
            timed = replace(config, warmup_runs=WARM_UP_RUNS)
            task = load_task(stack, timed, [grey], threads=spec.threads)
            executor.add_node(NaiveNode(task, log))
        realtime.freeze()
        while not stop.is_set():
            executor.spin_once(timeout_sec=0.1)
        executor.shutdown(timeout_sec=1.0)
    log.write()
    return 0


# -- this package --------------------------------------------------------------------------------


def make_overrides(spec: ConsumerSpec) -> dict[str, dict[str, object]]:
    """Make the parameters of the nodes for a specification."""
    tasks = [task.name for task in spec.tasks]
    process: dict[str, object] = {
        "tasks": tasks,
        "cameras": [""],
        "workers": spec.workers,
        "threads": "auto" if spec.follows_load else 0,
    }
    overrides = {"perception": process}
    overrides["coordinator"] = {"policy": spec.policy, "mode": spec.mode}
    for task in spec.tasks:
        values: dict[str, object] = {
            "kind": task.kind,
            "model": task.model,
            "weights": task.weights,
            "threads": 0 if spec.follows_load else spec.threads,
            "deadline_ms": spec.deadline_ms,
            "image_width": SIZE[1],
            "image_height": SIZE[0],
            "confidence_threshold": task.confidence_threshold,
            "expected_frequency": task.expected_frequency,
            "least_agreement": task.least_agreement,
        }
        if task.engine_cache != NO_CACHE:
            values["engine_cache"] = task.engine_cache
        for name in ("variants", "input_size"):
            if getattr(task, name):
                values[name] = list(getattr(task, name))
        overrides[task.name] = values
    return overrides


def note(log: FrameLog, record: JobRecord, work: Work) -> None:
    """Log a job that ended; its result, if it was valid, has been published."""
    to_system_ns = time.time_ns() - time.monotonic_ns()
    start_ns = None if record.start_ns is None else record.start_ns + to_system_ns
    end_ns = published_ns(work) + to_system_ns if record.outcome is Outcome.MET else None
    admitted = record.admission is Admission.BUDGET
    outcome = record.outcome.value + (f": {record.reason}" if record.reason else "")
    row = FrameRow(record.task, work.frame.stamp_ns, start_ns, end_ns, admitted, outcome)
    log.add(row, work.result)


def run_ours(path: str) -> int:
    """Run the composed graph until SIGTERM; `path` is that of a `ConsumerSpec`."""
    spec, stop, log = begin(path)
    run_graph(
        None, make_overrides(spec), frames=None, seconds=None, stop=stop,
        observer=lambda record, work: note(log, record, work),
    )  # fmt: skip
    log.write()
    return 0


# -- somebody else's node -------------------------------------------------------------------------


def run_peer(path: str) -> int:
    """Run a peer until SIGTERM, and log its results; `path` is that of a `ConsumerSpec`.

    `BenchmarkError` where it ends by itself, or has no result in time.
    """
    spec, stop, log = begin(path)
    assert spec.peer is not None
    kind = find_message_type(spec.peer.type)
    labels = builtin.labels(DETECTOR)
    answered = threading.Event()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("bench_peer")

    def take(data: bytes, info: Any) -> None:
        if not info["source_timestamp"]:
            raise BenchmarkError("this middleware does not say when messages were written")
        stamp_ns, written_ns = read_stamp_ns(data), info["source_timestamp"]
        row = FrameRow(DETECTOR, stamp_ns, None, written_ns, False, "published")
        # Its boxes are read at the end: objects of Python would take time on the peer's cores.
        log.add(row, lambda: read_boxes(deserialize_message(data, kind), labels))
        answered.set()

    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
    node.create_subscription(kind, spec.peer.topic, take, qos, raw=True)
    # Its EventsExecutor passes no times of DDS to a callback.
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    limit_s = time.monotonic() + START_LIMIT_S - STOP_MARGIN_S
    with foreign_program(spec.peer.command) as program:
        while not stop.is_set():
            executor.spin_once(timeout_sec=0.1)
            if (code := program.poll()) is not None:
                raise BenchmarkError(f"the peer ended with exit code {code}")
            if not answered.is_set() and time.monotonic() > limit_s:
                raise BenchmarkError(f"the peer had no result on {spec.peer.topic}")
    log.write()
    return 0


ROLES: dict[str, Callable[..., int]] = {
    "camera": run_camera,
    "listener": run_listener,
    "bare": run_bare,
    "naive": run_naive,
    "ours": run_ours,
    "peer": run_peer,
}

if __name__ == "__main__":
    sys.exit(ROLES[sys.argv[1]](*sys.argv[2:]))
