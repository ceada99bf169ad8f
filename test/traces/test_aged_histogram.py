"""Aged percentiles: equal to the plain ones without age, and to weights worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.traces.aged_histogram import AgedHistogram
from jetson_dnn_rt.traces.histogram import bucket_of, bucket_top, histogram_of

TIMES = st.lists(st.integers(0, 2**41), min_size=1, max_size=60)


def fill(times_ns: list[int], half_life: float) -> AgedHistogram:
    made = AgedHistogram(half_life)
    for time_ns in times_ns:
        made.record(time_ns)
    return made


@settings(max_examples=50, deadline=None)
@given(TIMES, st.floats(0.01, 100.0))
def test_what_does_not_age_is_the_plain_histogram(times_ns: list[int], percent: float) -> None:
    (found,) = fill(times_ns, math.inf).percentiles_ns(percent)
    # The plain one knows its maximum exactly.
    assert min(found, max(times_ns)) == histogram_of(times_ns).percentile_ns(percent)


@settings(max_examples=50, deadline=None)
@given(TIMES, st.floats(0.5, 50.0), st.floats(0.1, 99.9))
def test_percentiles_are_those_of_the_weights(
    times_ns: list[int], half_life: float, percent: float
) -> None:
    weights: dict[int, float] = {}
    for age, time_ns in enumerate(reversed(times_ns)):
        bucket = bucket_of(time_ns)
        weights[bucket] = weights.get(bucket, 0.0) + 2.0 ** (-age / half_life)
    total = math.fsum(weights.values())
    (found,) = fill(times_ns, half_life).percentiles_ns(percent)
    below = math.fsum(w for b, w in weights.items() if bucket_top(b) < found)
    upto = math.fsum(w for b, w in weights.items() if bucket_top(b) <= found)
    share = percent / 100.0 * total
    assert below <= share * (1 + 1e-7) + 1e-12
    assert upto >= share * (1 - 1e-7)


def test_the_weight_is_that_of_a_geometric_series() -> None:
    aged = fill([5] * 5000, 100.0)
    decay = 2.0 ** (-1.0 / 100.0)
    assert aged.weight == pytest.approx(decay / (1.0 - decay))


def test_weights_are_brought_back_before_they_overflow() -> None:
    # 2^(1/2) a value: 10,000 values would be 2^5000.
    aged = fill([1000] * 10_000 + [2000], 2.0)
    low, high = aged.percentiles_ns(70.0, 72.0)
    # The newest weighs 1 of 1 + 1 / (sqrt(2) - 1): 29.3 %.
    assert (low, high) == (bucket_top(bucket_of(1000)), bucket_top(bucket_of(2000)))


def test_half_the_weight_is_in_the_last_half_life() -> None:
    aged = fill([10] * 20_000 + [20] * 512, 512.0)
    assert aged.percentiles_ns(49.0, 51.0) == (10, 20)


def test_what_is_long_ago_is_forgotten_even_by_the_maximum() -> None:
    assert fill([10**9] + [7] * 1000, 16.0).percentiles_ns(100.0) == (7,)


def test_merged_is_both_at_their_ages() -> None:
    old, new = fill([100] * 300, 10.0), fill([200] * 3, 10.0)
    old.merge(new)
    # 200 weighs 2.6, 100 weighs 13.9.
    assert old.percentiles_ns(84.0, 85.0) == (100, 200)
    assert old.weight == pytest.approx(13.93 + 2.62, abs=0.02)


def test_merging_with_another_half_life_is_refused() -> None:
    with pytest.raises(ValueError, match=r"half_life must be 10.0: 20.0"):
        AgedHistogram(10.0).merge(AgedHistogram(20.0))


def test_nothing_seen_gives_nothing() -> None:
    aged = AgedHistogram()
    assert aged.percentiles_ns(50.0, 99.0) == (0, 0)
    assert aged.weight == 0.0


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.nan])
def test_half_life_outside_its_range_is_refused(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_life must be"):
        AgedHistogram(half_life)


@pytest.mark.parametrize("percent", [0.0, 100.1, -1.0])
def test_percent_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percent must be in"):
        AgedHistogram().percentiles_ns(50.0, percent)
