# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Timing of a task as ROS topics: numbers for rqt_plot, and windows for ``/statistics``."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType
from std_msgs.msg import Float64

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.qos import make_qos
from jetson_dnn_rt.nodes.reports.task_timing import TaskTiming, TimingSnapshot
from jetson_dnn_rt.tasks import JobRecord

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.publisher import Publisher

JOB_TOPICS = (
    "processing_time_ms",
    "cyclic_time_ms",
    "pipeline_latency_ms",
    "lateness_ms",
    "lag_ms",
    "deadline_ms",
    "wcet_ms",
    "pwcet_ms",
    "deadline_misses",
    "deadline_miss_ratio",
    "copied_bytes",
)
"""Published per frame: the counters with each that ends, the others with each that finishes."""

FIGURES = ("count", "best_ms", "mean_ms", "p50_ms", "p99_ms", "p999_ms", "hwm_ms")
"""Published once a second: execution times of the task, in all its variants."""

DRIFT_TOPIC = "drift"
"""Published once a second: the drift alarm's sum relative to its limit; 1 and more is an alarm."""

VARIANT_FIGURES = ("p50_ms", "p99_ms", "p999_ms", "hwm_ms")
"""The same for each variant, below ``variants/<variant>/``."""

DEBUG_TOPICS = (*JOB_TOPICS, *FIGURES, DRIFT_TOPIC)

PERIOD_S = 1.0

METRICS = ("processing_time", "response_time", "message_age", "message_period")
"""In every window of ``/statistics``; the last two are rclcpp's own names. In addition there are
``processing_time/<variant>`` for every variant that ran, and the figures of `GAUGES`."""

GAUGES = {
    "processing_time_p50": "p50_ms",
    "processing_time_p99": "p99_ms",
    "processing_time_p999": "p999_ms",
    "processing_time_hwm": "hwm_ms",
}
"""Metrics with one value per window, by figure: MetricsMessage has no percentiles."""

LONGEST_WINDOW = 100_000
"""Values of a metric that are kept until the window is published; a window lasts a second."""

LOOK_PERIOD_S = 0.5
"""Between two looks for subscribers."""

IDLE_LOOKS = 60
"""So many looks without a subscriber, half a minute, and a topic is destroyed again."""

DEPTH = 10

_STATISTICS = (
    StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE,
    StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM,
    StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM,
    StatisticDataType.STATISTICS_DATA_TYPE_STDDEV,
    StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT,
)


class DebugTopics:
    """``~/debug/<name>`` of a node, one Float64 each, published only while it has subscribers.

    Publishers of `always` are there from the start, as tools list only those; the others are made
    within half a second after somebody subscribed, and destroyed half a minute after the last one
    left. `node` owns publishers and timer; a name is published by one thread.
    """

    def __init__(self, node: Node, names: Iterable[str], always: Iterable[str] = ()) -> None:
        self._node = node
        self._missing: dict[str, str] = {}  # full topics, by name
        self._made: dict[str, tuple[Publisher, Float64]] = {}
        self._always, self._idle = frozenset(always), Counter[str]()
        self.wanted: frozenset[str] = frozenset()
        """Topics that had subscribers at the last look."""
        self.add(names)
        for name in self._always:
            self._make(name)
        node.create_timer(LOOK_PERIOD_S, self._look)

    def add(self, names: Iterable[str]) -> None:
        """Add topics, to be made when somebody subscribes; called by the thread of the timer."""
        for name in names:
            if name not in self._made:
                self._missing[name] = self._node.resolve_topic_name(f"~/debug/{name}")

    def publish(self, name: str, value: float) -> None:
        """Publish a value to subscribers, if there are any."""
        if name in self.wanted:
            publisher, message = self._made[name]
            message.data = float(value)
            publisher.publish(message)

    def _make(self, name: str) -> None:
        topic = self._missing.pop(name)
        publisher = self._node.create_publisher(Float64, topic, make_qos("DEFAULT", DEPTH))
        self._made[name] = publisher, Float64()

    def _look(self) -> None:
        """Count subscribers; 14 us for a topic that is not made yet, 2 us for one that is."""
        for name, topic in list(self._missing.items()):
            if self._node.count_subscribers(topic):
                self._make(name)
        self.wanted = frozenset(
            name
            for name, (publisher, _) in self._made.items()
            if publisher.get_subscription_count()
        )
        for name in self._made.keys() - self._always:
            self._idle[name] = 0 if name in self.wanted else self._idle[name] + 1
            # The publishing thread has long seen that nobody wants it.
            if self._idle[name] > IDLE_LOOKS:
                publisher, _ = self._made.pop(name)
                self._missing[name] = publisher.topic_name
                self._node.destroy_publisher(publisher)
                del self._idle[name]


class TimingReports:
    """The timing topics of a task while it is configured; `node` owns publishers and timer.

    `variants` returns the variants that are ready, to which others may be added; `always` are the
    topics of `DEBUG_TOPICS` that are there from the start.
    """

    def __init__(
        self,
        node: Node,
        timing: TaskTiming,
        variants: Callable[[], Iterable[str]],
        always: Sequence[str] = (),
    ) -> None:
        unknown = [name for name in always if name not in DEBUG_TOPICS]
        if unknown:
            raise ConfigurationError(
                f"debug_topics: {unknown[0]!r} is not one of {', '.join(DEBUG_TOPICS)}"
            )
        self._timing, self._variant_names = timing, variants
        self.topics = DebugTopics(node, DEBUG_TOPICS, dict.fromkeys(always))
        self._variants: set[str] = set()
        self._statistics = StatisticsTopic(node)
        node.create_timer(PERIOD_S, self._publish_figures)

    def observe(self, record: JobRecord, now: TimingSnapshot, finished: bool) -> None:
        """Publish the figures of a job that ended, on the delivery thread."""
        if self.topics.wanted:
            self._publish_job(record, now, finished)
        if not finished:
            return
        self._statistics.observe(
            {
                "processing_time": now.processing_ms,
                f"processing_time/{record.variant}": now.processing_ms,
                "response_time": record.response_time_ns / 1e6,
                "message_age": now.output_latency_ms,
                "message_period": now.cyclic_ms,
            }
        )

    def _publish_job(self, record: JobRecord, now: TimingSnapshot, finished: bool) -> None:
        publish = self.topics.publish
        publish("deadline_misses", now.misses)
        publish("deadline_miss_ratio", now.miss_ratio)
        if not finished:
            return
        publish("processing_time_ms", now.processing_ms)
        publish("cyclic_time_ms", now.cyclic_ms)
        publish("pipeline_latency_ms", now.output_latency_ms)
        publish("lateness_ms", record.lateness_ns / 1e6)
        publish("lag_ms", record.lag_ns / 1e6)
        publish("copied_bytes", record.copied_bytes)
        publish("deadline_ms", (record.absolute_deadline_ns - record.release_ns) / 1e6)
        if "wcet_ms" in self.topics.wanted:
            publish("wcet_ms", self._timing.hwm_ms(record.variant))
        if "pwcet_ms" in self.topics.wanted:
            publish("pwcet_ms", self._timing.pwcet_ms(record.variant))

    def _publish_figures(self) -> None:
        """Publish the figures of all frames so far and the windows of the last second."""
        snapshot = self._timing.snapshot()
        whole = snapshot.whole
        if whole.count:
            for name in FIGURES:
                self.topics.publish(name, getattr(whole, name))
            for variant in self._variant_names():
                # A variant's topics can be subscribed to when it has figures.
                if (found := snapshot.variants.get(variant)) is None:
                    continue
                place = f"variants/{re.sub('[^A-Za-z0-9]+', '_', variant).strip('_')}"
                if variant not in self._variants:
                    self._variants.add(variant)
                    self.topics.add(f"{place}/{figure}" for figure in VARIANT_FIGURES)
                for figure in VARIANT_FIGURES:
                    self.topics.publish(f"{place}/{figure}", getattr(found, figure))
        if not math.isnan(snapshot.drift.level):
            self.topics.publish(DRIFT_TOPIC, snapshot.drift.level)
        self._statistics.observe({name: getattr(whole, key) for name, key in GAUGES.items()})
        self._statistics.publish()


class StatisticsTopic:
    """``/statistics``: one MetricsMessage in ms per metric and window, as rclcpp publishes them.

    Every window has the metrics of `METRICS`, and others only when they were observed.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._windows = _make_windows()
        self._lock = threading.Lock()
        self._publisher = node.create_publisher(
            MetricsMessage, "/statistics", make_qos("DEFAULT", DEPTH)
        )
        self._start = node.get_clock().now().to_msg()

    def observe(self, values: Mapping[str, float]) -> None:
        """Add one value to each metric named; NaN is left out."""
        with self._lock:
            for metric, value in values.items():
                if not math.isnan(value):
                    self._windows[metric].append(value)

    def publish(self) -> None:
        """Publish the windows and start new ones."""
        stop = self._node.get_clock().now().to_msg()
        with self._lock:
            done, self._windows = self._windows, _make_windows()
        for metric, values in done.items():
            pairs = zip(_STATISTICS, summarize(values), strict=True)
            message = MetricsMessage(
                measurement_source_name=self._node.get_fully_qualified_name(),
                metrics_source=metric,
                unit="ms",
                window_start=self._start,
                window_stop=stop,
                statistics=[StatisticDataPoint(data_type=kind, data=v) for kind, v in pairs],
            )
            self._publisher.publish(message)
        self._start = stop


def _make_windows() -> defaultdict[str, deque[float]]:
    windows: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LONGEST_WINDOW))
    for metric in METRICS:
        windows[metric].clear()
    return windows


def summarize(values: Iterable[float]) -> tuple[float, float, float, float, float]:
    """Mean, minimum, maximum, standard deviation and number of values; NaN without a value.

    The deviation is that of the population, as rclcpp computes it.
    """
    window = np.array(list(values))
    if not window.size:
        return math.nan, math.nan, math.nan, math.nan, 0.0
    mean, low, high, deviation = window.mean(), window.min(), window.max(), window.std()
    return float(mean), float(low), float(high), float(deviation), float(window.size)
