# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two ways measured in turns, round by round, until a sign test decides between them.

Round by round, since a machine is never quiet: what disturbs one round disturbs both ways alike.
And by signs, since rounds have outliers wherever another program runs, so that neither their
spread nor a difference of medians says how far to trust one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import comb
from typing import NamedTuple

LOOKS = (12, 24, 48, 96, 192, 384)
"""Rounds after which a comparison is looked at: as many again as long as they decide nothing, so
that it is measured longer on a busy machine."""

DOUBT = 0.05
"""A comparison may come out wrong with this probability, all looks together."""


def is_rare(count: int, rounds: int) -> bool | None:
    """Whether what `count` of these rounds have in common happens in less than half of all rounds.

    False where it happens in more than half; None while the rounds leave more than `DOUBT`, which
    all looks at them share.

    This is the sign test, whose order statistics bound the median whatever the distribution: if
    each round has it with a probability of at least 1/2, at most k of n have it with at most that
    of k heads in n tosses of a coin.
    """
    limit = DOUBT / len(LOOKS)
    if _find_chance(count, rounds) <= limit:
        return True
    return False if _find_chance(rounds - count, rounds) <= limit else None


def _find_chance(most: int, tosses: int) -> float:
    """Probability of `most` heads or fewer in tosses of a fair coin."""
    return sum(comb(tosses, heads) for heads in range(most + 1)) / (1 << tosses)


class Turns(NamedTuple):
    """Rounds of two ways in turns; scores are means over the rounds, NaN without any."""

    is_better: bool | None  # whether the rival is; None = not decided
    rounds: int
    wins: int  # rounds in which the rival had the higher score
    losses: int  # and the lower one; the others are ties
    kept: float  # score of the way that is kept unless the rival is better
    rival: float


def compare(
    kept: Callable[[], float],
    rival: Callable[[], float],
    margin: float,
    may_go_on: Callable[[], bool],
) -> Turns:
    """Decide whether a rival has a higher score than the way that is kept otherwise.

    It is not where it wins by more than `margin` in less than half of all rounds, with a mean that
    is higher by no more than that: then keeping the other one costs at most the margin. Otherwise
    the rounds that differ decide: the one that wins more than half of them, if its mean is higher,
    too. Every other round is in the opposite order. `may_go_on` is asked before each round; not
    decided is what it ends between two looks.
    """
    scores: list[tuple[float, float]] = []
    is_better: bool | None = None
    for look in LOOKS:
        while len(scores) < look and may_go_on():
            if len(scores) % 2:
                other = rival()
                scores.append((kept(), other))
            else:
                scores.append((kept(), rival()))
        if len(scores) < look:
            break
        is_better = _decide(scores, margin)
        if is_better is not None:
            break
    return Turns(is_better, len(scores), *_count(scores), *_find_means(scores))


def _decide(scores: Sequence[tuple[float, float]], margin: float) -> bool | None:
    own, other = _find_means(scores)
    wins, losses = _count(scores)
    clear_wins, _ = _count(scores, margin)
    if other <= own + margin and is_rare(clear_wins, len(scores)):
        return False
    if other > own and is_rare(losses, wins + losses):
        return True
    return False if other <= own and is_rare(wins, wins + losses) else None


def _count(scores: Sequence[tuple[float, float]], margin: float = 0.0) -> tuple[int, int]:
    """Rounds that the second won, and that it lost, by more than a margin."""
    wins = sum(other > own + margin for own, other in scores)
    return wins, sum(other < own - margin for own, other in scores)


def _find_means(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if not scores:
        return math.nan, math.nan
    own, other = (math.fsum(side) / len(scores) for side in zip(*scores, strict=True))
    return own, other
