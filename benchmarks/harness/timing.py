"""Times of several things measured in turn, so that whatever else the machine does meets all."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

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
    rounds that do not count. `before` is called before every single run, outside of its time.
    Place i of all arrays belongs to round i.
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
    """The items from another one on in each round."""
    shift = number % max(1, len(items))
    return [*items[shift:], *items[:shift]]


def alternate(items: Iterable[Item], number: int) -> list[Item]:
    """The items, every other round the other way round."""
    return list(items)[:: -1 if number % 2 else 1]


@contextmanager
def frozen_garbage() -> Iterator[None]:
    """Collect now and nothing that is there later, as the executor does while it runs."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def quantile_ms(times: Times, share: float) -> float:
    """A time that `share` of the runs did not exceed, in ms; one that was measured."""
    # numpy 1.21 (Ubuntu 22.04) has no np.quantile(..., method="higher").
    return float(np.sort(times)[math.ceil(share * (len(times) - 1))]) * 1e-6


def find_overhead_percent(plain: Times, other: Times) -> float:
    """How much longer the other one takes: the median over pairs of one round."""
    return round(100.0 * (float(np.median(other / plain)) - 1.0), 2)


def find_quantiles(
    values: Sequence[float] | npt.NDArray[Any],
    names: str,
    scale: float = 1.0,
    digits: int | None = None,
) -> dict[str, float]:
    """Quantiles by name, ``p50 p99 max``, of values divided by `scale`; between two of them."""
    shares = {name: 100.0 if name == "max" else float(name[1:]) for name in names.split()}
    found = {name: float(np.percentile(values, share)) / scale for name, share in shares.items()}
    return found if digits is None else {n: round(value, digits) for n, value in found.items()}
