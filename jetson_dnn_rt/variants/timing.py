"""Times of stages outside the executor: warm-up runs, and what a variant's measurement is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage, Work

DISCARDED_RUNS = 3
"""First runs that count as cold: memory pools, kernel choice, page faults."""


def measure_stages(
    stages: Sequence[Stage], frames: Sequence[Frame], runs: int, clock: Clock
) -> list[tuple[int, ...]]:
    """Run the stages of one variant and time each of them.

    Parameters
    ----------
    stages : sequence of Stage
        In their order.
    frames : sequence of Frame
        Taken in turn, at least one; of the size that the camera will deliver, since preprocessing
        depends on it.
    runs : int
        Measured runs, after `DISCARDED_RUNS` cold ones; 0 = none at all.
    clock : Clock
        Steady clock.

    Returns
    -------
    list of tuple of int
        For each measured run the execution times of its stages in nanoseconds.
    """
    return measure_in_turn([stages], frames, runs, clock)[0]


def measure_in_turn(
    variants: Sequence[Sequence[Stage]], frames: Sequence[Frame], runs: int, clock: Clock
) -> list[list[tuple[int, ...]]]:
    """Time the stages of several variants, so that what disturbs one disturbs the others.

    They run frame by frame in turn, every other time in the opposite order.

    Parameters
    ----------
    variants : sequence of sequence of Stage
        The stages of each.
    frames, runs, clock
        As in `measure_stages`.

    Returns
    -------
    list of list of tuple of int
        For each variant what `measure_stages` gives.
    """
    times_ns: list[list[tuple[int, ...]]] = [[] for _ in variants]
    for index in range(runs + DISCARDED_RUNS if runs else 0):
        frame = frames[index % len(frames)]
        both = list(zip(times_ns, variants, strict=True))
        for times, stages in both[:: -1 if index % 2 else 1]:
            measured_ns = _time(stages, frame, clock)
            if index >= DISCARDED_RUNS:
                times.append(measured_ns)
    return times_ns


def _time(stages: Sequence[Stage], frame: Frame, clock: Clock) -> tuple[int, ...]:
    work = Work(frame)
    stamps_ns = [clock.now_ns()]
    for stage in stages:
        stage.run(work)
        stamps_ns.append(clock.now_ns())
    return tuple(b - a for a, b in pairwise(stamps_ns))
