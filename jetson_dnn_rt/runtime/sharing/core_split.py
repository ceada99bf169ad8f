"""Workers and threads of an inference as one decision: how the cores are shared.

On two cores one worker whose inferences take both (1 x 2) ends a frame sooner; two workers with a
thread each (2 x 1) lose nothing to the threads' waiting for each other, and run two tasks side by
side. Which keeps more deadlines depends on the networks, their back ends and the deadlines: so it
is measured, with the tasks that will run.

Each split is *tried* (`runtime.sharing.split_trial`): its workers run the tasks' default
variants side by side, without a pause. What the times mean for the deadlines is then *forecast*
(`runtime.sharing.forecast`): the scheduling engine runs the tasks at their rates on a
virtual clock, every stage as slow as it was measured with all workers busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetson_dnn_rt.runtime.sharing.forecast import Forecast

MET_MARGIN = 0.01
"""Shares of met frames that differ by less are taken for equal."""

CAPACITY_MARGIN = 0.05
"""The same of frames per second: short trials differ by so much from run to run."""


@dataclass(frozen=True, slots=True)
class CoreSplit:
    """So many workers, each with so many threads of one inference."""

    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}"


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """What was found of one split.

    Attributes
    ----------
    split : CoreSplit
        Which.
    frame_ms : dict of str to float
        For each task the median time of a frame while all workers are busy.
    capacity_hz : float
        Frames per second of all tasks together, when each comes as often as the others.
    forecast : Forecast
        What it means at the rates and deadlines of the tasks.
    """

    split: CoreSplit
    frame_ms: dict[str, float]
    capacity_hz: float
    forecast: Forecast


def list_splits(cores: int, tasks: int) -> tuple[CoreSplit, ...]:
    """Splits worth a trial: as many threads as there are cores, fewest workers first.

    Workers in excess of the tasks would idle, because a task runs one frame at a time; the threads
    of the split before such a one are not given up for them.

    Parameters
    ----------
    cores, tasks : int
        >= 1.

    Returns
    -------
    tuple of CoreSplit
        For each divisor of `cores` one, until every task has a worker.
    """
    if cores < 1 or tasks < 1:
        raise ValueError(f"cores and tasks must be >= 1: {cores}, {tasks}")
    splits = []
    for workers in (n for n in range(1, cores + 1) if not cores % n):
        splits.append(CoreSplit(min(workers, tasks), cores // workers))
        if workers >= tasks:
            break
    return tuple(splits)


def choose_split(figures: Sequence[SplitFigures]) -> SplitFigures:
    """The best: most met frames, then the largest capacity, then the shortest responses.

    Differences within `MET_MARGIN` and `CAPACITY_MARGIN` of the best do not count.
    """
    met = max(one.forecast.met_share for one in figures)
    left = [one for one in figures if one.forecast.met_share >= met - MET_MARGIN]
    capacity = max(one.capacity_hz for one in left)
    left = [one for one in left if one.capacity_hz >= capacity * (1.0 - CAPACITY_MARGIN)]
    return min(left, key=lambda one: (one.forecast.response_ms, one.split.workers))


def describe_splits(figures: Sequence[SplitFigures]) -> list[str]:
    """A line for each split, the chosen one marked."""
    chosen = choose_split(figures)
    lines = []
    for one in figures:
        times = ", ".join(f"{task} {ms:.1f} ms" for task, ms in one.frame_ms.items())
        lines.append(
            f"{'->' if one is chosen else '  '} {one.split}: "
            f"{100 * one.forecast.met_share:.1f} % of the frames met, {one.capacity_hz:.1f} "
            f"frames/s, response {one.forecast.response_ms:.1f} ms; {times}"
        )
    return lines
