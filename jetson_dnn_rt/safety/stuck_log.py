# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Logs threads that do not go on: diagnostics cannot be relied on, as their thread may be one."""

from __future__ import annotations

import functools
import logging
import time

from jetson_dnn_rt.safety.faults import FAULTS, STUCK_ERROR_S, FaultLog, Stuck, start_thread

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
NAME = "stuck log"


class StuckLog:
    """Logs each thread of `faults` once when it has been at one step for `STUCK_ERROR_S`.

    A second line says when it goes on.
    """

    def __init__(self, faults: FaultLog = FAULTS) -> None:
        self._faults = faults
        self._logged: dict[str, Stuck] = {}

    def check(self) -> None:
        """Log what has changed since the last call."""
        stuck = {
            thread: where
            for thread, where in self._faults.stuck_threads.items()
            if where.seconds >= STUCK_ERROR_S
        }
        before, self._logged = self._logged, stuck
        for thread, where in stuck.items():
            # Another step of the same thread is another line.
            if thread not in before or where.seconds < before[thread].seconds:
                logger.error("thread %s does not go on: %s", thread, where)
        for thread, where in before.items():
            if thread not in stuck:
                logger.warning("thread %s goes on, after at least %.1f s", thread, where.seconds)

    def run(self) -> None:
        """Check once a second, for ever."""
        while True:
            time.sleep(PERIOD_S)
            self.check()


@functools.cache
def start_stuck_log() -> None:
    """Start the thread of this process that logs; later calls do nothing."""
    start_thread(StuckLog().run, NAME, wanted=lambda: True)
