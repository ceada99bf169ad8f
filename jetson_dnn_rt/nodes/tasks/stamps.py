# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Capture times of a stream's frames, on the steady clock."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

OLDEST_NS = 10_000_000_000
"""No frame is under way for ten seconds: an older stamp is from another clock."""

LATEST_NS = 100_000_000
"""Stamps that far in the future are more than the jitter of two synchronised clocks."""


class StampClock:
    """Converts the stamps of a stream to capture times on the steady clock.

    A stamp is in the node's clock (system or simulated time), the scheduler's times are steady.
    The difference of the two is taken anew for every frame, so neither a jump of the system clock
    nor simulated time disturbs deadlines. A stamp that cannot be true (recorded data,
    unsynchronised cameras) is replaced by the arrival time, which is logged once.
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
