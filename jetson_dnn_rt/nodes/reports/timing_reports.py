"""Publishes a task's timing: what concerns a frame with it, what sums them up once a second."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rclpy.clock import Clock, ClockType

from jetson_dnn_rt.nodes.reports.timing_topics import (
    DRIFT_TOPIC,
    FIGURES,
    JOB_TOPICS,
    StatisticsTopic,
    TimingTopics,
    variant_topics,
)
from jetson_dnn_rt.nodes.tasks.task_timing import ExecutionFigures, TimingSnapshot
from jetson_dnn_rt.tasks import JobRecord

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode

PERIOD_S = 1.0

METRICS = ("processing_time", "response_time", "message_age", "message_period")
"""Of every window of ``/statistics``; the last two are rclcpp's own names. Besides there is
``processing_time/<variant>`` of every variant that ran, and the figures of `GAUGES`."""

GAUGES = {
    "processing_time_p50": "p50_ms",
    "processing_time_p99": "p99_ms",
    "processing_time_p999": "p999_ms",
    "processing_time_hwm": "hwm_ms",
}
"""Metrics with one value in a window, by the figure that it is: MetricsMessage has no kind of
statistic for percentiles."""


class TimingReports:
    """The timing topics of a task while it is configured.

    Parameters
    ----------
    node : TaskNode
        The task's node; its `timing` is what is published.
    """

    def __init__(self, node: TaskNode) -> None:
        self._node = node
        # Of two threads, hence with a message each.
        self.topics = TimingTopics(node, JOB_TOPICS)
        self.figures = TimingTopics(node, (*FIGURES, DRIFT_TOPIC))
        self._variants: dict[str, TimingTopics] = {}
        self._statistics = StatisticsTopic(node, METRICS)
        self._timer: Any = node.create_timer(
            PERIOD_S, self.publish_figures, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    def observe(self, record: JobRecord, now: TimingSnapshot, finished: bool) -> None:
        """Publish what concerns a job that ended, on the delivery thread."""
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
        publish, timing = self.topics.publish, self._node.timing
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
            publish("wcet_ms", timing.hwm_ms(record.variant))
        if "pwcet_ms" in wanted:
            publish("pwcet_ms", timing.pwcet_ms(record.variant))

    def publish_figures(self) -> None:
        """Publish the figures of all frames so far and the windows of the last second."""
        snapshot = self._node.timing.snapshot()
        whole = snapshot.whole
        if whole.count:
            for name in FIGURES:
                self.figures.publish(name, getattr(whole, name))
            self._publish_variants(snapshot.variants)
        if not math.isnan(snapshot.drift.level):
            self.figures.publish(DRIFT_TOPIC, snapshot.drift.level)
        self._statistics.observe({name: getattr(whole, key) for name, key in GAUGES.items()})
        self._statistics.publish()

    def close(self) -> None:
        """Drop the timer and the publishers."""
        self._node.destroy_timer(self._timer)
        for topics in (self.topics, self.figures, *self._variants.values()):
            topics.close()
        self._variants = {}
        self._statistics.close()

    def _publish_variants(self, figures: dict[str, ExecutionFigures]) -> None:
        loaded = self._node.loaded
        for variant in () if loaded is None else loaded.variant_names:
            found = figures.get(variant)
            if found is None:
                continue
            names = variant_topics(variant)
            # Made when they have something to say: one that was built meanwhile gets its own.
            topics = self._variants.get(variant)
            if topics is None:
                topics = self._variants[variant] = TimingTopics(self._node, [*names.values()])
            for figure, name in names.items():
                topics.publish(name, getattr(found, figure))
