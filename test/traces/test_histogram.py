"""Every value is found again to a thousandth, and merged parts equal the whole."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.traces.histogram import (
    LARGEST_BITS,
    Histogram,
    bucket_of,
    bucket_top,
    histogram_of,
    merge_histograms,
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
    whole = histogram_of(first + second)
    assert merge_histograms([histogram_of(first), histogram_of(second)]) == whole
    assert merge_histograms([histogram_of(second), histogram_of(first)]) == whole


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
    empty = Histogram()
    assert math.isnan(empty.mean_ns)
    assert empty.percentile_ns(99.0) == 0
    assert merge_histograms([]) == empty


@given(TIMES)
def test_json_gives_it_back(times):
    histogram = histogram_of(times)
    assert Histogram.from_dict(json.loads(json.dumps(histogram.to_dict()))) == histogram


@pytest.mark.parametrize(
    "damage",
    [
        {"count": 3},
        {"buckets": {"-1": 1}},
        {"buckets": {"999999": 1}},
        {"buckets": {"7": -1}},
        {"buckets": []},
        {"total_ns": "many"},
    ],
)
def test_a_damaged_one_is_refused(damage):
    fields = histogram_of([5, 7]).to_dict() | damage
    with pytest.raises(ValueError, match="not a histogram"):
        Histogram.from_dict(fields)


@pytest.mark.parametrize("percent", [0.0, -1.0, 100.1, math.nan])
def test_a_percent_out_of_range_is_refused(percent):
    with pytest.raises(ValueError, match="percent"):
        histogram_of([1]).percentile_ns(percent)
