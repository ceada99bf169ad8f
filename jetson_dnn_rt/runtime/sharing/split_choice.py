# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The split of the cores that ``threads: auto`` takes: chosen by playing frames, then kept.

Three splits are possible: one inference at a time with all cores (1 x 2), several side by side
with a share each (2 x 1), and either of them frame by frame (1 x 2 or 2 x 1). Which one meets most
deadlines depends on machine, networks, rates and deadlines, so frames of all tasks are played at
their rates with two splits in turns, until a sign test decides (`variants.turns`). The first is
kept unless another one is better: that takes evidence, and whatever is implausible is none.

The library keeps the choice by machine, networks, rates and deadlines, so that only the first
start with them takes the time.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.platforms.machine import describe_cpu
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, NarrowTimes
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.safety.records import Count, Rule, at_most, read_record, within
from jetson_dnn_rt.variants.library.entry import encode_canonical
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_cores
from jetson_dnn_rt.variants.spec import VariantSpec
from jetson_dnn_rt.variants.turns import LOOKS, compare

logger = logging.getLogger(__name__)

SPLIT = "split"
"""Kind of the library's entries with a choice."""

MARGIN = 0.01
"""A split is kept where another one meets at most this share of the frames more, in the mean, and
in half of all rounds."""

LIMIT_NS = 30_000_000_000
"""A choice takes at most so long, all comparisons together; what is not decided then keeps the
split that it has."""

MOST_PERIODS, LEAST_PERIODS = 8, 2
"""Periods of the slowest task in a round."""

REST_NS = 50_000_000
"""Time after a round in which its last frames end."""

TIGHT = 0.8
"""Share of the shortest period or deadline that all tasks together may take, each as long as its
slowest measured frame, one after the other, where no split is tried: they are in time anyway."""

SIMILAR = 1.1
"""A choice holds for rates and deadlines that are all within this factor of those that it was made
for: cameras and bags do not have the same ones twice. Where it would be another one between the
two, both splits are about as good."""

FORM = 1
"""Of how a split is chosen; raise it where that changes: earlier choices are not read."""

Play = Callable[[CoreSplit], float]
"""Plays a round with a split; the share of its frames that met their deadlines."""


class ImplausibleError(Exception):
    """A round that says nothing about a split: frames failed, or were lost."""


_Share = Annotated[float, within(0.0, 1.0)]
_Times = Annotated[dict[str, Annotated[int, within(1, 1 << 62)]], at_most(256)]


def _zone(date: str) -> object:
    return not date or datetime.fromisoformat(date).tzinfo


@dataclass(frozen=True)
class Comparison:
    """Two splits played in turns. The shares are of all frames of all rounds; 0 without any."""

    kept: CoreSplit  # unless the rival is better
    rival: CoreSplit
    is_better: bool | None  # whether the rival is; None = not decided
    rounds: Annotated[int, within(0, LOOKS[-1])]
    wins: Count  # rounds in which the rival met more frames
    losses: Count  # and in which it met fewer
    kept_met: _Share
    rival_met: _Share
    reason: Annotated[str, at_most(300)] = ""  # why it is not decided

    def __post_init__(self) -> None:
        if self.is_better is not None and self.rounds < LOOKS[0]:
            raise ValueError(f"{self.rounds} rounds decide nothing, {LOOKS[0]} may")
        if self.wins + self.losses > self.rounds:
            raise ValueError(f"{self.wins} wins and {self.losses} losses in {self.rounds} rounds")

    def __str__(self) -> str:
        if self.rounds:
            figures = (
                f"{self.kept} meets {100 * self.kept_met:.1f} %, {self.rival} "
                f"{100 * self.rival_met:.1f} % of the frames (more in {self.wins}, fewer in "
                f"{self.losses} of {self.rounds} rounds)"
            )
        else:
            figures = f"{self.kept} against {self.rival}"
        if self.is_better is None:
            return f"{figures}: not decided, kept {self.kept}: {self.reason}"
        return f"{figures}: decided for {self.rival if self.is_better else self.kept}"


@dataclass(frozen=True)
class SplitChoice:
    """The chosen split, what decided, and the rates and deadlines that it was chosen for."""

    split: CoreSplit
    periods_ns: _Times
    deadlines_ns: _Times
    comparisons: Annotated[tuple[Comparison, ...], at_most(2)] = ()
    reason: Annotated[str, at_most(300)] = ""  # where there is nothing to compare
    date: Annotated[str, at_most(40), Rule("a date with a time zone", _zone)] = ""

    def __post_init__(self) -> None:
        split = self.comparisons[0].kept if self.comparisons else self.split
        for one in self.comparisons:
            if one.kept != split:
                raise ValueError(f"{one.kept} is compared, though {split} had been chosen")
            split = one.rival if one.is_better else one.kept
        if split != self.split:
            raise ValueError(f"{self.split} is not what the comparisons say, {split}")

    def __str__(self) -> str:
        why = "; ".join(map(str, self.comparisons)) or self.reason
        return f"{self.split} (workers x threads): {why}; {self.describe_rates()}"

    def describe_rates(self) -> str:
        """The rates and deadlines in words."""
        return "at " + ", ".join(
            f"{name} {1e9 / period_ns:.1f} Hz within {self.deadlines_ns[name] / 1e6:.1f} ms"
            for name, period_ns in self.periods_ns.items()
        )


def list_splits(planned: CoreSplit, times: NarrowTimes, tasks: int) -> list[CoreSplit]:
    """The splits to choose among, the one that is kept without evidence first."""
    if not times.can_choose:
        return [planned]  # those of one core run beside others, all others one after the other
    splits = [planned.wide, planned]
    # A network that is always wide would share the cores of several workers.
    if len(times.slowdowns) == tasks:
        splits.append(planned.narrow)
    return splits


def choose(splits: Sequence[CoreSplit], play: Play, clock: Clock, limit_ns: int) -> SplitChoice:
    """Compare the first of the splits with each other one in turns; the better goes on.

    Without periods and deadlines, which are the caller's.
    """
    split, comparisons = splits[0], list[Comparison]()
    end_ns = clock.now_ns() + limit_ns
    for number, rival in enumerate(splits[1:], 1):
        share_ns = (end_ns - clock.now_ns()) // (len(splits) - number)
        comparisons.append(_compare(split, rival, play, clock, share_ns))
        split = rival if comparisons[-1].is_better else split
    return SplitChoice(split, {}, {}, tuple(comparisons))


def _compare(
    kept: CoreSplit, rival: CoreSplit, play: Play, clock: Clock, limit_ns: int
) -> Comparison:
    end_ns = clock.now_ns() + limit_ns
    before_ns, longest_ns = 0, 0

    def may_go_on() -> bool:
        nonlocal before_ns, longest_ns
        now_ns = clock.now_ns()
        longest_ns = max(longest_ns, now_ns - before_ns if before_ns else 0)
        before_ns = now_ns
        return now_ns + longest_ns <= end_ns

    def score(split: CoreSplit) -> float:
        share = play(split)
        if not 0.0 <= share <= 1.0:  # NaN is in no range
            raise ImplausibleError(f"{share} of the frames were met with {split}")
        return share

    try:
        found = compare(partial(score, kept), partial(score, rival), MARGIN, may_go_on)
    except ImplausibleError as error:
        return Comparison(kept, rival, None, 0, 0, 0, 0.0, 0.0, str(error)[:300])
    if not found.rounds:
        return Comparison(kept, rival, None, 0, 0, 0, 0.0, 0.0, "there was no time for a round")
    is_better, reason = found.is_better, ""
    if found.kept == found.rival == 0.0:
        is_better, reason = None, "neither met a single frame"
    elif is_better is None:
        reason = "the time was over"
    counts = found.rounds, found.wins, found.losses
    return Comparison(kept, rival, is_better, *counts, found.kept, found.rival, reason)


def count_periods(periods_ns: Mapping[str, int], comparisons: int) -> int:
    """Periods of the slowest task in a round, so that there is time for a first look; 0 = none."""
    round_ns = LIMIT_NS // (2 * (LOOKS[0] + 1) * comparisons) - REST_NS
    count = min(MOST_PERIODS, round_ns // max(periods_ns.values()))
    return count if count >= LEAST_PERIODS else 0


def find_longest_ns(tasks: Mapping[str, Task]) -> int:
    """Time of a frame of each task one after the other, each as slow as its slowest so far.

    0 where one was not measured.
    """
    slowest = [
        max((sum(run) for run in task.warm_up_times_ns[task.default]), default=0)
        for task in tasks.values()
    ]
    return sum(slowest) if all(slowest) else 0


# -- the library ---------------------------------------------------------------------------------


def make_key(
    tasks: Mapping[str, Task],
    splits: Sequence[CoreSplit],
    process: Sequence[object],
    periods_ns: Mapping[str, int],
    deadlines_ns: Mapping[str, int],
) -> EntryKey:
    """Key of a choice: machine, networks and how they are loaded, rates and deadlines.

    `process` are values of the process that decide, too. `options` alone has the rates and the
    deadlines, to three digits.
    """
    models = sorted(task.model.model_hash for task in tasks.values())
    networks = sorted(
        [
            task.model.model_hash,
            task.model.reading,
            task.default,
            inspect_backend(VariantSpec.parse(task.default).backend).version,
            list(task.stage_names),
            [task.threads, task.narrow_threads],
            list(task.frame.image.shape),
            task.frame.encoding,
        ]
        for task in tasks.values()
    )
    rates = sorted(
        [task.model.model_hash, _round(periods_ns[name]), _round(deadlines_ns[name])]
        for name, task in tasks.items()
    )
    return EntryKey(
        _hash(models),
        _hash([networks, list(map(str, splits)), list(map(str, process))]),
        SPLIT,
        SPLIT,
        device=describe_cpu(),
        options=f"form={FORM} cores={describe_cores()} rates={_hash(rates)[:16]}",
    )


def _round(time_ns: int) -> str:
    return f"{time_ns:.3g}"


def _hash(value: object) -> str:
    return hashlib.sha256(encode_canonical(value)).hexdigest()


def read_choice(facts: object) -> SplitChoice:
    """A choice as an entry has it; ValueError, which says why, where it cannot be one."""
    choice = read_record(SplitChoice, facts, SPLIT)
    if not choice.comparisons:
        raise ValueError(f"{SPLIT}.comparisons must have what decided")
    return choice


def load_choice(
    library: Library | None,
    key: EntryKey,
    splits: Sequence[CoreSplit],
    periods_ns: Mapping[str, int],
    deadlines_ns: Mapping[str, int],
) -> SplitChoice | None:
    """The choice that the library keeps for these rates and deadlines, or `SIMILAR` ones.

    None where it has to be measured (again).
    """
    entry = library.load(key) if library is not None else None
    if entry is not None:
        try:
            kept = read_choice(entry.facts)
            if kept.split not in splits:
                raise ValueError(f"{kept.split} is none of {', '.join(map(str, splits))}")
            return replace(kept, periods_ns=dict(periods_ns), deadlines_ns=dict(deadlines_ns))
        except ValueError as error:
            logger.warning("library entry %s: %s; the split is measured again", entry.path, error)
            return None
    return find_nearest(list_choices(library, key), splits, periods_ns, deadlines_ns, SIMILAR)


def find_nearest(
    choices: Iterable[SplitChoice],
    splits: Sequence[CoreSplit],
    periods_ns: Mapping[str, int],
    deadlines_ns: Mapping[str, int],
    factor: float,
) -> SplitChoice | None:
    """The choice for the nearest rates and deadlines, by the tasks' names, if within a factor."""
    found = [
        (distance, number, choice)
        for number, choice in enumerate(choices)
        if choice.split in splits
        and (distance := find_factor(choice, periods_ns, deadlines_ns)) <= factor
    ]
    return min(found)[2] if found else None


def find_factor(
    choice: SplitChoice, periods_ns: Mapping[str, int], deadlines_ns: Mapping[str, int]
) -> float:
    """Largest factor between rates and deadlines and those of a choice; inf for other tasks."""
    pairs = ((choice.periods_ns, periods_ns), (choice.deadlines_ns, deadlines_ns))
    if any(chosen.keys() != now.keys() for chosen, now in pairs):
        return math.inf
    return max(
        (
            max(chosen[name], now[name]) / min(chosen[name], now[name])
            for chosen, now in pairs
            for name in now
        ),
        default=math.inf,
    )


def store_choice(
    library: Library | None, key: EntryKey, choice: SplitChoice, tasks: Mapping[str, Task]
) -> None:
    """Keep a choice that was measured."""
    if library is not None:
        # At least two, so that it is not taken for one of a model.
        sources = sorted(task.model.source for task in tasks.values())
        library.store(key, {}, asdict(choice), model=" + ".join(sources))


def list_choices(library: Library | None, key: EntryKey) -> list[SplitChoice]:
    """Choices of the same machine and networks for other rates and deadlines."""
    found = []
    for other in library.list_alike(key, {"options"}) if library is not None else ():
        entry = library.load(other) if library is not None else None
        # Another form, or other cores.
        if entry is None or other.options.split(" ")[:2] != key.options.split(" ")[:2]:
            continue
        try:
            found.append(read_choice(entry.facts))
        except ValueError as error:
            logger.warning("library entry %s: %s; it is not used", entry.path, error)
    return found
