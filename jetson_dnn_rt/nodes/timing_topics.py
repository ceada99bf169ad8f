"""The timing of a task as ROS topics: numbers for rqt_plot, windows for ``/statistics``."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from statistics_msgs.msg import MetricsMessage, StatisticDataPoint, StatisticDataType
from std_msgs.msg import Float64

from jetson_dnn_rt.nodes.qos import RELIABLE

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.publisher import Publisher

DEBUG_TOPICS = (
    "processing_time_ms",
    "cyclic_time_ms",
    "pipeline_latency_ms",
    "lateness_ms",
    "lag_ms",
    "wcet_ms",
    "pwcet_ms",
    "deadline_misses",
    "deadline_miss_ratio",
)


class TimingTopics:
    """``~/debug/...``, one Float64 each, published only while somebody subscribes.

    Parameters
    ----------
    node : Node
        The task's node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publishers: dict[str, Publisher] = {
            name: node.create_publisher(Float64, f"~/debug/{name}", RELIABLE)
            for name in DEBUG_TOPICS
        }
        self._message = Float64()

    def wants(self, name: str) -> bool:
        """Whether somebody subscribes to a topic."""
        return self._publishers[name].get_subscription_count() > 0

    def publish(self, name: str, value: float) -> None:
        """Publish a value to whoever subscribes."""
        publisher = self._publishers[name]
        if publisher.get_subscription_count():
            self._message.data = float(value)
            publisher.publish(self._message)

    def close(self) -> None:
        """Drop the publishers."""
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
        Names of the metrics, all in milliseconds.
    """

    def __init__(self, node: Node, metrics: tuple[str, ...]) -> None:
        self._node = node
        self._windows = {metric: Window() for metric in metrics}
        self._lock = threading.Lock()
        self._publisher = node.create_publisher(MetricsMessage, "/statistics", RELIABLE)
        self._start = node.get_clock().now().to_msg()

    def observe(self, **values: float) -> None:
        """Take one value of each metric named; NaN is none."""
        with self._lock:
            for metric, value in values.items():
                if not math.isnan(value):
                    self._windows[metric].observe(value)

    def publish(self) -> None:
        """Publish the windows and start new ones."""
        stop = self._node.get_clock().now().to_msg()
        kinds = StatisticDataType
        with self._lock:
            done, self._windows = self._windows, {metric: Window() for metric in self._windows}
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
