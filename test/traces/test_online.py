# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Statistics of execution times: figures by hand, and the coverage of the bound."""

from __future__ import annotations

import math
import random

import pytest

from jetson_dnn_rt.traces.online import LARGEST, OnlineStatistics, count_exceeding


@pytest.mark.parametrize(
    ("count", "exceedance", "above"),
    [
        # (1 - p)^n <= 0.05: n >= 2995 for p = 1e-3, 59 for p = 0.05 (Wilks' number).
        *((2994, 1e-3, -1), (2995, 1e-3, 0), (58, 0.05, -1), (59, 0.05, 0)),
        # Wilks (1941): 93 samples for the second largest at 95 % / 95 %.
        *((92, 0.05, 0), (93, 0.05, 1)),
        *((0, 0.5, -1), (10_000_000, 1e-3, LARGEST - 1)),
    ],
)
def test_samples_that_a_bound_needs(count, exceedance, above):
    assert count_exceeding(count, exceedance) == above


def test_no_sample_gives_no_bound():
    assert math.isnan(OnlineStatistics().pwcet_ns())
    assert math.isnan(OnlineStatistics().mean_ns)
    assert OnlineStatistics().percentile_ns(99.0) == 0


def test_figures_of_a_small_sample():
    statistics = OnlineStatistics(exceedance=0.5)
    for time_ns in (30, 10, 20, 50, 40):
        statistics.observe(time_ns)
    assert statistics.count == 5
    assert statistics.best_ns == 10
    assert statistics.hwm_ns == 50
    assert statistics.mean_ns == 30.0
    assert statistics.percentile_ns(50.0) == 30
    assert statistics.percentile_ns(99.0) == 50
    # 0.5^5 = 0.03 <= 0.05: the largest is a bound of the median, the second is not (0.19).
    assert statistics.pwcet_ns() == 50.0


def test_percentiles_forget_and_the_high_water_mark_does_not():
    statistics = OnlineStatistics(half_life=100.0)
    for _ in range(10):
        statistics.observe(1_000_000)
    assert statistics.percentiles_ns(50.0, 99.9) == (1_000_000, 1_000_000)
    for _ in range(2000):
        statistics.observe(7)
    assert statistics.percentiles_ns(50.0, 99.9) == (7, 7)
    assert (statistics.hwm_ns, statistics.count) == (1_000_000, 2010)
    assert statistics.histogram.percentile_ns(99.9) == 1_000_000


def test_parts_of_a_stream_merge():
    generator = random.Random(2)
    times_ns = [int(generator.expovariate(1.0) * 1e6) for _ in range(3000)]
    whole, first, second = (OnlineStatistics(1e-2, math.inf) for _ in range(3))
    for index, time_ns in enumerate(times_ns):
        whole.observe(time_ns)
        (first if index < 1000 else second).observe(time_ns)
    first.merge(second)
    assert first.histogram == whole.histogram
    percents = (1.0, 50.0, 99.0, 99.9, 100.0)
    assert first.percentiles_ns(*percents) == whole.percentiles_ns(*percents)
    assert first.pwcet_ns() == whole.pwcet_ns()
    with pytest.raises(ValueError, match=r"exceedance must be 0.01: 0.001"):
        first.merge(OnlineStatistics(1e-3, math.inf))


def test_memory_does_not_grow():
    statistics = OnlineStatistics()
    size = statistics.aged.__sizeof__(), len(statistics.histogram._counts)
    for time_ns in range(0, 10_000_000, 1_000):
        statistics.observe(time_ns)
    assert size == (statistics.aged.__sizeof__(), len(statistics.histogram._counts))
    assert len(statistics._largest) == LARGEST


def test_bound_holds_as_often_as_promised():
    generator = random.Random(1)
    exceedance, runs = 0.05, 400
    quantile = -math.log(exceedance) * 1e6  # of the exponential distribution
    held = 0
    for _ in range(runs):
        statistics = OnlineStatistics(exceedance)
        for _ in range(300):
            statistics.observe(int(generator.expovariate(1.0) * 1e6))
        held += statistics.pwcet_ns() >= quantile
    # 95 % promised; the binomial deviation of 400 runs is 1.1 %.
    assert held / runs >= 0.93


@pytest.mark.parametrize("exceedance", [0.0, 1.0, -0.1])
def test_exceedance_outside_its_range_is_refused(exceedance):
    with pytest.raises(ValueError, match="exceedance must be in"):
        OnlineStatistics(exceedance)


@pytest.mark.parametrize("percent", [0.0, 100.1])
def test_percent_outside_its_range_is_refused(percent):
    with pytest.raises(ValueError, match="percent must be in"):
        OnlineStatistics().percentile_ns(percent)
