# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Present schedulability: with learned budgets, present deadlines and measured rates.

The verdict at the start rests on a few warm-up runs and on expected rates. It is wrong if the
machine was busy then, a deadline has been changed, or a topic has another rate.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.scheduling.analysis import Verdict

PERIOD_NS = 900_000_000
"""Greatest age of a verdict; the diagnostics of several nodes ask for it once a second."""

READINGS = 11
"""Counts of released frames that are kept: rates are those of the last ten seconds."""

LEAST_FRAMES = 5
"""With fewer in that time the rate is not known: the expected one is assumed."""

MOST_POINTS = 5_000
"""Points of the demand test, which take some milliseconds: diagnostics share a thread with the
image callbacks."""


@dataclass(frozen=True, slots=True)
class PresentVerdict:
    """A verdict, and the rates that it rests on."""

    verdict: Verdict
    rates_hz: dict[str, float]
    assumed: frozenset[str]
    """Tasks whose rate is the expected one, since too few of their frames came lately."""

    def describe_rates(self) -> str:
        """The rates in words."""
        return ", ".join(
            f"{task} {rate_hz:.1f} Hz" + (" (assumed)" if task in self.assumed else "")
            for task, rate_hz in self.rates_hz.items()
        )

    def __str__(self) -> str:
        return f"{self.verdict}; frames come at: {self.describe_rates()}"


class VerdictWatch:
    """Judges the tasks of an executor at most once in `PERIOD_NS`; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=READINGS)
        self._last: PresentVerdict | None = None
        self._last_ns = 0

    def judge(self, executor: Executor, now_ns: int, *, over: bool = False) -> PresentVerdict:
        """The present verdict; with `over` frames have ceased, and the rates stay as they were.

        `NotAnsweringError` when a thread keeps the executor's lock.
        """
        with self._lock:
            if self._last is not None and not over and now_ns - self._last_ns < PERIOD_NS:
                return self._last
            counts = executor.count_released()
            expected_ns = {task: period_ns for task, (_, period_ns) in counts.items()}
            if not over:
                released = {task: count for task, (count, _) in counts.items()}
                self._readings.append((now_ns, released))
            measured_ns = {
                task: period_ns
                for task in expected_ns
                if (period_ns := self._find_period_ns(task)) is not None
            }
            periods_ns = {**expected_ns, **measured_ns}
            self._last_ns = now_ns
            self._last = PresentVerdict(
                executor.analyse(measured_ns, MOST_POINTS),
                {task: 1e9 / period_ns for task, period_ns in periods_ns.items()},
                frozenset(expected_ns.keys() - measured_ns.keys()),
            )
            return self._last

    def _find_period_ns(self, task: str) -> int | None:
        """Mean time between two frames lately, rounded down; None with too few frames."""
        counts: list[tuple[int, int]] = []
        for time_ns, released in reversed(self._readings):
            count = released.get(task)
            # The task was removed or added since: what was before is of another configuration.
            if count is None or (counts and count > counts[-1][1]):
                break
            counts.append((time_ns, count))
        if not counts:
            return None
        (last_ns, last), (first_ns, first) = counts[0], counts[-1]
        frames = last - first
        return max(1, (last_ns - first_ns) // frames) if frames >= LEAST_FRAMES else None
