"""Times of a stream of frames: when they were captured, and how regularly they arrive."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

OLDEST_NS = 10_000_000_000
"""A frame is not under way for ten seconds: its stamp is from another clock."""

LATEST_NS = 100_000_000
"""Stamps that far in the future are more than the jitter of two synchronised clocks."""


WINDOW = 60
"""Arrivals behind a rate: two seconds at 30 Hz."""

STALE_PERIODS = 5
"""So many expected periods without a frame, and the stream is stale."""


class StampClock:
    """Converts the stamps of a stream to capture times on the steady clock.

    A stamp is in the node's clock (system or simulated time), the scheduler's times are steady.
    The difference of the two is taken anew for every frame, so neither a jump of the system clock
    nor simulated time disturbs deadlines. A stamp that cannot be true (recorded data,
    unsynchronised cameras) is not believed: arrival time takes its place, which is logged once.
    `name` is that of the stream in the log; `now_ns` the node's clock, which follows
    ``use_sim_time``.
    """

    def __init__(self, name: str, now_ns: Callable[[], int]) -> None:
        self._name, self._now_ns = name, now_ns
        self._last_ns = -(1 << 62)
        self._said: set[str] = set()
        self.distrusted = 0

    def capture_ns(self, stamp_ns: int, arrival_ns: int) -> int:
        """Capture time, steady and never after `arrival_ns`, of a frame that arrives now."""
        age_ns = self._now_ns() - stamp_ns
        fault = self._fault(stamp_ns, age_ns)
        self._last_ns = stamp_ns
        if not fault:
            return arrival_ns - max(0, age_ns)
        self.distrusted += 1
        if fault not in self._said:
            self._said.add(fault)
            logger.warning(
                "%s: stamps are %s (stamp minus clock: %.3f s): arrival time is used for them; "
                "synchronise the camera's clock, or set use_sim_time when a bag is played",
                self._name, fault, -age_ns * 1e-9,
            )  # fmt: skip
        return arrival_ns

    def _fault(self, stamp_ns: int, age_ns: int) -> str:
        if stamp_ns == 0:
            return "zero or malformed"
        if stamp_ns < self._last_ns:
            return "going backwards"
        if age_ns < -LATEST_NS:
            return "in the future"
        return "too old" if age_ns > OLDEST_NS else ""


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
    """Times of the last frames; written by the thread that brings them, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        self._count = 0
        self._delay_ns = 0

    def observe(self, arrival_ns: int, stamp_ns: int, capture_ns: int) -> None:
        """Take one more frame; `stamp_ns` is in its source's clock, the others steady."""
        with self._lock:
            self._times.append((arrival_ns, stamp_ns))
            self._count += 1
            self._delay_ns = arrival_ns - capture_ns

    def snapshot(self, now_ns: int) -> ArrivalSnapshot:
        """Figures now."""
        with self._lock:
            count, delay_ns = self._count, self._delay_ns
            times = list(self._times)
        if not times:
            return ArrivalSnapshot(0, math.nan, math.nan, math.nan, math.nan)
        (first_ns, first_stamp_ns), (last_ns, last_stamp_ns) = times[0], times[-1]
        # What is expected and missing counts: a dead camera's rate sinks, it does not freeze.
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
