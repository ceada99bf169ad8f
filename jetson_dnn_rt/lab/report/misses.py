"""Misses and how they cluster: a robot survives single misses, not a second of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.lab.report.recording import Flags, Integers, TaskColumns


@dataclass(frozen=True, eq=False)
class Bursts:
    """Runs of consecutive frames without a result in time.

    Attributes
    ----------
    lengths : int64 [B]
        Frames of each.
    starts : int64 [B]
        Position of its first frame.
    longest : int
        Frames of the longest; 0 without any.
    longest_ns : int
        The longest time without a result in time: from the release of the first missed frame to
        that of the next met one, or of the last frame plus a period.
    longest_start_ns : int
        When that began.
    after_miss : float
        P(miss | the frame before was missed); NaN without a miss that has a successor.
    """

    lengths: Integers
    starts: Integers
    longest: int
    longest_ns: int
    longest_start_ns: int
    after_miss: float


def find_bursts(missed: Flags, release_ns: Integers, period_ns: int) -> Bursts:
    """Find the runs of misses.

    Parameters
    ----------
    missed : bool [N]
        In the order of release.
    release_ns : int64 [N]
        Rising.
    period_ns : int
        Stands for the time to the frame after the last.
    """
    edges = np.diff(np.concatenate([[0], missed.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    lengths = (ends - starts).astype(np.int64)
    followed = missed[:-1]
    after = float(missed[1:][followed].mean()) if followed.any() else math.nan
    if not len(lengths):
        return Bursts(lengths, starts.astype(np.int64), 0, 0, 0, after)
    until = np.append(release_ns, release_ns[-1] + period_ns)[ends]
    times_ns = until - release_ns[starts]
    worst = int(np.argmax(times_ns))
    return Bursts(
        lengths,
        starts.astype(np.int64),
        int(lengths.max()),
        int(times_ns[worst]),
        int(release_ns[starts[worst]]),
        after,
    )


def find_task_bursts(task: TaskColumns) -> Bursts:
    """Those of a task."""
    return find_bursts(task.missed, task.release_ns, task.period_ns)


def expect_bursts(lengths: Integers, count: int, miss_ratio: float) -> list[float]:
    """How many bursts of each length there would be if misses fell independently.

    A run of exactly k among N independent frames: about ``N q^2 p^k`` with ``q = 1 - p``.

    Parameters
    ----------
    lengths : int64 [L]
        Lengths asked for.
    count : int
        N.
    miss_ratio : float
        p, in [0, 1].
    """
    kept = 1.0 - miss_ratio
    return [count * kept * kept * miss_ratio**length for length in lengths.tolist()]
