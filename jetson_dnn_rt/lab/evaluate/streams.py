# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Streams: the bags of an evaluation, and when their frames arrive.

A frame arrives when its message was logged: as recorded, faster or slower, or at a fixed rate.
Clocks jump: a time that goes back, or ahead by more than any camera pauses, is a step of the
clock; the frame then arrives one period after the one before. Such steps are counted and reported.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.bags.image_bag import open_image_bag
from jetson_dnn_rt.cameras.bags.photos import holds_photos
from jetson_dnn_rt.cameras.files import list_images
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.lab.streaming.frame_names import FrameName
from jetson_dnn_rt.safety.utf8_paths import escape

Integers = npt.NDArray[np.int64]

RESULTS, TRACE = "results.jsonl", "trace"

LONGEST_PAUSE_NS = 60_000_000_000
"""A longer step of the recorded times is a step of the clock."""


@dataclass(frozen=True, eq=False)
class Stream:
    """One topic of a bag: the messages to be evaluated, and those of the bag that are missing."""

    bag: str
    topic: str
    messages: int
    missing: int
    log_times_ns: Integers
    notes: list[str] = field(default_factory=list)
    """Damage."""

    @property
    def name(self) -> str:
        """Name in traces."""
        return name_stream(self.bag, self.topic)

    def to_dict(self) -> dict[str, Any]:
        """Convert for the summary."""
        names = ("bag", "topic", "messages", "missing", "notes")
        return {name: getattr(self, name) for name in names}


def name_stream(bag: str, topic: str) -> str:
    """Name a bag's topic in the column ``camera`` of a trace: ``monday/drive#/image_raw``.

    Only the last two names of the path are used: the folders before them differ between machines.
    """
    return escape(f"{'/'.join(Path(bag).parts[-2:])}#{topic}")


def inspect_bags(args: argparse.Namespace) -> list[Stream]:
    """Inspect every bag.

    Raises
    ------
    ConfigurationError
        When two of them have one name, or it is not clear which topic is meant.
    SourceError
        When one cannot be read, or none has a message.
    """
    streams = []
    for path in args.bags:
        path = path.expanduser().absolute()
        with open_image_bag(path, args.topic) as bag:
            count = bag.count if args.frames is None else min(args.frames, bag.count)
            times = bag.log_times_ns[:count].copy()
            streams.append(
                Stream(str(path), bag.topic, count, bag.missing, times, list(bag.notes))
            )
    if not any(stream.messages for stream in streams):
        notes = [f"{stream.bag}: {note}" for stream in streams for note in stream.notes]
        raise SourceError(f"there is nothing to evaluate: {'; '.join(notes)}")
    names = [stream.name for stream in streams]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two of the bags are called {name}: rename one")
    return streams


def name_frames(streams: Sequence[Stream]) -> list[FrameName]:
    """Name all frames, to find their labels before anything runs."""
    names = []
    for stream in streams:
        path = Path(stream.bag)
        photos = list_images(path) if holds_photos(path) else []
        files = [photo.name for photo in photos] or [""] * stream.messages
        names += [FrameName(stream.name, n, files[n]) for n in range(stream.messages)]
    return names


def find_usual_period_ns(streams: Sequence[Stream]) -> int:
    """Find the usual time between frames of the first stream that has one; 0 if none has."""
    return next((p for s in streams if (p := find_period_ns(s.log_times_ns))), 0)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Arrival times of N frames, from 0 and non-decreasing, and the usual time between two.

    `jumps` counts the steps of the recorded times that were steps of the clock.
    """

    times_ns: Integers
    period_ns: int
    jumps: int


def find_period_ns(recorded_ns: npt.ArrayLike) -> int:
    """Find the median step forward of recorded times [N]; 0 where there is none."""
    steps = np.diff(np.asarray(recorded_ns, np.int64))
    forward = steps[(steps > 0) & (steps <= LONGEST_PAUSE_NS)]
    return int(np.median(forward)) if len(forward) else 0


def plan_arrivals(
    recorded_ns: npt.ArrayLike, *, speed: float = 1.0, rate_hz: float = 0.0, period_ns: int = 0
) -> Arrivals:
    """Plan the arrivals of frames that were logged at some times [N].

    `speed` is a factor on the speed of the recording; with `rate_hz` they come evenly instead
    (0 = as recorded). `period_ns` is used where the recording has no period: of a single frame, or
    of frames with one time.

    Raises
    ------
    ConfigurationError
        When `speed` or `rate_hz` is out of range, or there is no period at all.
    """
    if not speed > 0.0 or not rate_hz >= 0.0:
        raise ConfigurationError(f"speed must be > 0 and the rate >= 0 Hz: {speed:g}, {rate_hz:g}")
    recorded = np.asarray(recorded_ns, np.int64)
    if rate_hz:
        even: Integers = np.rint(np.arange(len(recorded)) * (1e9 / rate_hz)).astype(np.int64)
        return Arrivals(even, round(1e9 / rate_hz), 0)
    usual_ns = find_period_ns(recorded) or period_ns
    if usual_ns <= 0 and len(recorded):
        raise ConfigurationError("the recorded times have no period; fix: give --rate HZ")
    steps = np.diff(recorded, prepend=recorded[:1])
    jumped = (steps < 0) | (steps > LONGEST_PAUSE_NS)
    steps[jumped] = usual_ns
    times: Integers = np.rint(np.cumsum(steps) / speed).astype(np.int64)
    return Arrivals(times, max(1, round(usual_ns / speed)), int(jumped.sum()))
