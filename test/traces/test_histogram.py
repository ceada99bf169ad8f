# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every value is found again to a thousandth, merged parts equal the whole, aged values fade."""

import math

import pytest
from histograms import histogram_of
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.traces.histogram import (
    LARGEST_BITS,
    AgedHistogram,
    Histogram,
    bucket_of,
    bucket_top,
)

TIMES = st.lists(st.integers(0, 1 << LARGEST_BITS), max_size=60)


@given(st.integers(0, (1 << LARGEST_BITS) - 1))
def test_a_bucket_holds_its_values_to_a_thousandth(value):
    top = bucket_top(bucket_of(value))
    assert value <= top <= value * (1 + 1 / 1024)
    assert bucket_of(top) == bucket_of(value)
    assert bucket_of(top + 1) != bucket_of(value) or top + 1 == 1 << LARGEST_BITS


@given(st.integers(0, (1 << LARGEST_BITS) - 2))
def test_buckets_are_in_the_order_of_their_values(value):
    assert bucket_of(value + 1) - bucket_of(value) in (0, 1)


@pytest.mark.parametrize(
    ("value", "bucket"), [(-5, 0), (0, 0), (2047, 2047), (2048, 2048), (2049, 2048), (2050, 2049)]
)
def test_buckets_around_the_first_power_of_two(value, bucket):
    assert bucket_of(value) == bucket


def test_what_is_longer_than_the_last_bucket_counts_as_that():
    histogram = histogram_of([1 << 50])
    assert histogram.count == 1
    assert histogram.hwm_ns == 1 << 50
    assert histogram.count_above((1 << LARGEST_BITS) - 1) == 0


@given(TIMES, TIMES)
def test_merged_parts_equal_the_whole(first, second):
    for one, other in ((first, second), (second, first)):
        merged = histogram_of(one)
        merged.merge(histogram_of(other))
        assert merged == histogram_of(first + second)


@given(TIMES.filter(bool), st.sampled_from([1.0, 50.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_at_most_a_thousandth_above_the_order_statistic(times, percent):
    exact = sorted(times)[math.ceil(percent / 100.0 * len(times)) - 1]
    exact = min(exact, (1 << LARGEST_BITS) - 1)
    found = histogram_of(times).percentile_ns(percent)
    assert exact <= found <= exact * (1 + 1 / 1024)


@given(TIMES.filter(bool))
def test_best_mean_and_high_water_mark_are_exact(times):
    histogram = histogram_of(times)
    assert (histogram.best_ns, histogram.hwm_ns) == (min(times), max(times))
    assert histogram.mean_ns == sum(times) / len(times)


def test_an_empty_one_knows_nothing():
    empty, aged = Histogram(), AgedHistogram()
    assert math.isnan(empty.mean_ns)
    assert empty.percentile_ns(99.0) == 0
    assert (aged.percentiles_ns(50.0, 99.0), aged.weight) == ((0, 0), 0.0)


@pytest.mark.parametrize("percent", [0.0, -1.0, 100.1, math.nan])
def test_a_percent_out_of_range_is_refused(percent):
    with pytest.raises(ValueError, match="percent"):
        histogram_of([1]).percentile_ns(percent)
    with pytest.raises(ValueError, match="percent must be in"):
        AgedHistogram().percentiles_ns(50.0, percent)


# -- aged: percentiles are those of weights worked out by hand ------------------------------

SOME = st.lists(st.integers(0, 2**41), min_size=1, max_size=60)


def fill(times_ns, half_life):
    made = AgedHistogram(half_life)
    for time_ns in times_ns:
        made.record(time_ns)
    return made


@settings(max_examples=50)
@given(SOME, st.floats(0.01, 100.0))
def test_what_does_not_age_is_the_plain_histogram(times_ns, percent):
    (found,) = fill(times_ns, math.inf).percentiles_ns(percent)
    # The plain one knows its maximum exactly.
    assert min(found, max(times_ns)) == histogram_of(times_ns).percentile_ns(percent)


@settings(max_examples=50)
@given(SOME, st.floats(0.5, 50.0), st.floats(0.1, 99.9))
def test_percentiles_are_those_of_the_weights(times_ns, half_life, percent):
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


def test_the_weight_is_that_of_a_geometric_series():
    aged = fill([5] * 5000, 100.0)
    decay = 2.0 ** (-1.0 / 100.0)
    assert aged.weight == pytest.approx(decay / (1.0 - decay))


def test_weights_are_brought_back_before_they_overflow():
    # 2^(1/2) a value: 10,000 values would be 2^5000.
    aged = fill([1000] * 10_000 + [2000], 2.0)
    low, high = aged.percentiles_ns(70.0, 72.0)
    # The newest weighs 1 of 1 + 1 / (sqrt(2) - 1): 29.3 %.
    assert (low, high) == (bucket_top(bucket_of(1000)), bucket_top(bucket_of(2000)))


def test_half_the_weight_is_in_the_last_half_life():
    aged = fill([10] * 20_000 + [20] * 512, 512.0)
    assert aged.percentiles_ns(49.0, 51.0) == (10, 20)


def test_what_is_long_ago_is_forgotten_even_by_the_maximum():
    assert fill([10**9] + [7] * 1000, 16.0).percentiles_ns(100.0) == (7,)


def test_merged_is_both_at_their_ages():
    old, new = fill([100] * 300, 10.0), fill([200] * 3, 10.0)
    old.merge(new)
    # 200 weighs 2.6, 100 weighs 13.9.
    assert old.percentiles_ns(84.0, 85.0) == (100, 200)
    assert old.weight == pytest.approx(13.93 + 2.62, abs=0.02)


def test_merging_with_another_half_life_is_refused():
    with pytest.raises(ValueError, match=r"half_life must be 10.0: 20.0"):
        AgedHistogram(10.0).merge(AgedHistogram(20.0))


@pytest.mark.parametrize("half_life", [0.0, -1.0, math.nan])
def test_half_life_outside_its_range_is_refused(half_life):
    with pytest.raises(ValueError, match="half_life must be"):
        AgedHistogram(half_life)
