"""Looks at the clocks of a machine that somebody else sets, or nobody."""

from __future__ import annotations

import threading
import time

from jetson_dnn_rt.nodes.coordinator.clock_thread import SAMPLE_S
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.safety.faults import start_thread
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.metadata import find_configuration


class ClockWatch:
    """Keeps a log of the clocks ten times a second; never writes any.

    Parameters
    ----------
    platform : Platform, optional
        Opened, and closed with the watch; by default that of this machine.

    Attributes
    ----------
    log : ClockLog
        Clocks as the hardware ran.
    """

    def __init__(self, platform: Platform | None = None) -> None:
        self._platform = detect() if platform is None else platform
        self.log = ClockLog(find_configuration(self._platform))
        self._stopping = threading.Event()
        self._closing = False
        self._thread = start_thread(self._run, "clock-watch", wanted=lambda: not self._closing)

    def stop(self, timeout_s: float = 1.0) -> bool:
        """End it; False when reading the clocks hangs."""
        self._stopping.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Look until stopped; begun anew after a fault, by `start_thread`."""
        # Where there is one configuration, it was noted above.
        while len(self._platform.space) > 1 and not self._stopping.wait(SAMPLE_S):
            self.log.append(time.monotonic_ns(), find_configuration(self._platform))
        self._closing = True
        self._platform.close()
