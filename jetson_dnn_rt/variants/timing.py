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
    times_ns: list[tuple[int, ...]] = []
    for index in range(runs + DISCARDED_RUNS if runs else 0):
        work = Work(frames[index % len(frames)])
        stamps_ns = [clock.now_ns()]
        for stage in stages:
            stage.run(work)
            stamps_ns.append(clock.now_ns())
        if index >= DISCARDED_RUNS:
            times_ns.append(tuple(b - a for a, b in pairwise(stamps_ns)))
    return times_ns
