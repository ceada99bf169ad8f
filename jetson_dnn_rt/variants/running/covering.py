"""Into how many runs a back end takes a network's stages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from jetson_dnn_rt.backends.base import Array, Runner
from jetson_dnn_rt.variants.running.envelope import IMAGE
from jetson_dnn_rt.variants.running.network import Network, run_piece
from jetson_dnn_rt.variants.running.pipeline import Segment

TOLERANCE = 1.05
"""A finer cover may take this much longer: every boundary is a chance to switch or to stop."""

_RUNS = 9
_WARM_UP_RUNS = 2


def choose_cover(
    network: Network,
    decomposition: str,
    make_runner: Callable[..., Runner],
    *,
    finest: bool = False,
    runs: int = 0,
) -> list[Segment]:
    """Make the finest cover that is nearly as fast as the fastest.

    Back ends that fuse layers and choose memory layouts for a whole network lose at every
    boundary; torch does not. So one run per stage is tried first, then half as many, and so on
    down to one.

    Parameters
    ----------
    network : Network
        Its parts.
    decomposition : str
        Of the network, see `Network.has`.
    make_runner : callable
        Makes a `Part` ready.
    finest : bool
        One run per stage, whatever it costs.
    runs : int
        So many, one of `list_counts`, whatever they cost: a cover that was chosen before, with
        which the same bits come out. 0 = measure.

    Returns
    -------
    list of Segment
        In order; the runners of the covers that were not chosen are closed.
    """
    covers: dict[int, list[Segment]] = {}
    times_ns: dict[int, float] = {}
    try:
        known = [network.stages] if finest else [runs] if runs else list_counts(network.stages)
        chosen = known[0]
        for count in known:
            pieces = network.pieces(decomposition, count)
            covers[count] = segments = []
            for piece in pieces:
                segments.append(Segment(piece, make_runner(piece.part)))
        if len(covers) > 1:
            for count, segments in covers.items():
                times_ns[count] = measure_segments(segments)
            limit = min(times_ns.values()) * TOLERANCE
            chosen = max(count for count, time_ns in times_ns.items() if time_ns <= limit)
        return covers.pop(chosen)
    finally:
        for segments in covers.values():
            for segment in segments:
                segment.runner.close()


def list_counts(stages: int) -> list[int]:
    """Numbers of runs that are tried for so many stages, the finest first."""
    counts = [stages]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def measure_segments(segments: Sequence[Segment], runs: int = _RUNS) -> float:
    """Median time of the network over some runs on a grey picture, in nanoseconds."""
    image = segments[0].runner.allocate_input()
    image[:] = np.float32(0.45)
    times_ns = []
    for _ in range(_WARM_UP_RUNS + runs):
        values: dict[str, Array] = {IMAGE: image}
        start_ns = time.perf_counter_ns()
        for segment in segments:
            run_piece(segment.piece, segment.runner, values)
        times_ns.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times_ns[_WARM_UP_RUNS:])
