# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cuts of a network that cost nothing on a back end, as measured: ``stages: auto``.

What a cut costs depends on the back end: layouts and types are converted at both sides of it, and
operators across it are no longer computed together. So each candidate is measured where it is:
the two stages beside it against one run of both, in turns. Of the sets of cuts that are free by
these costs, the one with the shortest longest stage is tried as a whole against the uncut network,
since stages that are cheap alone share caches when they follow one another; if it costs too much,
a cheaper set is tried.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Annotated

import numpy as np

from jetson_dnn_rt.backends.base import Array, Runner
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.safety.records import Count, at_most, read_record
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.network import IMAGE, Network, Piece, Segment, run_piece
from jetson_dnn_rt.variants.spec import FULL

logger = logging.getLogger(__name__)

FREE = 0.02
"""Cuts are free if all of them together add at most this share of the uncut network's time."""

CANDIDATES = 8
"""Stages of which the candidates are the boundaries."""

IMBALANCE = 1.5
"""They may be this many times longer than in the best balance, so that less crosses the cuts: at
most 294 KiB in mobilenet_v3_large, in place of 3136."""

BALANCE = 1.05
"""Among sets of cuts whose longest stage is at most this much longer, the cheapest is tried."""

_TRIES = 4  # of sets of cuts
_WARM_UP, _LEAST, _MOST = 2, 9, 100  # rounds of a comparison
_CUT_NS, _SET_NS = 300_000_000, 1_500_000_000  # time for one, of a cut and of a set


@dataclass(frozen=True)
class FreeCuts:
    """The chosen cuts, and what was measured; costs are shares of the uncut network's time."""

    cuts: Annotated[tuple[str, ...], at_most(CANDIDATES)]  # names as `Network` takes them
    cost: float  # of the chosen cuts together; 0 without any
    costs: Annotated[dict[str, float], at_most(CANDIDATES)]  # of every candidate on its own
    whole_ns: Count  # the uncut network
    longest_ns: Count  # the longest stage

    def __str__(self) -> str:
        """The choice with its reason, for people."""
        longest = f"the longest stage {self.longest_ns / 1e6:.2f} of {self.whole_ns / 1e6:.2f} ms"
        each = ", ".join(f"{cut} {100 * cost:+.1f} %" for cut, cost in self.costs.items())
        if not self.cuts:
            return f"1 stage: no cut is free ({each or 'its graph has no place to cut'})"
        chosen = ", ".join(self.cuts)
        text = f"{len(self.cuts) + 1} stages, cut at {chosen}: {100 * self.cost:+.1f} %, {longest}"
        return f"{text} (each cut alone: {each})" if each else text


def find_free_cuts(
    network: Network, make_runner: Callable[[Part], Runner], form: str = FULL
) -> FreeCuts:
    """Choose those boundaries of a network, cut into its candidates, that are free.

    `form` is one of `Network.cover`.

    It takes some seconds, and about twice the memory of the network meanwhile. The errors are
    those of `make_runner`.
    """
    count, finest = network.stages, tuple(range(network.stages + 1))
    with ExitStack() as stack:
        whole = _prepare(network.cover(form, (0, count)), make_runner, stack)
        image = whole[0].runner.allocate_input()
        image[:] = np.float32(0.45)
        start: dict[str, Array] = {IMAGE: image}

        def compare(segments: Sequence[Segment]) -> tuple[int, float]:
            uncut, cut = (partial(_run, these, start) for these in (whole, segments))
            pairs = _take_turns(uncut, cut, _SET_NS)
            whole_ns = round(statistics.median(plain for plain, _ in pairs))
            return whole_ns, statistics.median(taken / plain for plain, taken in pairs) - 1.0

        parts = _prepare(network.cover(form, finest), make_runner, stack)
        whole_ns, cost = compare(parts)
        times_ns, before = _time_each(parts, start)
        if count == 1 or cost <= FREE:
            longest_ns = _find_longest(times_ns, finest, whole_ns)
            return FreeCuts(network.cuts, max(0.0, cost), {}, whole_ns, longest_ns)
        costs = []
        for cut in range(1, count):
            joint = network.cover(form, [bound for bound in finest if bound != cut])[cut - 1]
            with ExitStack() as once:
                pairs = _take_turns(
                    partial(_run, _prepare([joint], make_runner, once), before[cut - 1]),
                    partial(_run, parts[cut - 1 : cut + 1], before[cut - 1]),
                    _CUT_NS,
                )
            extra_ns = statistics.median(apart - together for together, apart in pairs)
            costs.append(max(0.0, extra_ns / whole_ns))
        known = dict(zip(network.cuts, costs, strict=True))
        allowed = FREE
        for _ in range(_TRIES):
            chosen = select_cuts(costs, times_ns, allowed)
            if not chosen:
                break
            bounds = (0, *chosen, count)
            with ExitStack() as once:
                whole_ns, cost = compare(_prepare(network.cover(form, bounds), make_runner, once))
            if cost <= FREE:
                cuts = tuple(network.cuts[index - 1] for index in chosen)
                longest_ns = _find_longest(times_ns, bounds, whole_ns)
                return FreeCuts(cuts, max(0.0, cost), known, whole_ns, longest_ns)
            # Together they cost more than alone: something cheaper, and not the same again.
            allowed = min(allowed / 2, 0.99 * sum(costs[index - 1] for index in chosen))
        return FreeCuts((), 0.0, known, whole_ns, whole_ns)


def select_cuts(
    costs: Sequence[float], times_ns: Sequence[int], allowed: float
) -> tuple[int, ...]:
    """Choose the set of cuts with the shortest longest stage among those that are free.

    Cut i, from 1 on, is between the parts i - 1 and i, whose times are `times_ns`; `costs` has its
    cost, `allowed` the most that all chosen ones may cost. Of sets that are as good, within
    `BALANCE`, the cheapest, then the smallest. Empty where no cut is free.
    """
    cuts = range(1, len(times_ns))
    sets = [
        (sum(costs[cut - 1] for cut in chosen), chosen)
        for size in range(len(times_ns))
        for chosen in combinations(cuts, size)
    ]
    free = [
        (max(_sum_between(times_ns, (0, *chosen, len(times_ns)))), cost, chosen)
        for cost, chosen in sets
        if cost <= allowed
    ]
    limit = BALANCE * min(longest_ns for longest_ns, _, _ in free)
    good = [(cost, len(chosen), chosen) for longest, cost, chosen in free if longest <= limit]
    return min(good)[2]


def load_free_cuts(
    network: Network, make_runner: Callable[[Part], Runner], library: Library | None, key: EntryKey
) -> FreeCuts:
    """`find_free_cuts`, or what it found at an earlier start under the same key."""
    entry = library.load(key) if library is not None else None
    if entry is not None:
        try:
            return read_record(FreeCuts, entry.facts, "cuts")
        except ValueError as error:
            logger.warning("library entry %s: %s; cuts are measured again", entry.path, error)
    found = find_free_cuts(network, make_runner)
    if library is not None:
        library.store(key, {}, asdict(found), model=network.model.source)
    return found


def _prepare(
    pieces: Sequence[Piece], make_runner: Callable[[Part], Runner], owner: ExitStack
) -> list[Segment]:
    segments = []
    for piece in pieces:
        runner = make_runner(piece.part)
        owner.callback(runner.close)
        segments.append(Segment(piece, runner))
    return segments


def _run(segments: Sequence[Segment], values: Mapping[str, Array]) -> dict[str, Array]:
    """Run segments on boundary values, which stay as they are; returns those after the last."""
    after = dict(values)
    for segment in segments:
        run_piece(segment.piece, segment.runner, after)
    return after


def _time_each(
    segments: Sequence[Segment], values: Mapping[str, Array]
) -> tuple[list[int], list[dict[str, Array]]]:
    """Median time of each segment, and the boundary values before it."""
    before: list[dict[str, Array]] = []
    taken: list[list[int]] = [[] for _ in segments]
    for _ in range(_LEAST):
        after, before = dict(values), []
        for segment, times_ns in zip(segments, taken, strict=True):
            before.append(after)
            start_ns = time.perf_counter_ns()
            after = _run([segment], after)
            times_ns.append(time.perf_counter_ns() - start_ns)
    return [round(statistics.median(times_ns)) for times_ns in taken], before


def _take_turns(
    first: Callable[[], object], second: Callable[[], object], limit_ns: int
) -> list[tuple[int, int]]:
    """Times of two calls, round by round, every other time in the opposite order."""
    pairs = []
    end_ns = 0
    for index in range(_WARM_UP + _MOST):
        if index == _WARM_UP:
            end_ns = time.perf_counter_ns() + limit_ns
        elif index >= _WARM_UP + _LEAST and time.perf_counter_ns() >= end_ns:
            break
        taken = []
        for call in (second, first) if index % 2 else (first, second):
            start_ns = time.perf_counter_ns()
            call()
            taken.append(time.perf_counter_ns() - start_ns)
        pairs.append((taken[index % 2], taken[1 - index % 2]))
    return pairs[_WARM_UP:]


def _find_longest(times_ns: Sequence[int], bounds: Sequence[int], whole_ns: int) -> int:
    """The longest stage, as its share of all parts says, in a network that takes `whole_ns`."""
    return round(whole_ns * max(_sum_between(times_ns, bounds)) / sum(times_ns))


def _sum_between(times_ns: Sequence[int], bounds: Sequence[int]) -> list[int]:
    return [sum(times_ns[begin:end]) for begin, end in pairwise(bounds)]
