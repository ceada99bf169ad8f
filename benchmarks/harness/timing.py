# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Times of several candidates measured in turn, so that other load affects all alike."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.harness.intervals import find_rank
from benchmarks.harness.tables import say

Times = npt.NDArray[np.int64]
"""Nanoseconds."""

Item = TypeVar("Item")


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

    Rounds are begun until the budget is spent, from `least` to `most` of them, after `warm_up`
    rounds that do not count. `before` is called before every single run, outside its time. Index i
    of all arrays is round i.
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
            for name in rotate(names, count):
                before()
                start_ns = time.perf_counter_ns()
                runs[name]()
                taken[name].append(time.perf_counter_ns() - start_ns)
    finally:
        if was_enabled:
            gc.enable()
    return {name: np.array(times, np.int64) for name, times in taken.items()}


def rotate(items: Sequence[Item], number: int) -> list[Item]:
    """Rotate the items, so that each round begins with another one."""
    shift = number % max(1, len(items))
    return [*items[shift:], *items[:shift]]


def alternate(items: Iterable[Item], number: int) -> list[Item]:
    """Reverse the items in every other round."""
    return list(items)[:: -1 if number % 2 else 1]


def order(items: Iterable[Item], number: int) -> list[Item]:
    """Order the items of a round: reversed in every other one, and each is first in its turn.

    So none always runs on the machine that another one has warmed.
    """
    return rotate(alternate(items, number), number // 2)


def take_turns(items: Iterable[Item], rounds: int, title: str) -> Iterator[Item]:
    """Yield the items once per round, in `order`; logs the end of each round."""
    chosen = list(items)
    for number in range(rounds):
        yield from order(chosen, number)
        say(f"{title}: round {number + 1} of {rounds}")


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Collect garbage, and exempt what is left from later collections, as the executor does."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def quantile_ms(times: Times, share: float) -> float:
    """Find the measured time that `share` of the runs did not exceed, in ms."""
    # numpy 1.21 (Ubuntu 22.04) has no np.quantile(..., method="higher").
    return float(np.sort(times)[math.ceil(share * (len(times) - 1))]) * 1e-6


def find_overhead_percent(plain: Times, other: Times) -> float:
    """Find how much longer the other candidate takes: the median over pairs of one round."""
    return round(100.0 * (float(np.median(other / plain)) - 1.0), 2)


def find_overhead_bounds(plain: Times, other: Times) -> list[float]:
    """Find between which percentages `find_overhead_percent` is, with 95 % confidence.

    See `intervals`; of fewer than six rounds the least and the largest.
    """
    ratios = np.sort(other / plain)
    rank = max(1, find_rank(len(ratios)))
    return [round(100.0 * (float(end) - 1.0), 2) for end in (ratios[rank - 1], ratios[-rank])]


def find_quantiles(
    values: Sequence[float] | npt.NDArray[Any],
    names: str,
    scale: float = 1.0,
    digits: int | None = None,
) -> dict[str, float]:
    """Find quantiles by name, ``p50 p99 max``, of values divided by `scale`; interpolated."""
    shares = {name: 100.0 if name == "max" else float(name[1:]) for name in names.split()}
    found = {name: float(np.percentile(values, share)) / scale for name, share in shares.items()}
    return found if digits is None else {n: round(value, digits) for n, value in found.items()}
