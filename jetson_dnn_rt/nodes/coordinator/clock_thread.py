"""The thread that owns a platform: it writes clocks, reads clocks and power; nobody else waits."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from jetson_dnn_rt.coordinator.tables.tables import ClockTable
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.nodes.coordinator.cohort_tables import nearest_position
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.safety.faults import start_thread
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import find_configuration

logger = logging.getLogger(__name__)

SAMPLE_S = 0.1
"""Between two looks at the power. INA3221 has a new value every 11 ms, RAPL every 1 ms."""

WAKE_NS = 200_000
"""Allowed for the thread to wake and write, besides the board's own delay."""


@dataclass(frozen=True)
class PowerReport:
    """What was measured up to now.

    Attributes
    ----------
    power_w : float
        Of the whole board at the last look; NaN where it cannot be read.
    rails_w : mapping of str to float
        Its parts.
    energy_j : float
        Since some time in the past: the machine's own counter, else the integral of the power; NaN
        where neither can be read.
    """

    power_w: float = math.nan
    rails_w: Mapping[str, float] = field(default_factory=dict)
    energy_j: float = math.nan


class ClockThread:
    """Changes the clocks of a platform on request, newest request first, and samples its power.

    Parameters
    ----------
    platform : Platform
        Opened; this thread alone uses it from `start` on and closes it at `stop`, whereby the
        original clocks come back. `restore` may overtake it.
    clock_table : ClockTable
        What the positions in requests mean.

    Attributes
    ----------
    log : ClockLog
        Clocks as the hardware ran, for traces: what was set and read back, and what came of it.
    settings : ClockLog
        Clocks as they were set; empty where nobody sets them.
    """

    def __init__(self, platform: Platform, clock_table: ClockTable) -> None:
        self._platform, self._clock_table = platform, clock_table
        self._position = self._wanted = self._handled = nearest_position(clock_table, platform)
        self._wake = threading.Event()
        self._stopping = False
        self._report = PowerReport()
        self._last_ns = self._effective_ns = 0
        self.log = ClockLog(find_configuration(platform))
        self.settings = ClockLog(clock_table.describe(self._position) if platform.writable else "")
        self._thread: threading.Thread | None = None
        self._closing = False
        self.writes = 0
        self.fault = ""

    @property
    def position(self) -> int:
        """Position in the clock table that was read back last."""
        return self._position

    @property
    def power(self) -> PowerReport:
        """The newest measurement."""
        return self._report

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread(self._run, "clocks", wanted=lambda: not self._closing)

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Bring the original clocks back and end; False when the platform hangs."""
        self._stopping = True
        self._wake.set()
        if self._thread is None:
            self._platform.close()
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def restore(self) -> None:
        """Bring the original clocks back for good, on the calling thread.

        It waits for a write of the clock thread, not for its reading.
        """
        self._stopping = True
        self._wake.set()
        # From here on nobody looks.
        for log in (self.log, self.settings):
            log.append(time.monotonic_ns(), "")
        self._platform.close()

    def request(self, position: int, now_ns: int) -> int:
        """Ask for a configuration; returns at once, with the time when it will be in effect."""
        delay_ns = self._clock_table.delay_ns(self._wanted, position)
        self._wanted = position
        self._wake.set()
        return now_ns + WAKE_NS + delay_ns

    def _run(self) -> None:
        """Serve requests until stopped; begun anew after a fault, by `start_thread`."""
        while not self._stopping:
            self._wake.wait(SAMPLE_S)
            self._wake.clear()
            wanted = self._wanted
            # What failed is not tried again before something else was asked for.
            if wanted != self._handled and not self._stopping:
                self._handled = wanted
                self._apply(wanted)
            self._sample()
        self._closing = True
        self.restore()

    def _apply(self, position: int) -> None:
        index = int(self._clock_table.indices[position])
        try:
            found = self._platform.apply(index)
        except (JetsonDnnRtError, OSError) as error:
            self._say(f"clocks cannot be changed: {error}")
            return
        self.writes += 1
        space = self._platform.space
        delay_ns = self._clock_table.delay_ns(self._position, position)
        self._effective_ns = time.monotonic_ns() + delay_ns
        words = space.describe(space.nearest(found))
        self.settings.append(self._effective_ns, words)
        self.log.append(self._effective_ns, words)
        if found == space[index]:
            self._position, self.fault = position, ""
            return
        self._position = nearest_position(self._clock_table, self._platform)
        self._say(f"the clocks did not become {space.describe(index)}: {words} was read back")

    def _look(self) -> None:
        """Note the clocks as they are: a board that throttles is slower than what was set."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._effective_ns:  # else they are still those of before
            self.log.append(now_ns, find_configuration(self._platform))

    def _sample(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._last_ns < SAMPLE_S * 1e9 / 2:
            return  # woken by a request only
        self._look()
        try:
            power, counter_j = self._platform.power(), self._platform.energy_j()
        except (JetsonDnnRtError, OSError) as error:
            self._say(f"power cannot be read: {error}")
            return
        before, self._last_ns = self._last_ns, now_ns
        if power.total_w is None:
            return
        energy_j = counter_j or 0.0
        if counter_j is None and before and not math.isnan(self._report.energy_j):
            mean_w = (self._report.power_w + power.total_w) / 2
            energy_j = self._report.energy_j + mean_w * (now_ns - before) / 1e9
        self._report = PowerReport(power.total_w, dict(power.rails), energy_j)

    def _say(self, fault: str) -> None:
        if fault != self.fault:
            self.fault = fault
            logger.warning("%s", fault)
