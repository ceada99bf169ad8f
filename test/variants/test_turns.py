# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two ways in turns: what a sign test decides, and when it decides nothing."""

from __future__ import annotations

import math
from itertools import cycle

import pytest

from jetson_dnn_rt.variants.turns import LOOKS, Turns, compare, is_rare

MARGIN = 0.01


class Side:
    """A way with the scores of its rounds, again and again; `order` has all calls."""

    def __init__(self, name, order, *scores):
        self.name, self.order, self.scores = name, order, cycle(scores)

    def __call__(self):
        self.order.append(self.name)
        return next(self.scores)


def play(kept, rival, rounds=1000):
    order: list[str] = []
    left = iter(range(rounds))
    found = compare(
        Side("k", order, *kept),
        Side("r", order, *rival),
        MARGIN,
        lambda: next(left, None) is not None,
    )
    return found, "".join(order)


def test_they_take_turns_and_every_other_round_is_in_the_opposite_order():
    _, order = play([0.5], [0.6], rounds=4)
    assert order == "krrkkrrk"


def test_a_rival_that_wins_round_by_round_is_better_at_the_first_look():
    found, _ = play([0.5], [0.6])
    assert found == Turns(True, 12, 12, 0, pytest.approx(0.5), pytest.approx(0.6))
    found, _ = play([0.6], [0.5])
    assert found == Turns(False, 12, 0, 12, pytest.approx(0.6), pytest.approx(0.5))


def test_what_is_better_by_less_than_the_margin_is_not_taken():
    # A little better in each round: what is kept costs at most the margin.
    found, _ = play([0.5], [0.505])
    assert found[:4] == (False, 12, 12, 0)
    # As good as the other one, whose rounds all end alike.
    found, _ = play([1.0], [1.0])
    assert found[:4] == (False, 12, 0, 0)


def test_ties_hide_no_difference_of_the_rounds_that_differ():
    # Three rounds of four are ties; in the others the rival has a quarter more: 6 % in the mean.
    found, _ = play([1.0, 1.0, 1.0, 0.75], [1.0])
    assert found == Turns(True, 48, 12, 0, pytest.approx(0.9375), 1.0)
    found, _ = play([1.0], [1.0, 1.0, 1.0, 0.75])
    assert found[:4] == (False, 12, 0, 3)


def test_a_rival_that_is_far_better_now_and_then_is_not_better():
    # Its mean is higher, by rounds in which the other one was disturbed.
    found, _ = play([0.9, 0.9, 0.9, 0.0], [0.8, 0.8, 0.8, 1.0], rounds=90)
    assert found.is_better is None
    assert found.rival > found.kept
    # Nor is one that wins most rounds by little and loses the others by much.
    found, _ = play([0.5], [0.55, 0.55, 0.55, 0.0], rounds=90)
    assert found[:3] == (None, 90, 68)
    assert found.rival < found.kept


def test_what_rounds_do_not_decide_is_measured_longer_then_not_decided():
    # Two wins of three: 8 of 12 and 16 of 24 leave too much doubt, 32 of 48 too; not 64 of 96.
    found, _ = play([0.5], [0.6, 0.6, 0.4])
    assert found[:4] == (True, 96, 64, 32)
    # There is time for 90.
    found, _ = play([0.5], [0.6, 0.6, 0.4], rounds=90)
    assert found[:4] == (None, 90, 60, 30)
    # Wins and losses as heads and tails, to the last look.
    found, _ = play([0.5], [0.7, 0.4])
    assert found[:4] == (None, LOOKS[-1], 192, 192)


def test_without_a_round_nothing_is_decided():
    found, order = play([0.5], [0.6], rounds=0)
    assert (found[:4], order) == ((None, 0, 0, 0), "")
    assert math.isnan(found.kept)
    assert math.isnan(found.rival)


def test_scores_that_are_no_numbers_decide_nothing():
    found, _ = play([0.5], [math.nan])
    assert found[:4] == (None, LOOKS[-1], 0, 0)


@pytest.mark.parametrize(
    ("count", "rounds", "rare"),
    [(1, 12, True), (2, 12, None), (10, 12, None), (11, 12, False), (0, 6, None)],
)
def test_signs(count, rounds, rare):
    assert is_rare(count, rounds) is rare
