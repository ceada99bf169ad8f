# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Progress of a run or of long work on stderr: one line, rewritten on a terminal."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import RunSummary

TERMINAL_PERIOD_S = 0.5
FILE_PERIOD_S = 5.0
LEAST_ITEMS = 2
"""Items that must have ended before the time of all others is estimated by theirs."""

_ERASE = "\r\x1b[K"


class _Line:
    """A line on a stream, rewritten on a terminal; whole lines, but fewer, elsewhere."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._period_s = TERMINAL_PERIOD_S if self._terminal else FILE_PERIOD_S

    def __exit__(self, *raised: object) -> None:
        if self._terminal:
            self._write(_ERASE)

    def _show(self, line: str) -> None:
        self._write(_ERASE + line if self._terminal else f"{line}\n")

    def _write(self, text: str) -> None:
        # Work does not end because its log is on a disk that is full.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class Progress(_Line):
    """Shows the counts of a run, from `start` until the context is left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, summary: RunSummary) -> None:
        """Start displaying."""
        begin_s = time.monotonic()

        def show() -> None:
            while not self._stop.wait(self._period_s):
                self._show(_format_counts(summary, time.monotonic() - begin_s))

        self._thread = threading.Thread(target=show, name="progress", daemon=True)
        self._thread.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            super().__exit__(*raised)


def _format_counts(summary: RunSummary, seconds: float) -> str:
    """Seconds since the start; for each task the share of met frames, and the other outcomes."""
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


class PhaseProgress(_Line):
    """Shows the phase of long work, the share done and the time left.

    It is called as a `jetson_dnn_rt.variants.progress.Progress`; `clock` gives seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream)
        self._clock = clock
        self._label, self._item, self._total = "", 0, 0
        self._phase = ""
        self._item_begin_s = self._phase_begin_s = self._shown_s = clock()
        self._ends_s: list[float] = []  # of the items, after the begin of the first

    def __enter__(self) -> PhaseProgress:
        return self

    def begin(self, label: str, item: int = 1, total: int = 1) -> None:
        """Name the work that begins: number `item` of `total`, counted from 1."""
        self._item_begin_s = self._clock()
        if item == 1:
            self._ends_s = []
        self._ends_s.append(self._item_begin_s)
        self._label, self._item, self._total = label, item, total
        self._phase = ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show a step, if it is time for it."""
        now_s = self._clock()
        if phase != self._phase:
            self._phase, self._phase_begin_s = phase, now_s
        elif now_s - self._shown_s < self._period_s:
            return
        self._shown_s = now_s
        self._show(self._format(done, total, now_s))

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._write(f"{_ERASE}{line}\n" if self._terminal else f"{line}\n")

    def _format(self, done: int, total: int, now_s: float) -> str:
        number = f" ({self._item} of {self._total})" if self._total > 1 else ""
        parts = [f"{self._label}{number}: {self._phase}"]
        if total > 1:
            parts[0] += f" {done} of {total}, {100 * done // total} %"
        phase_s = 0.0
        if 0 < done < total and now_s - self._phase_begin_s >= 1.0:
            phase_s = (now_s - self._phase_begin_s) / done * (total - done)
            parts.append(f"{format_duration(phase_s)} left")
        if len(self._ends_s) > LEAST_ITEMS:
            times_s = [end - begin for begin, end in itertools.pairwise(self._ends_s)]
            spent_s, more = now_s - self._item_begin_s, self._total - self._item
            # An item may take longer than those before it, for instance one that is tuned.
            low, high = (
                format_duration(max(phase_s, one_s - spent_s) + one_s * more)
                for one_s in (min(times_s), max(times_s))
            )
            parts.append(
                f"all: {low if low == high else f'{low} to {high}'} left, if like those before"
            )
        return ", ".join(parts)


def format_duration(seconds: float) -> str:
    """``0:07``, ``12:40`` or ``1:02:03``; rounded up to a second."""
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
