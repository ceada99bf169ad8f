# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the plots show of a view of the graph, without Qt; times are in seconds before the view."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.watch.graph import OUTCOMES, WINDOW_NS, GraphView, TaskView

Series = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Times and values."""

WINDOW_S = WINDOW_NS / 1e9

MOST_POINTS = 2000
"""Of one series: more than a plot has columns of pixels."""

MOST_SPANS = 200
MOST_CLOCKS = 16

CLOCK = re.compile(r"(\S+) (?:(off)|([0-9.]+) MHz)")
"""A domain in the text of `jetson_dnn_rt.platforms.clocks.format_clocks`."""


def find_points(task: TaskView, outcome: int, at_ns: int) -> Series:
    """Response times in ms of the frames that ended so; 0 where it is not known."""
    frames = task.frames[task.frames["outcome"] == outcome]
    return _thin(_find_times(frames, at_ns), np.nan_to_num(frames["response_ms"]).astype(float))


def find_deadline(task: TaskView, at_ns: int) -> Series:
    """Deadlines in ms: the ends of each run of frames with the same."""
    frames = task.frames[~np.isnan(task.frames["deadline_ms"])]
    values = frames["deadline_ms"].astype(float)
    changes = np.diff(values, prepend=np.nan, append=np.nan) != 0  # NaN is no number, so unequal
    ends = changes[:-1] | changes[1:]
    return _thin(_find_times(frames, at_ns)[ends], values[ends])


def find_variants(task: TaskView, at_ns: int) -> list[tuple[float, float, str]]:
    """Begin, end and name of each run of frames with the same variant, the newest spans only."""
    if not len(task.frames):
        return []
    times_s, numbers = _find_times(task.frames, at_ns), task.frames["variant"]
    begins = np.flatnonzero(np.diff(numbers.astype(int), prepend=-1))
    # A span lasts until the next begins: there is no gap in between.
    ends = [*times_s[begins[1:]], times_s[-1]]
    spans = [
        (float(times_s[begin]), float(end), task.variants[numbers[begin]])
        for begin, end in zip(begins[-MOST_SPANS:], ends[-MOST_SPANS:], strict=True)
    ]
    return [span for span in spans if span[2]]


def count_outcomes(tasks: Collection[TaskView], at_ns: int) -> Series:
    """Ends of whole seconds of the steady clock, and the frames of all tasks by outcome in each.

    Whole seconds: bars move with the points, and a frame stays in its bar.
    """
    end_ns = (at_ns // 10**9 + 1) * 10**9
    table = np.zeros((int(WINDOW_S), len(OUTCOMES)))
    for task in tasks:
        table += task.outcomes_per_second(end_ns - 1)
    return (end_ns - at_ns) / 1e9 - np.arange(len(table), dtype=np.float64)[::-1], table


class ClockHistory:
    """Clocks of each domain over the last minute, in MHz, from the coordinators' statuses."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[int, float]]] = {}

    def add(self, view: GraphView) -> None:
        """Take what the coordinators said last."""
        for coordinator in view.coordinators:
            at_ns = view.at_ns - round(coordinator.age_s * 1e9)
            for domain, off, frequency in CLOCK.findall(coordinator.clocks):
                name = f"{coordinator.name} {domain}"
                points = self._points.get(name)
                if points is None and len(self._points) < MOST_CLOCKS:
                    points = self._points[name] = deque()
                if points is not None and (not points or at_ns > points[-1][0]):
                    points.append((at_ns, 0.0 if off else float(frequency)))
        for name, points in list(self._points.items()):
            while points and points[0][0] < view.at_ns - WINDOW_NS:
                points.popleft()
            if not points:
                del self._points[name]

    def curves(self, at_ns: int) -> dict[str, Series]:
        """A step curve for each domain: a status holds until the next."""
        curves = {}
        for name, points in self._points.items():
            times_ns, values = np.array(points).T
            times_s = (times_ns - at_ns) / 1e9
            curves[name] = np.repeat(times_s, 2)[1:], np.repeat(values, 2)[:-1]
        return curves


def write_csv(file: Path, tasks: Collection[TaskView], at_ns: int) -> None:
    """Write every frame of the last minute, also those that a plot leaves out."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ("task", "time_s", "stamp_ns", "outcome", "response_ms", "deadline_ms", "variant")
        )
        for task in tasks:
            for time_s, frame in zip(_find_times(task.frames, at_ns), task.frames, strict=True):
                response_ms, deadline_ms = (
                    "" if np.isnan(frame[key]) else f"{frame[key]:.3f}"
                    for key in ("response_ms", "deadline_ms")
                )
                outcome, variant = OUTCOMES[frame["outcome"]], task.variants[frame["variant"]]
                row = (f"{time_s:.6f}", frame["stamp_ns"], outcome, response_ms, deadline_ms)
                writer.writerow((task.name, *row, variant))


def _find_times(frames: npt.NDArray[np.void], at_ns: int) -> npt.NDArray[np.float64]:
    return np.asarray((frames["arrival_ns"] - at_ns) / 1e9)


def _thin(times_s: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> Series:
    """Leave `MOST_POINTS`: the largest of each run of neighbours, so that no peak is lost."""
    if len(values) <= MOST_POINTS:
        return times_s, values
    begins = np.linspace(0, len(values), MOST_POINTS, endpoint=False).astype(int)
    return times_s[begins], np.maximum.reduceat(values, begins)
