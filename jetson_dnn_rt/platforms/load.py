# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""CPU load: what this process and what other programs use of the cores.

A stage that takes 40 ms instead of 20 is slower, or waits for a core that another program has: its
wall time alone does not tell which. The kernel counts what every core did (``/proc/stat``), the
CPU time of this process, and how long its threads were ready without a core (``schedstat``).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

WINDOW_NS, STEP_NS = 5_000_000_000, 900_000_000
"""Time over which a load is averaged, and least time between two readings."""

MOST_THREADS = 256
"""Threads whose waiting time is read, at some microseconds each; further ones are left out."""

OTHERS, FULL, WAITING = 0.25, 0.9, 0.1
"""Least use by other programs that can matter, in cores; share of all cores that counts as all;
seconds of waiting in each second above which this process is held up."""

_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of a core in /proc/stat that are work: user, nice, system, irq, softirq, and steal (of
other virtual machines)."""


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Counters of the kernel at one moment; None where they cannot be read."""

    at_ns: int  # steady clock
    cores: int  # that this process may run on
    busy_ns: int | None  # of those cores, by all programs
    own_ns: int  # by this process
    waited_ns: dict[int, int] | None  # by thread, how long it was ready without a core


def parse_busy_ns(stat: str, cores: Collection[int], ticks_per_s: int = 100) -> int | None:
    """Time that these cores worked, from the text of ``/proc/stat``; None if one is not in it."""
    found = {}
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdigit():
            columns = rest.split()
            found[int(name[3:])] = sum(int(columns[i]) for i in _BUSY if i < len(columns))
    if not cores or not found.keys() >= set(cores):
        return None
    return sum(found[core] for core in cores) * 1_000_000_000 // ticks_per_s


def parse_waited_ns(schedstat: str) -> int:
    """Time that a thread was ready without a core, from its ``schedstat``."""
    return int(schedstat.split()[1])


def parse_pressure(text: str) -> float | None:
    """Share of the last ten seconds in which a program waited for a core, in percent.

    From the text of ``/proc/pressure/cpu``; None where it is not there.
    """
    for word in text.split():
        name, _, value = word.partition("=")
        if name == "avg10":
            return float(value)
    return None


def read_cpu(root: Path = Path("/")) -> CpuReading:
    """Read the counters; 0.1 ms, and some microseconds for each thread."""
    cores = os.sched_getaffinity(os.getpid())
    try:
        stat = (root / "proc/stat").read_text()
        busy_ns = parse_busy_ns(stat, cores, os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        busy_ns = None
    return CpuReading(
        time.monotonic_ns(), len(cores), busy_ns, time.process_time_ns(), _read_waits(root)
    )


def _read_waits(root: Path) -> dict[int, int] | None:
    folder = root / "proc/self/task"
    waited = {}
    try:
        for name in os.listdir(folder)[:MOST_THREADS]:
            try:
                waited[int(name)] = parse_waited_ns((folder / name / "schedstat").read_text())
            except (OSError, ValueError, IndexError):  # it has ended, or the kernel does not count
                continue
    except OSError:
        return None
    return waited or None


@dataclass(frozen=True, slots=True)
class Load:
    """What was used between two readings, in cores: 1.5 = one and a half all the time."""

    seconds: float
    cores: int  # that this process may run on
    own: float
    others: float | None  # None where it cannot be read
    waiting: float | None  # seconds that threads of this process waited for a core, each second

    @property
    def is_crowded(self) -> bool:
        """Whether other programs take cores that this process needs."""
        if self.others is None or self.others < OTHERS:
            return False
        full = self.own + self.others >= FULL * self.cores
        return full or (self.waiting is not None and self.waiting >= WAITING)

    def to_dict(self) -> dict[str, float | int | None]:
        """The load for JSON and diagnostics."""
        return {
            "cores": self.cores,
            "own_cores": self.own,
            "others_cores": self.others,
            "waited_s_per_s": self.waiting,
        }

    def __str__(self) -> str:
        if self.others is None:
            return f"this process used {self.own:.1f} of {_count_cores(self.cores)}"
        text = (
            f"other programs used {self.others:.1f} of {_count_cores(self.cores)}, this process "
            f"{self.own:.1f}"
        )
        if self.waiting is not None and self.waiting >= WAITING:
            text += f", whose threads waited {self.waiting:.1f} s of each second for a core"
        return text


def _count_cores(cores: int) -> str:
    return f"{cores} core{'s' if cores > 1 else ''}"


def compare(before: CpuReading, after: CpuReading) -> Load | None:
    """The load between two readings; None where no time lies between them."""
    span_ns = after.at_ns - before.at_ns
    if span_ns <= 0:
        return None
    own_ns = after.own_ns - before.own_ns
    others = waiting = None
    if before.busy_ns is not None and after.busy_ns is not None and before.cores == after.cores:
        # The kernel counts ticks of 10 ms, the process' own time exactly.
        others = max(0, after.busy_ns - before.busy_ns - own_ns) / span_ns
        others = min(others, float(after.cores))
    if before.waited_ns is not None and after.waited_ns is not None:
        pairs = ((before.waited_ns.get(i, 0), ns) for i, ns in after.waited_ns.items())
        waiting = sum(max(0, ns - earlier) for earlier, ns in pairs) / span_ns
    return Load(span_ns / 1e9, after.cores, own_ns / span_ns, others, waiting)


class LoadWatch:
    """The load of the last seconds, on any thread.

    Counters are read in `look`, at most once in `STEP_NS`: there is no thread for it.
    """

    def __init__(self, read: Callable[[], CpuReading] = read_cpu) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._readings: deque[CpuReading] = deque()

    def look(self) -> Load | None:
        """The load of the last `WINDOW_NS`, or since the first look; None at the first one."""
        with self._lock:
            readings = self._readings
            if not readings or time.monotonic_ns() - readings[-1].at_ns >= STEP_NS:
                readings.append(self._read())
            last = readings[-1]
            while len(readings) > 2 and last.at_ns - readings[1].at_ns >= WINDOW_NS:
                readings.popleft()
            return compare(readings[0], last)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._readings.clear()


LOAD = LoadWatch()
"""The watch of this process."""
