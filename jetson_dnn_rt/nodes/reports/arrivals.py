# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Regularity and ages of the arrivals of a stream's frames."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from jetson_dnn_rt.cameras.stamps import STAMP

WINDOW = 60
"""Arrivals over which rates and shares are taken: two seconds at 30 Hz."""

JITTER_WINDOW = 300
"""Intervals over which the mean jitter is taken, as greenwave does."""

SILENT_PERIODS = 5
"""After this many expected periods without a frame the stream is silent."""


@dataclass(frozen=True, slots=True)
class JitterFigures:
    """Differences of intervals from the expected period; all zero where that is not known."""

    outliers: int = 0  # beyond the tolerance, since the start
    max_us: int = 0  # since the start
    mean_us: int = 0  # of the last `JITTER_WINDOW`


@dataclass(frozen=True, slots=True)
class ArrivalSnapshot:
    """Rates, delays and jitter of a stream at one moment; NaN where nothing is known yet.

    `rate_node_hz` is by arrival, `rate_message_hz` by stamps, as is the jitter; `delay_ms` is the
    age of the last frame at its arrival, NaN if unknown, `silence_ms` the time since its arrival.
    `unchanged_ms` is how long frames have had its stamp, 0 if that is zero. `recent` counts are
    of the last `WINDOW` frames.
    """

    count: int = 0
    rate_node_hz: float = math.nan
    rate_message_hz: float = math.nan
    delay_ms: float = math.nan
    silence_ms: float = math.nan
    non_increasing: int = 0  # stamps that are not later than the one before, since the start
    unchanged_ms: float = 0.0
    recent: int = 0
    recent_zero: int = 0  # stamps
    recent_non_increasing: int = 0
    recent_doubtful: int = 0  # stamps that do not tell the age
    recent_stale: int = 0  # frames older than `max_age`, or whose age is in doubt
    jitter_node: JitterFigures = JitterFigures()
    jitter_message: JitterFigures = JitterFigures()


class Arrivals:
    """Times of the last frames; written by the thread that delivers them, read by any.

    Without a lock: a reader may see part of the latest frame, but never waits for its thread.

    `period_ns` is the expected time between two frames, 0 = unknown; an interval that differs by
    more than the share `tolerance` of it is an outlier.
    """

    def __init__(self, period_ns: int = 0, tolerance: float = 0.0) -> None:
        self._times: deque[tuple[int, int, int, str]] = deque(maxlen=WINDOW)
        self._count = self._non_increasing = 0
        self._changed_ns = 0
        self._jitter_node = _Jitter(period_ns, tolerance)
        self._jitter_message = _Jitter(period_ns, tolerance)

    def observe(self, arrival_ns: int, stamp_ns: int, capture_ns: int, doubt: str = "") -> None:
        """Record a frame; `stamp_ns` is in its source's clock, the others steady."""
        last_stamp_ns = None
        if self._times:
            last_ns, last_stamp_ns, _, _ = self._times[-1]
            self._non_increasing += stamp_ns <= last_stamp_ns
            self._jitter_node.observe(arrival_ns - last_ns)
            self._jitter_message.observe(stamp_ns - last_stamp_ns)
        if stamp_ns != last_stamp_ns:
            self._changed_ns = arrival_ns
        self._times.append((arrival_ns, stamp_ns, arrival_ns - capture_ns, doubt))
        self._count += 1

    def snapshot(self, now_ns: int, max_age_ns: int = 0) -> ArrivalSnapshot:
        """Present figures; frames older than `max_age_ns` are stale, 0 = no limit."""
        times = tuple(self._times)
        if not times:
            return ArrivalSnapshot()
        first_ns, first_stamp_ns, _, _ = times[0]
        last_ns, last_stamp_ns, delay_ns, doubt = times[-1]
        stamps = [stamp_ns for _, stamp_ns, _, _ in times]
        stale = [bool(why) or age_ns > max_age_ns for _, _, age_ns, why in times if max_age_ns]
        # An overdue frame counts as well: a dead camera's rate falls instead of freezing.
        until_ns = max(last_ns, now_ns - (last_ns - first_ns) // max(1, len(times) - 1))
        return ArrivalSnapshot(
            count=self._count,
            rate_node_hz=_rate_hz(len(times), until_ns - first_ns),
            rate_message_hz=_rate_hz(len(times), last_stamp_ns - first_stamp_ns),
            delay_ms=math.nan if doubt == STAMP else delay_ns / 1e6,
            silence_ms=(now_ns - last_ns) / 1e6,
            non_increasing=self._non_increasing,
            unchanged_ms=(last_ns - self._changed_ns) / 1e6 if last_stamp_ns else 0.0,
            recent=len(times),
            recent_zero=stamps.count(0),
            recent_non_increasing=sum(b <= a for a, b in pairwise(stamps)),
            recent_doubtful=sum(why == STAMP for _, _, _, why in times),
            recent_stale=sum(stale),
            jitter_node=self._jitter_node.snapshot(),
            jitter_message=self._jitter_message.snapshot(),
        )


class _Jitter:
    def __init__(self, period_ns: int, tolerance: float) -> None:
        self._period_ns, self._limit_ns = period_ns, int(period_ns * tolerance)
        self._window: deque[int] = deque(maxlen=JITTER_WINDOW)
        self._outliers = self._max_ns = 0

    def observe(self, interval_ns: int) -> None:
        if not self._period_ns:
            return
        jitter_ns = abs(interval_ns - self._period_ns)
        self._window.append(jitter_ns)
        self._max_ns = max(self._max_ns, jitter_ns)
        self._outliers += jitter_ns > self._limit_ns

    def snapshot(self) -> JitterFigures:
        window = tuple(self._window)
        mean_ns = sum(window) // max(1, len(window))
        return JitterFigures(self._outliers, self._max_ns // 1000, mean_ns // 1000)


def _rate_hz(count: int, span_ns: int) -> float:
    return (count - 1) * 1e9 / span_ns if count > 1 and span_ns > 0 else math.nan
