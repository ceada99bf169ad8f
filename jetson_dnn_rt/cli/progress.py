"""One line on stderr that says how a run goes: rewritten on a terminal, rare in a file."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.wcet.summary import RunSummary

TERMINAL_PERIOD_S = 0.5
FILE_PERIOD_S = 5.0


class Progress:
    """Shows the counts of a run while it lasts, from `start` until the context is left.

    Parameters
    ----------
    stream : TextIO, optional
        Where to; stderr by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, summary: RunSummary) -> None:
        """Begin to show."""
        begin_s = time.monotonic()
        period_s = TERMINAL_PERIOD_S if self._terminal else FILE_PERIOD_S

        def show() -> None:
            while not self._stop.wait(period_s):
                line = format_progress(summary, time.monotonic() - begin_s)
                self._stream.write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")
                self._stream.flush()

        self._thread = threading.Thread(target=show, name="progress", daemon=True)
        self._thread.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            if self._terminal:
                self._stream.write("\r\x1b[K")
                self._stream.flush()


def format_progress(summary: RunSummary, seconds: float) -> str:
    """Seconds since the start, and for each task the share of met frames and what is not met."""
    parts = [f"{seconds:5.1f} s"]
    for name, task in summary.tasks.items():
        counts = dict(task.outcomes)
        met = 100.0 * (task.met_ratio or 0.0)
        others = [
            f"{counts[o]} {o.value}" for o in Outcome if o is not Outcome.MET and o in counts
        ]
        text = f"{name}: {sum(counts.values())} frames, {met:.1f} % met"
        parts.append(", ".join([text, *others]))
    return " | ".join(parts)
