"""What is known of a task's timing: fed by every job that ends, read by topics and diagnostics."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from jetson_dnn_rt.runtime.drift_watch import DriftSnapshot, DriftWatch
from jetson_dnn_rt.runtime.session import FINISHED
from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.traces.histogram import HALF_LIFE, AgedHistogram
from jetson_dnn_rt.traces.online import OnlineStatistics

PERCENTS = (50.0, 99.0, 99.9)

MOST_VARIANTS = 32
"""Told apart, those joined inside a frame (``full@x+tucker@x``) included: 0.5 MB each."""

OTHERS = "others"
"""Where all later ones are counted together."""


@dataclass(frozen=True, slots=True)
class ExecutionFigures:
    """Execution times of a variant, or of a task in all its variants; NaN = not known.

    Count, best, mean and the high-water mark are since the start, the percentiles exponentially
    aged. `pwcet_ms` is the bound on the high quantile (`OnlineStatistics.pwcet_ns`), of a single
    variant only.
    """

    count: int = 0
    best_ms: float = math.nan
    mean_ms: float = math.nan
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    p999_ms: float = math.nan
    hwm_ms: float = math.nan
    pwcet_ms: float = math.nan


@dataclass(slots=True)
class TimingSnapshot:
    """Figures at one moment, NaN where nothing is known."""

    processing_ms: float = math.nan
    inference_ms: float = math.nan
    output_latency_ms: float = math.nan
    cyclic_ms: float = math.nan
    consecutive_delay_ms: float = 0.0
    released: int = 0
    misses: int = 0
    last_met: str = ""  # variants, joined by +, of the last frame that kept its deadline
    whole: ExecutionFigures = field(default_factory=ExecutionFigures)  # of all variants
    variants: dict[str, ExecutionFigures] = field(default_factory=dict)
    drift: DriftSnapshot = field(default_factory=DriftSnapshot)  # from the profile

    @property
    def miss_ratio(self) -> float:
        """Misses by all frames; NaN before the first."""
        return self.misses / self.released if self.released else math.nan


class TaskTiming:
    """Collects from the delivery thread, is read from others.

    A *deadline miss* is a frame that got no result in time and was not replaced by a newer one:
    late, skipped, aborted or failed, but not superseded. `exceedance` is that of the bounded
    quantile; after `half_life` frames one counts half in the percentiles. `drift` compares the
    times with the profile, by default with the first frames.
    """

    def __init__(
        self, exceedance: float, half_life: float = HALF_LIFE, drift: DriftWatch | None = None
    ) -> None:
        self._exceedance, self._half_life = exceedance, half_life
        self._lock = threading.Lock()
        self._now = TimingSnapshot()
        self._variants: dict[str, OnlineStatistics] = {}
        self._aged = AgedHistogram(half_life)
        self._drift = drift or DriftWatch()
        self._last_completion_ns = 0
        self._slow_since_ns = 0

    def observe(self, record: JobRecord, published_ns: int, allowed_ms: float) -> TimingSnapshot:
        """Take one ended job; about five microseconds.

        `published_ns` is when its result had been published, steady clock; a processing time of up
        to `allowed_ms` is not slow, 0 = any. Returns the figures without `whole`, `variants` and
        `drift`, which cost more; to be read at once, by the same thread.
        """
        with self._lock:
            now = self._now
            now.released += 1
            now.misses += record.outcome not in (Outcome.MET, Outcome.SUPERSEDED)
            if record.outcome not in FINISHED:
                return now
            if record.outcome is Outcome.MET:
                now.last_met = record.variant
            execution_ns, inference_ns = _execution_ns(record)
            batch = max((stage.batch for stage in record.stages), default=1)
            if batch > 1:
                # The time of several frames: not the variant's, and nothing to see a drift in.
                name = f"{record.variant} (batch of {batch})"
                self._aged.add(self._of(name).observe(execution_ns))
            else:
                self._aged.add(self._of(record.variant).observe(execution_ns))
                self._drift.observe(record.variant, record.release_ns, execution_ns)
            now.processing_ms = execution_ns / 1e6
            now.inference_ms = inference_ns / 1e6
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
        """Everything; some tens of microseconds for each variant."""
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
                self._describe_whole(),
                {name: _describe(s) for name, s in self._variants.items()},
                self._drift.snapshot(),
            )

    def _of(self, variant: str) -> OnlineStatistics:
        """The statistics of a variant; the lock is held."""
        found = self._variants.get(variant)
        if found is not None:
            return found
        if len(self._variants) >= MOST_VARIANTS:
            variant = OTHERS
        return self._variants.setdefault(
            variant, OnlineStatistics(self._exceedance, self._half_life)
        )

    def _describe_whole(self) -> ExecutionFigures:
        parts = [s.histogram for s in self._variants.values()]
        if not parts:
            return ExecutionFigures()
        count, hwm_ns = sum(part.count for part in parts), max(part.hwm_ns for part in parts)
        p50_ns, p99_ns, p999_ns = self._aged.percentiles_ns(*PERCENTS)
        return ExecutionFigures(
            count=count,
            best_ms=min(part.best_ns for part in parts) / 1e6,
            mean_ms=sum(part.total_ns for part in parts) / count / 1e6,
            # Upper edges of buckets: none is longer than the longest.
            p50_ms=min(p50_ns, hwm_ns) / 1e6,
            p99_ms=min(p99_ns, hwm_ns) / 1e6,
            p999_ms=min(p999_ns, hwm_ns) / 1e6,
            hwm_ms=hwm_ns / 1e6,
        )


def _describe(statistics: OnlineStatistics) -> ExecutionFigures:
    p50_ns, p99_ns, p999_ns = statistics.percentiles_ns(*PERCENTS)
    return ExecutionFigures(
        count=statistics.count,
        best_ms=statistics.best_ns / 1e6,
        mean_ms=statistics.mean_ns / 1e6,
        p50_ms=p50_ns / 1e6,
        p99_ms=p99_ns / 1e6,
        p999_ms=p999_ns / 1e6,
        hwm_ms=statistics.hwm_ns / 1e6,
        pwcet_ms=statistics.pwcet_ns() / 1e6,
    )


def _execution_ns(record: JobRecord) -> tuple[int, int]:
    """Time of all stages, and of those of the network."""
    whole = inference = 0
    for stage in record.stages:
        time_ns = stage.end_ns - stage.start_ns
        whole += time_ns
        if stage.name.startswith("inference"):
            inference += time_ns
    return whole, inference
