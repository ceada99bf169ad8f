"""What is known of a task's timing: fed by every job that ends, read by topics and diagnostics."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.wcet.online import OnlineStatistics

FINISHED = (Outcome.MET, Outcome.LATE)

METRICS = ("processing_time", "response_time", "message_age", "message_period")
"""Of ``/statistics``; the last two are rclcpp's own names."""


@dataclass(slots=True)
class TimingSnapshot:
    """Figures at one moment, milliseconds, NaN where nothing is known.

    `percentiles` holds p50, p99, hwm, mean, best and the bound for each variant; `last_met` is the
    variant, or the variants joined by ``+``, of the last frame that kept its deadline.
    """

    processing_ms: float = math.nan
    inference_ms: float = math.nan
    output_latency_ms: float = math.nan
    cyclic_ms: float = math.nan
    consecutive_delay_ms: float = 0.0
    released: int = 0
    misses: int = 0
    last_met: str = ""
    percentiles: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def miss_ratio(self) -> float:
        """Misses by all frames; NaN before the first."""
        return self.misses / self.released if self.released else math.nan


class TaskTiming:
    """Collects from the delivery thread, is read from others.

    A *deadline miss* is a frame that got no result in time and was not replaced by a newer one:
    late, skipped, aborted or failed, but not superseded.

    Parameters
    ----------
    exceedance : float
        Of the bounded quantile.
    """

    def __init__(self, exceedance: float) -> None:
        self._exceedance = exceedance
        self._lock = threading.Lock()
        self._now = TimingSnapshot()
        self._variants: dict[str, OnlineStatistics] = {}
        self._last_completion_ns = 0
        self._slow_since_ns = 0

    def observe(self, record: JobRecord, published_ns: int, allowed_ms: float) -> TimingSnapshot:
        """Take one ended job.

        Parameters
        ----------
        record : JobRecord
            The job.
        published_ns : int
            When its result had been published, steady clock.
        allowed_ms : float
            Processing time that is not slow; 0 = any.

        Returns
        -------
        TimingSnapshot
            Without the percentiles, which cost more; to be read at once, by the same thread.
        """
        with self._lock:
            now = self._now
            now.released += 1
            now.misses += record.outcome not in (Outcome.MET, Outcome.SUPERSEDED)
            if record.outcome not in FINISHED:
                return now
            if record.outcome is Outcome.MET:
                now.last_met = record.variant
            execution_ns = record.execution_time_ns
            if record.variant not in self._variants:
                self._variants[record.variant] = OnlineStatistics(self._exceedance)
            self._variants[record.variant].observe(execution_ns)
            now.processing_ms = execution_ns / 1e6
            now.inference_ms = _stage_ms(record, "inference")
            now.output_latency_ms = (published_ns - record.capture_ns) / 1e6
            if self._last_completion_ns:
                now.cyclic_ms = (record.completion_ns - self._last_completion_ns) / 1e6
            self._last_completion_ns = record.completion_ns
            if not allowed_ms or now.processing_ms <= allowed_ms:
                self._slow_since_ns = 0
                now.consecutive_delay_ms = 0.0
            else:
                self._slow_since_ns = self._slow_since_ns or record.completion_ns
                now.consecutive_delay_ms = (record.completion_ns - self._slow_since_ns) / 1e6
            return now

    @property
    def last_met(self) -> str:
        """Variant, or variants joined by ``+``, of the last frame that kept its deadline."""
        with self._lock:
            return self._now.last_met

    def hwm_ms(self, variant: str) -> float:
        """Longest execution of a variant so far; NaN without any."""
        with self._lock:
            statistics = self._variants.get(variant)
            return math.nan if statistics is None else statistics.hwm_ns / 1e6

    def pwcet_ms(self, variant: str) -> float:
        """Bound on the high quantile of a variant; NaN while the sample is too small."""
        with self._lock:
            statistics = self._variants.get(variant)
            return math.nan if statistics is None else statistics.pwcet_ns() / 1e6

    def snapshot(self) -> TimingSnapshot:
        """Everything, with the percentiles of each variant."""
        with self._lock:
            now = self._now
            return TimingSnapshot(
                now.processing_ms,
                now.inference_ms,
                now.output_latency_ms,
                now.cyclic_ms,
                now.consecutive_delay_ms,
                now.released,
                now.misses,
                now.last_met,
                {name: _percentiles(s) for name, s in self._variants.items()},
            )


def _percentiles(statistics: OnlineStatistics) -> dict[str, float]:
    return {
        "best": statistics.best_ns / 1e6,
        "mean": statistics.mean_ns / 1e6,
        "p50": statistics.percentile_ns(50.0) / 1e6,
        "p99": statistics.percentile_ns(99.0) / 1e6,
        "hwm": statistics.hwm_ns / 1e6,
        "pwcet": statistics.pwcet_ns() / 1e6,
    }


def _stage_ms(record: JobRecord, name: str) -> float:
    return sum(s.execution_time_ns for s in record.stages if s.name.startswith(name)) / 1e6
