"""Times of several things measured in turn, so that what the machine does besides meets all."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


def measure_rounds(
    runs: Mapping[str, Callable[[], object]],
    *,
    budget_s: float,
    least: int = 10,
    most: int = 300,
    warm_up: int = 2,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Times]:
    """Run everything once per round, each round beginning with another.

    Parameters
    ----------
    runs : mapping of str to callable
        What is measured.
    budget_s : float
        Rounds are begun until so much time has passed.
    least, most : int
        Rounds, whatever the time.
    warm_up : int
        Rounds before, which are not counted.
    before : callable
        Done before every single run, outside of its time.

    Returns
    -------
    dict of str to ndarray of int64, [rounds]
        Nanoseconds; place i of all arrays belongs to round i.
    """
    names = list(runs)
    taken: dict[str, list[int]] = {name: [] for name in names}
    for _ in range(warm_up):
        for name in names:
            before()
            runs[name]()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        end_ns = time.perf_counter_ns() + round(budget_s * 1e9)
        for count in range(most):
            if count >= least and time.perf_counter_ns() >= end_ns:
                break
            shift = count % max(1, len(names))
            for name in names[shift:] + names[:shift]:
                before()
                start_ns = time.perf_counter_ns()
                runs[name]()
                taken[name].append(time.perf_counter_ns() - start_ns)
    finally:
        if was_enabled:
            gc.enable()
    return {name: np.array(times, np.int64) for name, times in taken.items()}


def quantile_ms(times: Times, share: float) -> float:
    """A time that `share` of the runs did not exceed, in ms; one that was measured."""
    # numpy 1.21 (Ubuntu 22.04) has no np.quantile(..., method="higher").
    return float(np.sort(times)[math.ceil(share * (len(times) - 1))]) * 1e-6


def find_overhead_percent(plain: Times, other: Times) -> float:
    """How much longer the other one takes, in the median over the rounds.

    In pairs of one round: what the machine did besides is in both.
    """
    return round(100.0 * (float(np.median(other / plain)) - 1.0), 2)
