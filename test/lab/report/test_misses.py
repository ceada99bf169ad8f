from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.lab.report.misses import expect_bursts, find_bursts


def find(text: str, period_ns: int = 10) -> object:
    missed = np.array([letter == "x" for letter in text])
    return find_bursts(missed, np.arange(len(text)) * period_ns, period_ns)


def test_lengths_and_the_longest_gap() -> None:
    bursts = find("..x.xxx..x")
    assert bursts.lengths.tolist() == [1, 3, 1]
    assert bursts.starts.tolist() == [2, 4, 9]
    assert (bursts.longest, bursts.longest_ns, bursts.longest_start_ns) == (3, 30, 40)
    # Four missed frames have a successor, of which two were missed.
    assert bursts.after_miss == 0.5


def test_a_gap_in_the_frames_counts_as_time_without_a_result() -> None:
    missed = np.array([True, False, True, True, False])
    bursts = find_bursts(missed, np.array([0, 90, 100, 110, 120]), 10)
    assert bursts.longest == 2
    assert (bursts.longest_ns, bursts.longest_start_ns) == (90, 0)


def test_no_miss() -> None:
    bursts = find("....")
    assert (bursts.longest, bursts.longest_ns, len(bursts.lengths)) == (0, 0, 0)
    assert math.isnan(bursts.after_miss)


def test_misses_at_the_end_last_a_period_more() -> None:
    assert find(".xx").longest_ns == 20


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_every_miss_is_in_one_burst(values: list[bool]) -> None:
    missed = np.array(values)
    bursts = find_bursts(missed, np.arange(len(values)) * 7, 7)
    assert bursts.lengths.sum() == missed.sum()
    covered = np.zeros(len(values), bool)
    for start, length in zip(bursts.starts, bursts.lengths, strict=True):
        assert not covered[start : start + length].any()
        covered[start : start + length] = True
    assert np.array_equal(covered, missed)


@pytest.mark.parametrize("ratio", [0.05, 0.3])
def test_expected_bursts_are_those_of_independent_misses(ratio: float) -> None:
    count = 200_000
    missed = np.random.default_rng(0).random(count) < ratio
    lengths = find_bursts(missed, np.arange(count), 1).lengths
    expected = expect_bursts(np.arange(1, 3), count, ratio)
    found = np.bincount(lengths, minlength=4)[1:3]
    assert found == pytest.approx(expected, rel=0.15)
