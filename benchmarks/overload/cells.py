# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cells of `overload`: the rounds of one load and deadline, put together and judged.

A round holds, of every side, what `bench.describe` found in it. Counts are added over the rounds;
an age is the median over the rounds of its quantile. Sides are held against each other round by
round (`benchmarks.harness.intervals`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.harness.intervals import Interval, compare, divide
from benchmarks.harness.tables import UNDECIDED, Verdict, judge_all

OURS, SEQUENTIAL, NAIVE, AGAINST = "ours", "sequential", "naive", "against"
SIDES = (OURS, SEQUENTIAL, NAIVE, AGAINST)
ADMITTED_BAR = 0.95
KEPT_UP_BAR = 0.98
"""Share of the frames that both sides deliver in time where the machine keeps up."""
AGAINST_BAR = 0.98
"""Results in time in any cell, relative to the other commit's; on average there are no fewer."""
AGES = ("p50", "p99")

Figures = Mapping[str, Any]
_COUNTS = ("frames", "started", "admitted", "published", "in_time", "restarts")
_COUNTERS = ("in_time_by_task", "outcomes")


def pool(rounds: Sequence[Figures]) -> dict[str, Any]:
    """Put the rounds of one side together; ratios and rates are None if nothing was counted."""
    counts = {name: sum(one[name] for one in rounds) for name in _COUNTS}
    seconds = sum(one["seconds"] for one in rounds)
    counters: dict[str, Counter[str]] = {name: Counter() for name in _COUNTERS}
    for name, counter in counters.items():
        for one in rounds:
            counter.update(one[name])
    met_admitted = sum((one["met_ratio_admitted"] or 0.0) * one["admitted"] for one in rounds)
    found = {
        "seconds": round(seconds, 3),
        **counts,
        "met_ratio": _divide(counts["in_time"], counts["frames"]),
        "met_ratio_started": _divide(counts["in_time"], counts["started"]),
        "met_ratio_admitted": _divide(met_admitted, counts["admitted"]),
        "in_time_per_s": _divide(counts["in_time"], seconds),
        "age_ms": {name: _find_median(one["age_ms"][name] for one in rounds) for name in AGES},
        **{name: dict(counter.most_common()) for name, counter in counters.items()},
        "failures": [failure for one in rounds for failure in one["failures"]],
    }
    if any("cores" in one for one in rounds):
        busy_s = sum((one["cores"] or 0.0) * one["seconds"] for one in rounds)
        found["cores"] = _divide(busy_s, seconds)
    return found


def _divide(one: float, other: float) -> float | None:
    return one / other if other else None


def _find_median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def make_cell(rounds: Sequence[Mapping[str, Any]], detector: str, peer: str) -> dict[str, Any]:
    """Make a cell of its rounds; ``compared`` has the intervals and verdicts by other side."""
    sides = {side: [one["sides"][side] for one in rounds] for side in rounds[0]["sides"]}
    alone = {side: [one[detector][side] for one in rounds] for side in rounds[0].get(detector, {})}
    compared = {NAIVE: judge(sides[OURS], sides[NAIVE])}
    if AGAINST in sides:
        compared[AGAINST] = judge_against(sides[OURS], sides[AGAINST])
    if peer in alone:
        compared[peer] = judge(alone[OURS], alone[peer])
    listener: Counter[str] = Counter()
    for one in rounds:
        listener.update(one["listener"])
    return {
        **{key: rounds[0][key] for key in ("load", "deadline_factor")},
        **{
            key: statistics.median(one[key] for one in rounds)
            for key in ("deadline_ms", "rate_hz")
        },
        "rounds": len(rounds),
        **{side: pool(of_side) for side, of_side in sides.items()},
        **({detector: {side: pool(one) for side, one in alone.items()}} if alone else {}),
        # Of all sides together, including the time outside the measured windows.
        "listener": dict(listener),
        "compared": compared,
        "passed": judge_all(one["passed"] for one in compared.values()),
    }


def judge(ours: Sequence[Figures], other: Sequence[Figures]) -> dict[str, Any]:
    """Hold ours against the usual node or a peer; a failed round of either is not passed."""
    found = _compare(ours, other)
    admitted = Interval.of(one["met_ratio_admitted"] or 0.0 for one in ours)
    kept_up = judge_all(
        Interval.of(_find_met(side)).judge(least=KEPT_UP_BAR) for side in (ours, other)
    )
    verdicts: dict[str, Verdict] = {
        "admitted": admitted.judge(least=ADMITTED_BAR),
        # Then the camera decides how many there are: a window has a frame more or less.
        "in_time": True if kept_up is True else found["in_time"].judge(least=1.0),
        **{f"age_{name}": found[f"age_{name}"].judge(most=1.0) for name in AGES},
    }
    return _describe({"admitted": admitted, **found}, verdicts, [*ours, *other])


def judge_against(ours: Sequence[Figures], other: Sequence[Figures]) -> dict[str, Any]:
    """Hold ours against another commit of this package in one cell."""
    found = _compare(ours, other)
    verdicts = {"in_time": found["in_time"].judge(least=AGAINST_BAR)}
    return _describe(found, verdicts, [*ours, *other])


def judge_average(
    played: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, float | None] | None, Verdict]:
    """Hold the mean share in time of all cells against the other commit's, round by round.

    A round counts if every cell has it; nothing is judged where that is none.
    """
    cells = {(one["load"], one["deadline_factor"]) for one in played}
    by_round: dict[int, list[Mapping[str, Any]]] = {}
    for one in played:
        by_round.setdefault(one["round"], []).append(one["sides"])
    whole = [sides for sides in by_round.values() if len(sides) == len(cells)]
    if not whole or any(AGAINST not in one for sides in whole for one in sides):
        return None, None
    found = Interval.of(
        divide(*(sum(_find_met([one[side] for one in sides])) for side in (OURS, AGAINST)))
        for sides in whole
    )
    return found.to_dict(), found.judge(least=1.0)


def _find_met(rounds: Sequence[Figures]) -> list[float]:
    return [one["met_ratio"] or 0.0 for one in rounds]


def _find_ages(rounds: Sequence[Figures], name: str) -> list[float]:
    """Ages by round; where nothing was published, it is still to come."""
    ages = (one["age_ms"][name] for one in rounds)
    return [math.inf if age is None else age for age in ages]


def _compare(ours: Sequence[Figures], other: Sequence[Figures]) -> dict[str, Interval]:
    return {
        "in_time": compare(_find_met(ours), _find_met(other)),
        **{
            f"age_{name}": compare(_find_ages(ours, name), _find_ages(other, name))
            for name in AGES
        },
    }


def _describe(
    found: Mapping[str, Interval], verdicts: Mapping[str, Verdict], rounds: Sequence[Figures]
) -> dict[str, Any]:
    failed = any(one["failures"] for one in rounds)
    return {
        **{name: interval.to_dict() for name, interval in found.items()},
        "verdicts": dict(verdicts),
        "passed": False if failed else judge_all(verdicts.values()),
    }


def name_undecided(compared: Mapping[str, Any]) -> str:
    """Name the bars of a comparison that did not pass."""
    words = {False: "NOT passed", UNDECIDED: UNDECIDED}
    return ", ".join(
        f"{name} {words[verdict]}"
        for name, verdict in compared["verdicts"].items()
        if verdict in words
    )
