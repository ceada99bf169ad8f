# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Threads that access a platform's clocks, so that no other thread waits for the hardware.

`ClockThread` writes clocks on request and samples power; `ClockWatch` only reads the clocks, where
nothing in the process writes them.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from jetson_dnn_rt.coordinator.tables.tables import ClockTable
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.safety.faults import Pulse, start_thread
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import find_configuration

logger = logging.getLogger(__name__)

SAMPLE_S = 0.1
"""Interval between samples of power and clocks; INA3221 updates every 11 ms, RAPL every 1 ms."""

MAX_RESTORES = 5  # attempts to restore the original clocks

WAKE_NS = 200_000
"""Allowance for the thread to wake and write, in addition to the board's own delay."""


def nearest_position(clocks: ClockTable, platform: Platform) -> int:
    """Position in the table that is nearest to the platform's present clocks."""
    if len(clocks) == 1:
        return 0
    space = clocks.space
    digits = space.digits(space.nearest(platform.read()))
    distances = [
        sum(abs(a - b) for a, b in zip(space.digits(int(index)), digits, strict=True))
        for index in clocks.indices
    ]
    return distances.index(min(distances))


@dataclass(frozen=True)
class PowerReport:
    """Latest power of the whole board and its rails, and the energy so far; NaN = unknown.

    `energy_j` comes from the machine's own counter where there is one, else from integrating the
    power; it counts from some time in the past.
    """

    power_w: float = math.nan
    rails_w: Mapping[str, float] = field(default_factory=dict)
    energy_j: float = math.nan


class ClockThread:
    """Changes the clocks of a platform on request, newest request first, and samples its power.

    From `start` on, only this thread uses the (opened) platform; `stop` restores the original
    clocks and closes it; only `restore` may overtake it. `position`, in the clock table, and
    `power` are the last readings. `log` has the clocks at which the hardware ran, for traces,
    throttling included; `settings` has the clocks that were set, empty where they are not set.
    """

    def __init__(self, platform: Platform, clock_table: ClockTable) -> None:
        self._platform, self._clock_table = platform, clock_table
        self.position = self._wanted = self._handled = nearest_position(clock_table, platform)
        self.power = PowerReport()
        self.log = ClockLog(find_configuration(platform))
        self.settings = ClockLog(clock_table.describe(self.position) if platform.writable else "")
        self.writes = 0
        self.fault = ""
        self._wake = threading.Event()
        self._stopping = self._closing = False
        self._restores = 0
        self._last_ns = self._effective_ns = 0
        self._pulse = Pulse()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread(
            self._run, "clocks", wanted=lambda: not self._closing, pulse=self._pulse
        )

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Restore the original clocks and stop; False when the platform hangs."""
        self._stopping = True
        self._wake.set()
        if self._thread is None:
            self._platform.close()
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def restore(self) -> None:
        """Restore the original clocks for good, on the calling thread.

        Waits for a write in progress on the clock thread, not for a read.
        """
        self._stopping = True
        self._wake.set()
        for log in (self.log, self.settings):  # from here on the clocks are not observed
            log.append(time.monotonic_ns(), "")
        self._platform.close()

    def request(self, position: int, now_ns: int) -> int:
        """Request a configuration without waiting; returns the time when it takes effect."""
        delay_ns = self._clock_table.delay_ns(self._wanted, position)
        self._wanted = position
        self._wake.set()
        return now_ns + WAKE_NS + delay_ns

    def _run(self) -> None:
        """Serve requests until stopped; `start_thread` restarts this after a fault."""
        while not self._stopping:
            self._pulse.begin()
            self._wake.wait(SAMPLE_S)
            self._wake.clear()
            wanted = self._wanted
            # A request that failed is not retried until something else is requested.
            if wanted != self._handled and not self._stopping:
                self._handled = wanted
                self._apply(wanted)
            self._sample()
        # Tried again where it fails: nobody else gives the clocks back while the process lives.
        self._restores += 1
        self._closing = self._restores >= MAX_RESTORES
        self.restore()
        self._closing = True

    def _apply(self, position: int) -> None:
        index = int(self._clock_table.indices[position])
        try:
            found = self._platform.apply(index)
        except (JetsonDnnRtError, OSError) as error:
            self._report_fault(f"clocks cannot be changed: {error}")
            return
        self.writes += 1
        space = self._platform.space
        delay_ns = self._clock_table.delay_ns(self.position, position)
        self._effective_ns = time.monotonic_ns() + delay_ns
        words = space.describe(space.nearest(found))
        self.settings.append(self._effective_ns, words)
        self.log.append(self._effective_ns, words)
        if found == space[index]:
            self.position, self.fault = position, ""
            return
        self.position = nearest_position(self._clock_table, self._platform)
        self._report_fault(
            f"the clocks did not become {space.describe(index)}: {words} was read back"
        )

    def _sample(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._last_ns < SAMPLE_S * 1e9 / 2:
            return  # woken only by a request
        # A throttling board is slower than the clocks that were set; until the delay is over, the
        # clocks are still the previous ones.
        if now_ns >= self._effective_ns:
            self.log.append(now_ns, find_configuration(self._platform))
        try:
            power, counter_j = self._platform.power(), self._platform.energy_j()
        except (JetsonDnnRtError, OSError) as error:
            self._report_fault(f"power cannot be read: {error}")
            return
        before, self._last_ns = self._last_ns, now_ns
        if power.total_w is None:
            return
        energy_j = counter_j or 0.0
        if counter_j is None and before and not math.isnan(self.power.energy_j):
            mean_w = (self.power.power_w + power.total_w) / 2
            energy_j = self.power.energy_j + mean_w * (now_ns - before) / 1e9
        self.power = PowerReport(power.total_w, dict(power.rails), energy_j)

    def _report_fault(self, fault: str) -> None:
        if fault != self.fault:
            self.fault = fault
            logger.warning("%s", fault)


class ClockWatch:
    """Logs the clocks of a platform ten times a second and never writes them.

    Takes an opened platform, by default this machine's, and closes it at the end; `log` has the
    clocks at which the hardware ran.
    """

    def __init__(self, platform: Platform | None = None) -> None:
        self._platform = detect() if platform is None else platform
        self.log = ClockLog(find_configuration(self._platform))
        self._stopping = threading.Event()
        self._closing = False
        self._pulse = Pulse()
        self._thread = start_thread(
            self._run, "clock-watch", wanted=lambda: not self._closing, pulse=self._pulse
        )

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Stop the thread; False when reading the clocks hangs."""
        self._stopping.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # With a single configuration the first entry says it all.
        while len(self._platform.space) > 1 and not self._stopping.wait(SAMPLE_S):
            self._pulse.begin()
            self.log.append(time.monotonic_ns(), find_configuration(self._platform))
        self._closing = True
        self._platform.close()
