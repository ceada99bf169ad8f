# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Times of stages outside the executor: warm-up runs, and measurements of variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage, Work

DISCARDED_RUNS = 3
"""First runs that count as cold: memory pools, kernel choice, page faults."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One frame through the stages of one variant.

    `stamps_ns` are steady times before the first stage and after each; `sequence` and `stamp_ns`
    are the frame's.
    """

    sequence: int
    stamp_ns: int
    cold: bool  # one of the `DISCARDED_RUNS` before those that count
    stamps_ns: tuple[int, ...]

    @property
    def times_ns(self) -> tuple[int, ...]:
        """Execution time of each stage."""
        return tuple(b - a for a, b in pairwise(self.stamps_ns))


def measure_stages(
    stages: Sequence[Stage], frames: Sequence[Frame], runs: int, clock: Clock
) -> list[tuple[int, ...]]:
    """Run the stages of one variant and time each of them.

    Parameters
    ----------
    frames : sequence of Frame
        Taken in turn, at least one; of the size that the camera will deliver, since preprocessing
        depends on it.
    runs : int
        Measured runs, after `DISCARDED_RUNS` cold ones; 0 = none at all.

    Returns
    -------
    list of tuple of int
        For each measured run the execution times of its stages in nanoseconds.
    """
    return measure_in_turn([stages], frames, runs, clock)[0]


def measure_in_turn(
    variants: Sequence[Sequence[Stage]], frames: Sequence[Frame], runs: int, clock: Clock
) -> list[list[tuple[int, ...]]]:
    """Time the stages of several variants, so that a disturbance affects them all.

    They run frame by frame in turn, every other time in the opposite order. Returns for each
    variant what `measure_stages` gives.
    """
    return [
        [run.times_ns for run in taken if not run.cold]
        for taken in run_in_turn(variants, frames, runs, clock)
    ]


def run_in_turn(
    variants: Sequence[Sequence[Stage]], frames: Sequence[Frame], runs: int, clock: Clock
) -> list[list[TimedRun]]:
    """Like `measure_in_turn`, with the steady times of each stage, and with the cold runs."""
    taken: list[list[TimedRun]] = [[] for _ in variants]
    for index in range(runs + DISCARDED_RUNS if runs else 0):
        frame = frames[index % len(frames)]
        pairs = list(zip(taken, variants, strict=True))
        for rows, stages in pairs[:: -1 if index % 2 else 1]:
            stamps_ns = _stamp(stages, Work(frame), clock)
            cold = index < DISCARDED_RUNS
            rows.append(TimedRun(frame.sequence, frame.stamp_ns, cold, stamps_ns))
    return taken


def time_stages(stages: Sequence[Stage], work: Work, clock: Clock) -> tuple[int, ...]:
    """Run the stages of one variant once; the execution time of each in nanoseconds."""
    return tuple(b - a for a, b in pairwise(_stamp(stages, work, clock)))


def _stamp(stages: Sequence[Stage], work: Work, clock: Clock) -> tuple[int, ...]:
    stamps_ns = [clock.now_ns()]
    for stage in stages:
        stage.run(work)
        stamps_ns.append(clock.now_ns())
    return tuple(stamps_ns)
