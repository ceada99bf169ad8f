# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The process that issues LoadGen's queries as images, and waits for their results on topics."""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image

from benchmarks.harness.processes import START_LIMIT_S, BenchmarkError, announce_ready
from benchmarks.loadgen.bench import GRACE_S, QUERIES, RunSpec, load_loadgen
from benchmarks.loadgen.queries import Queries
from benchmarks.overload.bench import TOPIC
from benchmarks.overload.nodes import TOPICS, read_stamp_ns
from jetson_dnn_rt.cameras.files import list_images, read_image
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.tasks.conversion import ImageWriter
from jetson_dnn_rt.runtime.realtime import Realtime

WARM_UP = 30
"""Images after the first result of each topic, before the run begins."""


class CameraTopic:
    """Publisher of images on the camera's topic, and a subscription to each topic of results.

    `on_result` gets a topic, the stamp of its result and the time, in the system clock.
    """

    def __init__(self, spec: RunSpec, on_result: Callable[[str, int, int], None]) -> None:
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("bench_loadgen")
        reliable = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        self._publisher = self._node.create_publisher(Image, TOPIC, reliable)
        self._writer = ImageWriter("bgr8")
        self._pixels = [read_image(file) for file in list_images(spec.frames)]
        for topic in spec.topics:

            def take(data: bytes, topic: str = topic) -> None:
                on_result(topic, read_stamp_ns(data), time.time_ns())

            self._node.create_subscription(TOPICS[topic], topic, take, reliable, raw=True)

    def __len__(self) -> int:
        return len(self._pixels)

    def publish(self, index: int, stamp_ns: int) -> None:
        """Publish an image; one thread at a time."""
        pixels = self._pixels[index % len(self._pixels)]
        frame = Frame(pixels, "bgr8", stamp_ns, index)
        self._publisher.publish(self._writer.write(pixels, frame))

    @contextmanager
    def spinning(self) -> Iterator[None]:
        """Receive results on a thread."""
        executor, stop = SingleThreadedExecutor(), threading.Event()
        executor.add_node(self._node)

        def spin() -> None:
            while not stop.is_set():
                executor.spin_once(timeout_sec=0.1)

        thread = threading.Thread(target=spin, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def warm_up(camera: CameraTopic, spec: RunSpec, counts: dict[str, int]) -> None:
    """Publish images at the run's rate until every topic has answered, and `WARM_UP` more.

    They are no queries. `BenchmarkError` for a topic that does not answer.
    """
    pause, end_s = threading.Event(), time.monotonic() + START_LIMIT_S
    left = WARM_UP
    while left:
        silent = [topic for topic, count in counts.items() if not count]
        if silent and time.monotonic() > end_s:
            raise BenchmarkError(f"no result on {', '.join(silent)} in {START_LIMIT_S:g} s")
        left -= not silent
        camera.publish(0, time.time_ns())
        pause.wait(1.0 / spec.qps)


def make_settings(loadgen: Any, spec: RunSpec) -> Any:
    """Make LoadGen's settings: its own of the model, but for rate and length."""
    settings = loadgen.TestSettings()
    settings.FromConfig("", spec.model, "ConstantStream", 0)
    settings.scenario = loadgen.TestScenario.ConstantStream
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_latency_ns = 0  # the bound is the period of the rate
    settings.server_target_qps = spec.qps
    settings.performance_sample_count_override = 0  # all the images that there are
    if spec.seconds:
        settings.min_duration_ms = round(spec.seconds * 1e3)
        settings.min_query_count = 1
    return settings


def play(loadgen: Any, spec: RunSpec, camera: CameraTopic, queries: Queries) -> None:
    """Run LoadGen's test; its logs go to the folder of the run."""

    def issue(samples: Any) -> None:
        for sample in samples:
            stamp_ns = time.time_ns()
            queries.issue(stamp_ns, sample.id)
            camera.publish(sample.index, stamp_ns)

    logs = loadgen.LogSettings()
    logs.log_output.outdir = str(spec.folder)
    logs.enable_trace = False
    system = loadgen.ConstructSUT(issue, lambda: queries.give_up(GRACE_S))
    samples = loadgen.ConstructQSL(len(camera), len(camera), lambda _: None, lambda _: None)
    try:
        # An audit.config in the working folder would change the settings.
        loadgen.StartTestWithLogSettings(
            system, samples, make_settings(loadgen, spec), logs, str(spec.folder / "no_audit")
        )
    finally:
        loadgen.DestroyQSL(samples)
        loadgen.DestroySUT(system)


def main(path: str) -> int:
    """Run the test of a pickled `RunSpec`."""
    spec: RunSpec = pickle.loads(Path(path).read_bytes())
    loadgen = load_loadgen()
    realtime = Realtime(RealtimeConfig())
    realtime.apply_to_process()
    counts = dict.fromkeys(spec.topics, 0)

    def complete(number: int) -> None:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(number, 0, 0)])

    queries = Queries(spec.topics, complete)

    def take(topic: str, stamp_ns: int, now_ns: int) -> None:
        counts[topic] += 1
        queries.answer(topic, stamp_ns, now_ns)

    camera = CameraTopic(spec, take)
    with camera.spinning():
        announce_ready()
        warm_up(camera, spec, counts)
        realtime.freeze()
        play(loadgen, spec, camera, queries)
    (spec.folder / QUERIES).write_text(json.dumps(queries.rows()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
