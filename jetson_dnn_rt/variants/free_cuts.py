# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cuts of a network that cost nothing on a back end, as measured: ``stages: auto``.

What a cut costs depends on the back end: layouts and types are converted at both sides of it, and
operators across it are no longer computed together. So each candidate is measured where it is:
the two stages beside it against one run of both, in turns. Of the sets of cuts that are free by
these costs, the one with the shortest longest stage is tried as a whole against the uncut network,
since stages that are cheap alone share caches when they follow one another; if it is not found
free, a cheaper set is tried.

A set is taken only on evidence (`judge`), twice, since a cut that is wrongly held free costs every
frame, while one that is missed costs little.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, count, islice, pairwise
from typing import Annotated, NamedTuple

import numpy as np

from jetson_dnn_rt.backends.base import Array, Runner
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.safety.records import Count, at_most, read_record
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.network import IMAGE, Network, Piece, Segment, run_piece
from jetson_dnn_rt.variants.spec import FULL
from jetson_dnn_rt.variants.turns import LOOKS, is_rare

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

FORM = 2
"""Of how cuts and covers are chosen; raise it where that changes: earlier choices are not read."""

_COMPARISONS = 2  # that a set has to pass
_TRIES = 4  # of sets of cuts
_WARM_UP, _LEAST, _MOST = 2, 9, 100  # rounds of a cut
_CUT_NS, _SET_NS = 300_000_000, 3_000_000_000  # time for one; a set has its first look at least


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


class Trial(NamedTuple):
    """A set of cuts, compared with the uncut network."""

    is_free: bool
    cost: float  # the larger of the medians of its comparisons, >= 0
    whole_ns: int


def find_free_cuts(
    network: Network, make_runner: Callable[[Part], Runner], form: str = FULL
) -> FreeCuts:
    """Choose those boundaries of a network, cut into its candidates, that are free.

    `form` is one of `Network.cover`.

    It takes some seconds, of a slow network up to some 150 runs, and about twice its memory
    meanwhile. The errors are those of `make_runner`.
    """
    stages, finest = network.stages, tuple(range(network.stages + 1))
    if stages == 1:
        with ExitStack() as stack:
            (whole_ns,), _ = _time_each(_prepare(network.cover(form, finest), make_runner, stack))
        return FreeCuts((), 0.0, {}, whole_ns, whole_ns)
    all_cuts = _try_cuts(network, form, finest, make_runner)
    whole_ns = all_cuts.whole_ns
    with ExitStack() as stack:
        parts = _prepare(network.cover(form, finest), make_runner, stack)
        times_ns, before = _time_each(parts)
        if all_cuts.is_free:
            longest_ns = _find_longest(times_ns, finest, whole_ns)
            return FreeCuts(network.cuts, all_cuts.cost, {}, whole_ns, longest_ns)
        costs = []
        for cut in range(1, stages):
            joint = network.cover(form, [bound for bound in finest if bound != cut])[cut - 1]
            with ExitStack() as once:
                rounds = _take_turns(
                    partial(_run, _prepare([joint], make_runner, once), before[cut - 1]),
                    partial(_run, parts[cut - 1 : cut + 1], before[cut - 1]),
                )
                pairs = list(islice(rounds, _LEAST))
                end_ns = time.perf_counter_ns() + _CUT_NS
                while len(pairs) < _MOST and time.perf_counter_ns() < end_ns:
                    pairs.append(next(rounds))
            extra_ns = statistics.median(apart - together for together, apart in pairs)
            costs.append(max(0.0, extra_ns / whole_ns))
    known = dict(zip(network.cuts, costs, strict=True))
    allowed, failed = FREE, [finest[1:-1]]
    for _ in range(_TRIES):
        chosen = select_cuts(costs, times_ns, allowed, failed)
        if not chosen:
            break
        bounds = (0, *chosen, stages)
        tried = _try_cuts(network, form, bounds, make_runner)
        if tried.is_free:
            cuts = tuple(network.cuts[index - 1] for index in chosen)
            longest_ns = _find_longest(times_ns, bounds, tried.whole_ns)
            return FreeCuts(cuts, tried.cost, known, tried.whole_ns, longest_ns)
        # Together they cost more than alone: something cheaper.
        failed.append(chosen)
        allowed /= 2
    return FreeCuts((), 0.0, known, whole_ns, whole_ns)


def judge(ratios: Sequence[float]) -> bool | None:
    """Whether cuts are free by their times over those of the uncut network, round by round.

    None while these rounds do not decide it: see `turns.is_rare`. If cuts really add `FREE` or
    more at the median, a round is above that with a probability of at least 1/2. Rounds that are
    near in time may have been disturbed together, which is no toss of a coin: hence a second
    comparison, some time later. Two make 1 in 400 for a set that costs `FREE` exactly, less for
    one that costs more.
    """
    return is_rare(sum(ratio > 1.0 + FREE for ratio in ratios), len(ratios))


def select_cuts(
    costs: Sequence[float],
    times_ns: Sequence[int],
    allowed: float,
    failed: Sequence[tuple[int, ...]] = (),
) -> tuple[int, ...]:
    """Choose the set of cuts with the shortest longest stage among those that are free.

    Cut i, from 1 on, is between the parts i - 1 and i, whose times are `times_ns`; `costs` has its
    cost, `allowed` the most that all chosen ones may cost. Sets that `failed` are left out with
    those that contain them, which would cost more still. Of sets that are as good, within
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
        if cost <= allowed and not any(set(other).issubset(chosen) for other in failed)
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
            kept = read_record(FreeCuts, entry.facts, "cuts")
            if unknown := [cut for cut in kept.cuts if cut not in network.cuts]:
                raise ValueError(f"the network has no cut {', '.join(unknown)}")
            return kept
        except ValueError as error:
            logger.warning("library entry %s: %s; cuts are measured again", entry.path, error)
    found = find_free_cuts(network, make_runner)
    if library is not None:
        library.store(key, {}, asdict(found), model=network.model.source)
    return found


def _try_cuts(
    network: Network, form: str, bounds: tuple[int, ...], make_runner: Callable[[Part], Runner]
) -> Trial:
    """Compare a network cut at `bounds` with the uncut one, until one comparison is not free.

    Each has runners of its own, made in the opposite order: where the memory of a network happens
    to lie can make it a few per cent faster or slower, for all its rounds.
    """
    whole = (0, network.stages)
    is_free, costs, whole_ns = True, [0.0], 0
    for number in range(_COMPARISONS):
        with ExitStack() as once:
            made = {
                these: _prepare(network.cover(form, these), make_runner, once)
                for these in ((bounds, whole) if number % 2 else (whole, bounds))
            }
            sides = (made[whole], made[bounds])
            rounds = _take_turns(*(partial(_run, one, _make_start(one)) for one in sides))
            pairs: list[tuple[int, int]] = []
            end_ns = time.perf_counter_ns() + _SET_NS
            verdict: bool | None = None
            for look in LOOKS:
                while len(pairs) < look and (look == LOOKS[0] or time.perf_counter_ns() < end_ns):
                    pairs.append(next(rounds))
                if len(pairs) < look:
                    break
                verdict = judge([taken / plain for plain, taken in pairs])
                if verdict is not None:
                    break
        costs.append(statistics.median(taken / plain for plain, taken in pairs) - 1.0)
        whole_ns = round(statistics.median(plain for plain, _ in pairs))
        is_free = verdict is True
        if not is_free:
            break
    return Trial(is_free, max(costs), whole_ns)


def _make_start(segments: Sequence[Segment]) -> dict[str, Array]:
    """Boundary values before the first segment."""
    image = segments[0].runner.allocate_input()
    image[:] = np.float32(0.45)
    return {IMAGE: image}


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


def _time_each(segments: Sequence[Segment]) -> tuple[list[int], list[dict[str, Array]]]:
    """Median time of each segment of a network, and the boundary values before it."""
    start = _make_start(segments)
    before: list[dict[str, Array]] = []
    taken: list[list[int]] = [[] for _ in segments]
    for _ in range(_WARM_UP + _LEAST):
        after, before = start, []
        for segment, times_ns in zip(segments, taken, strict=True):
            before.append(after)
            start_ns = time.perf_counter_ns()
            after = _run([segment], after)
            times_ns.append(time.perf_counter_ns() - start_ns)
    return [round(statistics.median(times_ns[_WARM_UP:])) for times_ns in taken], before


def _take_turns(
    first: Callable[[], object], second: Callable[[], object]
) -> Iterator[tuple[int, int]]:
    """Times of two calls, round by round, every other time in the opposite order."""
    for index in count():
        taken = []
        for call in (second, first) if index % 2 else (first, second):
            start_ns = time.perf_counter_ns()
            call()
            taken.append(time.perf_counter_ns() - start_ns)
        if index >= _WARM_UP:
            yield taken[index % 2], taken[1 - index % 2]


def _find_longest(times_ns: Sequence[int], bounds: Sequence[int], whole_ns: int) -> int:
    """The longest stage, as its share of all parts says, in a network that takes `whole_ns`."""
    return round(whole_ns * max(_sum_between(times_ns, bounds)) / sum(times_ns))


def _sum_between(times_ns: Sequence[int], bounds: Sequence[int]) -> list[int]:
    return [sum(times_ns[begin:end]) for begin, end in pairwise(bounds)]
