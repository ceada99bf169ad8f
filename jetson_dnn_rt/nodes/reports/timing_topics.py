"""The timing of a task as ROS topics: numbers for rqt_plot, windows for ``/statistics``."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType
from std_msgs.msg import Float64

from jetson_dnn_rt.nodes.process.qos import RELIABLE

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
"""With every frame; the counters with every frame that ends, the others with those that finish."""

FIGURES = ("count", "best_ms", "mean_ms", "p50_ms", "p99_ms", "p999_ms", "hwm_ms")
"""Once a second: execution times of the task, in all its variants."""

DRIFT_TOPIC = "drift"
"""Once a second: the sum of the drift alarm relative to its limit; 1 and more is an alarm."""

VARIANT_FIGURES = ("p50_ms", "p99_ms", "p999_ms", "hwm_ms")
"""The same of each variant, below ``variants/<variant>/``."""

DEBUG_TOPICS = (*JOB_TOPICS, *FIGURES, DRIFT_TOPIC)

_LOOK_NS = 250_000_000
"""Between two looks at who subscribes: asking DDS costs 5 us a topic, too much for every frame."""


def variant_topics(variant: str) -> dict[str, str]:
    """Topics of a variant by figure: ``variants/full_torch_fp32/p99_ms``."""
    name = re.sub("[^A-Za-z0-9]+", "_", variant).strip("_")
    return {figure: f"variants/{name}/{figure}" for figure in VARIANT_FIGURES}


class TimingTopics:
    """``~/debug/...``, one Float64 each, published only while somebody subscribes.

    Who begins to subscribe gets what comes after at most a quarter of a second.

    Parameters
    ----------
    node : Node
        The task's node.
    names : sequence of str
        Below ``~/debug``.
    """

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self._node = node
        self._publishers: dict[str, Publisher] = {
            name: node.create_publisher(Float64, f"~/debug/{name}", RELIABLE) for name in names
        }
        self._wanted: frozenset[str] = frozenset()
        self._look_ns = 0
        self._message = Float64()

    def wanted(self) -> frozenset[str]:
        """Topics to which somebody subscribed at the last look."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + _LOOK_NS
            self._wanted = frozenset(
                name for name, p in self._publishers.items() if p.get_subscription_count()
            )
        return self._wanted

    def publish(self, name: str, value: float) -> None:
        """Publish a value to whoever subscribes; of one thread at a time."""
        if name in self.wanted():
            self._message.data = float(value)
            self._publishers[name].publish(self._message)

    def close(self) -> None:
        """Drop the publishers."""
        self._wanted, self._look_ns = frozenset(), 1 << 62
        for publisher in self._publishers.values():
            self._node.destroy_publisher(publisher)
        self._publishers = {}


class Window:
    """Mean, least, most, deviation and number of values (Welford's method)."""

    __slots__ = ("_mean", "_squares", "count", "highest", "lowest")

    def __init__(self) -> None:
        self.count = 0
        self.lowest = self.highest = math.nan
        self._mean = self._squares = 0.0

    def observe(self, value: float) -> None:
        """Take one more value."""
        self.count += 1
        if self.count == 1:
            self.lowest = self.highest = value
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        step = value - self._mean
        self._mean += step / self.count
        self._squares += step * (value - self._mean)

    @property
    def mean(self) -> float:
        """Mean; NaN without a value."""
        return self._mean if self.count else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation of the population, as rclcpp computes it; NaN without a value."""
        return math.sqrt(self._squares / self.count) if self.count else math.nan


class StatisticsTopic:
    """``/statistics``: one MetricsMessage per metric and window, as rclcpp publishes them.

    Parameters
    ----------
    node : Node
        The task's node.
    metrics : tuple of str
        Names of the metrics that every window has, all in milliseconds; others are in the windows
        in which they were observed.
    """

    def __init__(self, node: Node, metrics: tuple[str, ...]) -> None:
        self._node, self._metrics = node, metrics
        self._windows = self._make_windows()
        self._lock = threading.Lock()
        self._publisher = node.create_publisher(MetricsMessage, "/statistics", RELIABLE)
        self._start = node.get_clock().now().to_msg()

    def observe(self, values: Mapping[str, float]) -> None:
        """Take one value of each metric named; NaN is none."""
        with self._lock:
            for metric, value in values.items():
                if not math.isnan(value):
                    window = self._windows.get(metric)
                    if window is None:
                        window = self._windows[metric] = Window()
                    window.observe(value)

    def publish(self) -> None:
        """Publish the windows and start new ones."""
        stop = self._node.get_clock().now().to_msg()
        kinds = StatisticDataType
        with self._lock:
            done, self._windows = self._windows, self._make_windows()
        for metric, window in done.items():
            points = (
                (kinds.STATISTICS_DATA_TYPE_AVERAGE, window.mean),
                (kinds.STATISTICS_DATA_TYPE_MINIMUM, window.lowest),
                (kinds.STATISTICS_DATA_TYPE_MAXIMUM, window.highest),
                (kinds.STATISTICS_DATA_TYPE_STDDEV, window.deviation),
                (kinds.STATISTICS_DATA_TYPE_SAMPLE_COUNT, float(window.count)),
            )
            message = MetricsMessage(
                measurement_source_name=self._node.get_fully_qualified_name(),
                metrics_source=metric,
                unit="ms",
                window_start=self._start,
                window_stop=stop,
                statistics=[StatisticDataPoint(data_type=k, data=v) for k, v in points],
            )
            self._publisher.publish(message)
        self._start = stop

    def close(self) -> None:
        """Drop the publisher."""
        self._node.destroy_publisher(self._publisher)

    def _make_windows(self) -> dict[str, Window]:
        return {metric: Window() for metric in self._metrics}
