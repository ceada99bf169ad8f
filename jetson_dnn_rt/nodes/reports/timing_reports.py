"""Timing of a task as ROS topics: numbers for rqt_plot, and windows for ``/statistics``."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType
from std_msgs.msg import Float64

from jetson_dnn_rt.nodes.process.qos import RELIABLE
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

_SUBSCRIBERS_PERIOD_NS = 250_000_000
"""Between two counts of subscribers: asking DDS costs 5 us a topic, too much for every frame."""

_STATISTICS = (
    StatisticDataType.STATISTICS_DATA_TYPE_AVERAGE,
    StatisticDataType.STATISTICS_DATA_TYPE_MINIMUM,
    StatisticDataType.STATISTICS_DATA_TYPE_MAXIMUM,
    StatisticDataType.STATISTICS_DATA_TYPE_STDDEV,
    StatisticDataType.STATISTICS_DATA_TYPE_SAMPLE_COUNT,
)


class DebugTopics:
    """``~/debug/<name>`` of a node, one Float64 each, published only while it has subscribers.

    A new subscriber gets its first value after a quarter of a second at most.
    """

    def __init__(self, node: Node, names: Iterable[str]) -> None:
        self._publishers: dict[str, Publisher] = {
            name: node.create_publisher(Float64, f"~/debug/{name}", RELIABLE) for name in names
        }
        self._wanted: frozenset[str] = frozenset()
        self._next_count_ns = 0
        self._message = Float64()

    def wanted(self) -> frozenset[str]:
        """Topics that had subscribers when they were last counted."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_count_ns:
            self._next_count_ns = now_ns + _SUBSCRIBERS_PERIOD_NS
            self._wanted = frozenset(
                name for name, p in self._publishers.items() if p.get_subscription_count()
            )
        return self._wanted

    def publish(self, name: str, value: float) -> None:
        """Publish a value to subscribers; not thread-safe."""
        if name in self.wanted():
            self._message.data = float(value)
            self._publishers[name].publish(self._message)


class TimingReports:
    """The timing topics of a task while it is configured; `node` owns publishers and timer.

    `variants` returns the variants that are ready, to which others may be added.
    """

    def __init__(
        self, node: Node, timing: TaskTiming, variants: Callable[[], Iterable[str]]
    ) -> None:
        self._node, self._timing, self._variant_names = node, timing, variants
        # Used by two threads, hence two objects.
        self.topics = DebugTopics(node, JOB_TOPICS)
        self._figures = DebugTopics(node, (*FIGURES, DRIFT_TOPIC))
        self._variants: dict[str, DebugTopics] = {}
        self._statistics = StatisticsTopic(node)
        node.create_timer(PERIOD_S, self._publish_figures)

    def observe(self, record: JobRecord, now: TimingSnapshot, finished: bool) -> None:
        """Publish the figures of a job that ended, on the delivery thread."""
        if wanted := self.topics.wanted():
            self._publish_job(record, now, finished, wanted)
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

    def _publish_job(
        self, record: JobRecord, now: TimingSnapshot, finished: bool, wanted: frozenset[str]
    ) -> None:
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
        if "wcet_ms" in wanted:
            publish("wcet_ms", self._timing.hwm_ms(record.variant))
        if "pwcet_ms" in wanted:
            publish("pwcet_ms", self._timing.pwcet_ms(record.variant))

    def _publish_figures(self) -> None:
        """Publish the figures of all frames so far and the windows of the last second."""
        snapshot = self._timing.snapshot()
        whole = snapshot.whole
        if whole.count:
            for name in FIGURES:
                self._figures.publish(name, getattr(whole, name))
            for variant in self._variant_names():
                # A variant's topics are made when it has figures.
                if (found := snapshot.variants.get(variant)) is None:
                    continue
                place = f"variants/{re.sub('[^A-Za-z0-9]+', '_', variant).strip('_')}"
                if variant not in self._variants:
                    names = [f"{place}/{figure}" for figure in VARIANT_FIGURES]
                    self._variants[variant] = DebugTopics(self._node, names)
                for figure in VARIANT_FIGURES:
                    self._variants[variant].publish(f"{place}/{figure}", getattr(found, figure))
        if not math.isnan(snapshot.drift.level):
            self._figures.publish(DRIFT_TOPIC, snapshot.drift.level)
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
        self._publisher = node.create_publisher(MetricsMessage, "/statistics", RELIABLE)
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
