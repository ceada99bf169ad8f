# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One stamped message for each frame that ends, with all its times: ``~/debug/timing``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from jetson_dnn_rt.nodes.process.qos import make_qos
from jetson_dnn_rt.nodes.reports.task_timing import TaskTiming, TimingSnapshot
from jetson_dnn_rt.nodes.tasks.conversion import fill_header
from jetson_dnn_rt.runtime.session import FINISHED
from jetson_dnn_rt.tasks import JobRecord, Outcome

if TYPE_CHECKING:
    from rclpy.node import Node

    from jetson_dnn_rt.frames import Frame

TIMING_TOPIC = "~/debug/timing"

DEPTH = 100
"""Messages kept for a slow reader: three seconds at 30 Hz."""

LEVELS = {Outcome.MET: DiagnosticStatus.OK, Outcome.FAILED: DiagnosticStatus.ERROR}
"""Levels of the outcomes; the others are warnings."""

FIGURES = ("p50_ms", "p99_ms", "p999_ms", "hwm_ms")
"""Execution times of the task in all its variants, read once a second."""

FIGURES_PERIOD_S = 1.0

SUBSCRIBERS_PERIOD_NS = 250_000_000
"""Between two counts of subscribers: asking DDS costs 5 us, too much for every frame."""


class FrameTimingTopic:
    """A `DiagnosticArray` with one status for each frame that ends, while somebody listens.

    `node` owns publisher and timer, `task` is the task's name, `budgets` returns the present
    budgets in ms by variant. One thread publishes.
    """

    def __init__(
        self, node: Node, task: str, timing: TaskTiming, budgets: Callable[[], Mapping[str, float]]
    ) -> None:
        self._task, self._timing, self._read_budgets = task, timing, budgets
        self._publisher = node.create_publisher(
            DiagnosticArray, TIMING_TOPIC, make_qos("DEFAULT", DEPTH)
        )
        place = node.get_fully_qualified_name()
        self._status = DiagnosticStatus(name=place if place == f"/{task}" else f"{place}: {task}")
        self._message = DiagnosticArray(status=[self._status])
        self._pool: dict[str, KeyValue] = {}
        self._budgets: Mapping[str, float] = {}
        self._figures: Mapping[str, float] = {}
        self._wanted = False
        self._next_count_ns = 0
        node.create_timer(FIGURES_PERIOD_S, self._refresh)

    @property
    def wanted(self) -> bool:
        """Whether it had subscribers when they were last counted."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_count_ns:
            self._next_count_ns = now_ns + SUBSCRIBERS_PERIOD_NS
            self._wanted = self._publisher.get_subscription_count() > 0
        return self._wanted

    def publish(self, record: JobRecord, now: TimingSnapshot, frame: Frame) -> None:
        """Publish the times of a frame that ended, whatever its outcome."""
        outcome = record.outcome
        self._status.level = LEVELS.get(outcome, DiagnosticStatus.WARN)
        self._status.message = outcome.value
        texts = {
            "task": self._task,
            "outcome": outcome.value,
            "reason": record.reason,
            "variant": record.variant,
            "sequence": str(record.sequence),
            "release_ns": str(record.release_ns),
            "copied_bytes": str(record.copied_bytes),
            "deadline_misses": str(now.misses),
        }
        values = {
            "response_ms": record.response_time_ns / 1e6,
            "deadline_ms": (record.absolute_deadline_ns - record.release_ns) / 1e6,
            "waiting_ms": record.waiting_ns / 1e6,
            "budget_ms": self._budgets.get(record.variant, math.nan),
            "deadline_miss_ratio": now.miss_ratio,
        }
        if outcome in FINISHED:
            values |= {
                "processing_time_ms": now.processing_ms,
                "cyclic_time_ms": now.cyclic_ms,
                "pipeline_latency_ms": now.output_latency_ms,
                "lateness_ms": record.lateness_ns / 1e6,
                "lag_ms": record.lag_ns / 1e6,
                "wcet_ms": self._timing.hwm_ms(record.variant),
                "pwcet_ms": self._timing.pwcet_ms(record.variant),
            }
        for stage in record.stages:
            values[f"stage.{stage.name}_ms"] = stage.execution_time_ns / 1e6
        values |= self._figures
        texts |= {key: f"{value:.3f}" for key, value in values.items() if not math.isnan(value)}
        self._status.values = [self._fill(key, text) for key, text in texts.items() if text]
        fill_header(self._message.header, frame)
        self._publisher.publish(self._message)

    def _fill(self, key: str, text: str) -> KeyValue:
        """A `KeyValue` of the pool: making new ones would double the time of a message."""
        item = self._pool.get(key)
        if item is None:
            item = self._pool[key] = KeyValue(key=key)
        item.value = text
        return item

    def _refresh(self) -> None:
        """Read what is too expensive for every frame."""
        if self._wanted:
            snapshot = self._timing.snapshot()
            figures = {name: getattr(snapshot.whole, name) for name in FIGURES}
            self._figures = {**figures, "drift": snapshot.drift.level}
            self._budgets = self._read_budgets()
