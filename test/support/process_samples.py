# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Memory, threads and descriptors of another process over time, and whether they stay flat."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

PERIOD_S = 1.0
MOST_POINTS = 400
"""Points whose slopes are compared pair by pair: more are thinned out."""


def read_sample(pid: int) -> dict[str, float]:
    """Present figures of a process; FileNotFoundError or ProcessLookupError when it is gone."""
    folder = Path("/proc", str(pid))
    lines = (line.partition(":") for line in (folder / "status").read_text().splitlines())
    status = {name: text.split() for name, _, text in lines}
    if "VmRSS" not in status:
        raise ProcessLookupError(f"process {pid} has ended")
    return {
        "memory_mb": int(status["VmRSS"][0]) * 1024 / 1e6,
        "anonymous_mb": int(status["RssAnon"][0]) * 1024 / 1e6,
        "threads": float(status["Threads"][0]),
        "descriptors": float(len(os.listdir(folder / "fd"))),
    }


class Sampler:
    """Samples a process once a second, on a thread, into `series`: equally long lists.

    `own` is the file in which the process says more of its memory (`own_memory`), `more` gives
    further figures, always the same.
    """

    def __init__(
        self, pid: int, own: Path | None = None, more: Callable[[], Mapping[str, float]] = dict
    ) -> None:
        self._pid, self._own, self._more = pid, own, more
        self.series: dict[str, list[float]] = {}
        self._begin_s = time.monotonic()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def restart(self) -> None:
        """Forget the samples so far."""
        with self._lock:
            self.series = {}
            self._begin_s = time.monotonic()

    def wait_for(self, count: int) -> None:
        """Wait until there are so many samples more, or no more will come."""
        wanted = len(self.series.get("seconds", ())) + count
        while len(self.series.get("seconds", ())) < wanted and self._thread.is_alive():
            time.sleep(0.1)

    def stop(self) -> None:
        """Take no more samples."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            try:
                found = {**read_sample(self._pid), **self._more()}
            except (FileNotFoundError, ProcessLookupError):
                return
            if self._own is not None:
                if not self._own.exists():  # in a moment
                    continue
                found |= json.loads(self._own.read_text(encoding="utf-8"))
            with self._lock:
                found["seconds"] = time.monotonic() - self._begin_s
                for name, value in found.items():
                    self.series.setdefault(name, []).append(round(value, 3))


def find_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The median slope of all pairs of points (Theil 1950, Sen 1968): steps do not decide it.

    NaN for fewer than two different places.
    """
    step = -(-len(x) // MOST_POINTS)
    xs, ys = np.array(x[::step]), np.array(y[::step])
    first, second = np.triu_indices(len(xs), 1)
    run, rise = xs[second] - xs[first], ys[second] - ys[first]
    apart = run > 0
    return float(np.median(rise[apart] / run[apart])) if apart.any() else float("nan")


def compare_ends(values: Sequence[float], count: int) -> tuple[float, float]:
    """Median of the first and of the last `count` values."""
    return statistics.median(values[:count]), statistics.median(values[-count:])
