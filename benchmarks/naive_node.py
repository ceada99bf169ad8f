"""The usual rclpy node, for comparison: the subscription's callback infers and publishes.

Written fairly. One node per model, both in one process under a `MultiThreadedExecutor` (each node
has its own callback group, so the two run side by side); best effort and depth 1, so that no queue
grows; the same pipeline (one fused preprocessing pass into the runner's input, the same back end
with the same number of threads, the same decoder), the same message writers, the same process
set-up (mallopt, interpreter switch interval, frozen garbage). What differs is the scheduling only.

Run as a process of its own by `benchmarks.overload`: reads its specification as JSON from
the command line, says ``ready``, and at SIGTERM writes what became of every frame it took.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from benchmarks.protocol import (
    ConsumerSpec,
    FrameLog,
    FrameRow,
    TaskSpec,
    announce_ready,
    stop_on_term,
)
from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.tasks.conversion import DetectionsWriter, ImageWriter
from jetson_dnn_rt.results import Detections, Segmentation
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.pipeline import Pipeline

WARM_UP_RUNS = 5


class NaiveNode(Node):  # type: ignore[misc]  # rclpy has no complete types
    """Takes an image, infers, publishes, takes the next one.

    Parameters
    ----------
    task : TaskSpec
        The model and its name.
    pipeline : Pipeline
        Built for it.
    topic : str
        Of the images.
    log : FrameLog
        Told what became of every frame.
    """

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
        published_ns = time.time_ns()
        stamp_ns = work.frame.stamp_ns
        self._log.add(FrameRow(self._name, stamp_ns, start_ns, published_ns, True, "published"))

    def _to_message(self, work: Work) -> Any:
        if isinstance(work.result, Detections):
            return self._detections.write(work.result, work.frame)
        assert isinstance(work.result, Segmentation)
        return self._mask.write(work.result.mask, work.frame)


def main(arguments: list[str]) -> None:
    """Run both nodes until SIGTERM; the first argument is a `ConsumerSpec` in JSON."""
    spec = ConsumerSpec.from_json(arguments[0])
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


if __name__ == "__main__":
    main(sys.argv[1:])
