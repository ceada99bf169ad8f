# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Timing statistics of a task: fed by every job that ends, read by topics and diagnostics."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jetson_dnn_rt.runtime.drift_watch import DriftSnapshot, DriftWatch
from jetson_dnn_rt.runtime.session import FINISHED
from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.traces.histogram import HALF_LIFE, AgedHistogram, Histogram
from jetson_dnn_rt.traces.online import OnlineStatistics
from jetson_dnn_rt.traces.schema import describe_kind
from jetson_dnn_rt.traces.summary import has_quantile

PERCENTS = (50.0, 99.0, 99.9)

MOST_VARIANTS = 32
"""Variants with figures of their own, joined ones (``full@x+tucker@x``) included: 0.5 MB each."""

OTHERS = "others"
"""Name under which all later ones are counted together."""


@dataclass(frozen=True, slots=True)
class ExecutionFigures:
    """Execution times of a variant, or of a task in all its variants; NaN = not known.

    Count, best, mean and the high-water mark are since the start, the percentiles exponentially
    aged; one that no time lies above is NaN, since it would be the high-water mark under another
    name (p99 of less than 100 times, p99.9 of less than 1,000). `pwcet_ms` is the bound on the
    high quantile (`OnlineStatistics.pwcet_ns`), of a single variant only.
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
    """Timing of a task: collected on the delivery thread, read on others.

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

    def observe(
        self, record: JobRecord, published_ns: int, allowed_ms: float, *, age_known: bool = True
    ) -> TimingSnapshot:
        """Record an ended job; takes about five microseconds.

        `published_ns` is when its result had been published, steady clock; a processing time of up
        to `allowed_ms` is not slow, 0 = any. Without `age_known` it has no latency. Returns the
        figures without `whole`, `variants` and `drift`, which cost more; to be read at once, by
        the same thread.
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
            if kind := describe_kind(record.batch, narrow=record.narrow):
                # Not the variant's usual time, nor of use for detecting drift.
                self._aged.add(self._of(record.variant + kind).observe(execution_ns))
            else:
                self._aged.add(self._of(record.variant).observe(execution_ns))
                self._drift.observe(record.variant, record.release_ns, execution_ns)
            now.processing_ms = execution_ns / 1e6
            now.inference_ms = inference_ns / 1e6
            latency_ms = (published_ns - record.capture_ns) / 1e6
            now.output_latency_ms = latency_ms if age_known else math.nan
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

    def hwm_ms(self, variant: str) -> float:
        """Longest execution of a variant so far; NaN without any."""
        with self._lock:
            found = self._variants.get(variant)
            return math.nan if found is None else found.hwm_ns / 1e6

    def pwcet_ms(self, variant: str) -> float:
        """Bound on the high quantile of a variant; NaN while the sample is too small."""
        with self._lock:
            found = self._variants.get(variant)
            return math.nan if found is None else found.pwcet_ns() / 1e6

    def snapshot(self) -> TimingSnapshot:
        """All figures; takes some tens of microseconds for each variant."""
        with self._lock:
            histograms = [s.histogram for s in self._variants.values()]
            return replace(
                self._now,
                whole=_describe(histograms, self._aged) if histograms else ExecutionFigures(),
                variants={
                    name: _describe([s.histogram], s.aged, s.pwcet_ns())
                    for name, s in self._variants.items()
                },
                drift=self._drift.snapshot(),
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


def _describe(
    parts: Sequence[Histogram], aged: AgedHistogram, pwcet_ns: float = math.nan
) -> ExecutionFigures:
    """Figures of all times in some histograms, of which `aged` has the recent ones."""
    count, hwm_ns = sum(part.count for part in parts), max(part.hwm_ns for part in parts)
    effective = aged.effective_count(count)
    # Upper edges of buckets: none is longer than the longest.
    p50_ms, p99_ms, p999_ms = (
        min(time_ns, hwm_ns) / 1e6
        if percent == 50.0 or has_quantile(effective, percent / 100.0)
        else math.nan
        for percent, time_ns in zip(PERCENTS, aged.percentiles_ns(*PERCENTS), strict=True)
    )
    best_ns = min(part.best_ns for part in parts)
    mean_ns = sum(part.total_ns for part in parts) / count
    return ExecutionFigures(
        count, best_ns / 1e6, mean_ns / 1e6,
        p50_ms, p99_ms, p999_ms, hwm_ns / 1e6, pwcet_ns / 1e6,
    )  # fmt: skip


def _execution_ns(record: JobRecord) -> tuple[int, int]:
    """Time of all stages, and of those of the network."""
    whole = inference = 0
    for stage in record.stages:
        time_ns = stage.end_ns - stage.start_ns
        whole += time_ns
        if stage.name.startswith("inference"):
            inference += time_ns
    return whole, inference
