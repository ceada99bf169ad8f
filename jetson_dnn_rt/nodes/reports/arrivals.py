"""Regularity of the arrivals of a stream's frames."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass

WINDOW = 60
"""Arrivals over which a rate is taken: two seconds at 30 Hz."""

STALE_PERIODS = 5
"""After this many expected periods without a frame the stream is stale."""


@dataclass(frozen=True, slots=True)
class ArrivalSnapshot:
    """Rates and delays of a stream at one moment; NaN where nothing is known yet.

    `rate_node_hz` is by arrival, `rate_message_hz` by stamps; `delay_ms` is the age of the last
    frame at its arrival, `silence_ms` the time since then.
    """

    count: int
    rate_node_hz: float
    rate_message_hz: float
    delay_ms: float
    silence_ms: float


class Arrivals:
    """Times of the last frames; written by the thread that delivers them, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        self._count = 0
        self._delay_ns = 0

    def observe(self, arrival_ns: int, stamp_ns: int, capture_ns: int) -> None:
        """Record a frame; `stamp_ns` is in its source's clock, the others steady."""
        with self._lock:
            self._times.append((arrival_ns, stamp_ns))
            self._count += 1
            self._delay_ns = arrival_ns - capture_ns

    def snapshot(self, now_ns: int) -> ArrivalSnapshot:
        """Present figures."""
        with self._lock:
            count, delay_ns = self._count, self._delay_ns
            times = list(self._times)
        if not times:
            return ArrivalSnapshot(0, math.nan, math.nan, math.nan, math.nan)
        (first_ns, first_stamp_ns), (last_ns, last_stamp_ns) = times[0], times[-1]
        # An overdue frame counts as well: a dead camera's rate falls instead of freezing.
        until_ns = max(last_ns, now_ns - (last_ns - first_ns) // max(1, len(times) - 1))
        return ArrivalSnapshot(
            count=count,
            rate_node_hz=_rate_hz(len(times), until_ns - first_ns),
            rate_message_hz=_rate_hz(len(times), last_stamp_ns - first_stamp_ns),
            delay_ms=delay_ns / 1e6,
            silence_ms=(now_ns - last_ns) / 1e6,
        )


def _rate_hz(count: int, span_ns: int) -> float:
    return (count - 1) * 1e9 / span_ns if count > 1 and span_ns > 0 else math.nan
