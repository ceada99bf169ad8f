# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Intervals of paired rounds: exact ranks, coverage on known laws, three verdicts."""

import math

import numpy as np
import pytest

from benchmarks.harness.intervals import (
    CONFIDENCE,
    LEAST_ROUNDS,
    Interval,
    compare,
    divide,
    find_rank,
    show_interval,
)
from benchmarks.harness.tables import UNDECIDED, judge_all, say_bars, say_verdict

INF = math.inf


@pytest.mark.parametrize(
    ("rounds", "rank"),
    [
        (1, 0),
        (5, 0),  # 2/32 = 6.3 % lie outside, whatever the rank
        (6, 1),  # 2/64 = 3.1 %
        (9, 2),  # 20/512 = 3.9 %
        (10, 2),  # 22/1024 = 2.1 %; the third: 112/1024 = 10.9 %
        (12, 3),  # 158/4096 = 3.9 %
        (20, 6),
        (100, 40),  # as in tables
    ],
)
def test_ranks_are_those_of_the_sign_test(rounds, rank):
    assert find_rank(rounds) == rank
    outside = 2 * sum(math.comb(rounds, k) for k in range(rank)) / 2**rounds
    next_outside = 2 * sum(math.comb(rounds, k) for k in range(rank + 1)) / 2**rounds
    assert outside <= 1 - CONFIDENCE < next_outside


def test_an_interval_is_of_order_statistics():
    values = [1.0, 3.0, 2.0, 10.0, 5.0, 4.0, 6.0, 7.0, 8.0, 9.0]
    assert Interval.of(values) == Interval(5.5, 2.0, 9.0, 10)
    assert Interval.of([2.0, 1.0]) == Interval(1.5, -INF, INF, 2)
    with_inf = Interval.of([INF, INF, *[1.0] * 8])
    assert with_inf == Interval(1.0, 1.0, INF, 10)
    assert with_inf.to_dict() == {"median": 1.0, "low": 1.0, "high": None, "rounds": 10}
    for wrong in ([], [1.0, math.nan]):
        with pytest.raises(ValueError, match="needs values"):
            Interval.of(wrong)


def test_it_agrees_with_scipys_own_interval_of_a_quantile():
    stats = pytest.importorskip("scipy.stats")
    if not hasattr(stats, "quantile_test"):
        pytest.skip("scipy before 1.10 has none")
    values = np.random.default_rng(5).lognormal(size=23)
    theirs = stats.quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)
    ours = Interval.of(values)
    assert (ours.low, ours.high) == (theirs.low, theirs.high)


@pytest.mark.parametrize("law", ["normal", "lognormal", "pareto", "two values"])
def test_the_interval_covers_the_median_of_any_law(law):
    """97.9 % of ten rounds, exactly, where values are continuous; at least that with ties."""
    tries, rounds = 4000, 10
    rng = np.random.default_rng(20260401)
    if law == "two values":
        draws, median = rng.choice([1.0, 2.0], p=[0.6, 0.4], size=(tries, rounds)), 1.0
    elif law == "pareto":
        draws, median = rng.pareto(0.5, (tries, rounds)), 3.0  # without a mean
    elif law == "lognormal":
        draws, median = rng.lognormal(0.0, 2.0, (tries, rounds)), 1.0
    else:
        draws, median = rng.normal(7.0, 3.0, (tries, rounds)), 7.0
    found = [Interval.of(row) for row in draws.tolist()]
    covered = sum(one.low <= median <= one.high for one in found) / tries
    exact = 1 - 22 / 1024
    deviation = math.sqrt(exact * (1 - exact) / tries)
    if law == "two values":
        assert covered >= exact - 4 * deviation
    else:
        assert abs(covered - exact) <= 4 * deviation


def test_equal_sides_are_seldom_told_apart():
    """Of sides that are the same, one is called better or worse in 2.1 % of the comparisons."""
    rng = np.random.default_rng(20260402)
    one, other = rng.lognormal(0.0, 0.5, (2, 4000, LEAST_ROUNDS))
    verdicts = [
        compare(a, b).judge(least=1.0) for a, b in zip(one.tolist(), other.tolist(), strict=True)
    ]
    assert 0.008 < verdicts.count(False) / len(verdicts) < 0.014
    assert 0.008 < verdicts.count(True) / len(verdicts) < 0.014


def test_what_the_machine_does_for_a_round_is_in_both_sides():
    """Rounds that differ fivefold decide on 2 %, since each is held against its own."""
    rng = np.random.default_rng(20260403)
    machine = rng.uniform(1.0, 5.0, 12)
    ours, others = 1.02 * machine * rng.normal(1.0, 0.004, 12), machine
    assert compare(ours.tolist(), others.tolist()).judge(least=1.0) is True
    assert compare(ours.tolist(), machine[::-1].tolist()).judge(least=1.0) == UNDECIDED


@pytest.mark.parametrize(
    ("low", "high", "least", "most"),
    [
        (1.0, 1.5, True, UNDECIDED),  # on the bar is good enough, and not beyond it
        (1.01, 1.5, True, False),
        (0.9, 1.1, UNDECIDED, UNDECIDED),
        (0.8, 0.99, False, True),
        (1.0, 1.0, True, True),
        (0.9, 1.0, UNDECIDED, True),
        (1.0, INF, True, UNDECIDED),
        (-INF, INF, UNDECIDED, UNDECIDED),
    ],
)
def test_three_verdicts(low, high, least, most):
    found = Interval(low, low, high, LEAST_ROUNDS)
    assert found.judge(least=1.0) == least
    assert found.judge(most=1.0) == most


def test_few_rounds_decide_nothing():
    assert Interval.of([2.0] * LEAST_ROUNDS).judge(least=1.0) is True
    assert Interval.of([2.0] * (LEAST_ROUNDS - 1)).judge(least=1.0) == UNDECIDED
    assert Interval.of([0.5]).judge(least=1.0) == UNDECIDED


def test_ratios_of_what_did_not_come():
    assert divide(3.0, 4.0) == 0.75
    assert (divide(0.0, 0.0), divide(INF, INF)) == (1.0, 1.0)  # no result, no age
    assert (divide(2.0, 0.0), divide(0.0, 2.0)) == (INF, 0.0)
    assert (divide(INF, 2.0), divide(2.0, INF)) == (INF, 0.0)


def test_a_bar_that_was_missed_outweighs_one_that_is_not_decided():
    assert judge_all([True, UNDECIDED, None]) == UNDECIDED
    assert judge_all([True, UNDECIDED, False]) is False
    assert judge_all([True, None, True]) is True
    assert judge_all([None]) is None
    assert [say_verdict(one) for one in (True, False, UNDECIDED, None)] == [
        "passed", "NOT passed", "not decided", "not judged",
    ]  # fmt: skip
    assert say_bars("x >= 1", UNDECIDED) == "bars: x >= 1: not decided"


def test_an_interval_is_shown():
    assert show_interval(Interval(1.0, 0.5, INF, 12).to_dict(), ".1f") == "1.0 (0.5 to -)"
    assert show_interval(None) is None
