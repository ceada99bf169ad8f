"""A background load that comes and goes: processes that do nothing but keep a core busy."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from types import TracebackType

from jetson_dnn_rt.safety.children import code_command

_CODE = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
"""It ends by itself when the benchmark is gone, however that ended."""

END_LIMIT_S = 5.0


class CpuHogs:
    """Starts and ends busy processes after a script, on a thread of its own.

    Parameters
    ----------
    count : int
        Processes at once.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.starts = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes that are there now."""
        return tuple(process.pid for process in self._processes)

    def __enter__(self) -> CpuHogs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish(now=True)

    def play(self, phases: Sequence[tuple[float, bool]]) -> None:
        """Play a script once, from now on.

        Parameters
        ----------
        phases : sequence of (float, bool)
            Seconds, and whether the load is there.
        """
        self.finish()
        self._stop.clear()
        self._thread = threading.Thread(target=self._play, args=(tuple(phases),), daemon=True)
        self._thread.start()

    def finish(self, *, now: bool = False) -> None:
        """Wait for the script's end, or break it off; no process is left."""
        if now:
            self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._end()

    def _play(self, phases: tuple[tuple[float, bool], ...]) -> None:
        end_s = time.monotonic()
        for seconds, busy in phases:
            if busy:
                self._begin()
            else:
                self._end()
            end_s += seconds
            if self._stop.wait(max(0.0, end_s - time.monotonic())):
                break
        self._end()

    def _begin(self) -> None:
        while len(self._processes) < self.count:
            self._processes.append(
                subprocess.Popen(code_command(_CODE, str(os.getpid())), start_new_session=True)
            )
            self.starts += 1

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
        while self._processes:
            self._processes.pop().wait(END_LIMIT_S)
