# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The drift alarm: charts against run lengths by hand, and what must not be missed."""

from __future__ import annotations

import math
import random

import pytest

from jetson_dnn_rt.traces.drift import (
    FRAMES_PER_FALSE_ALARM,
    LEARNED_TIMES,
    RATIO,
    Chart,
    DriftMonitor,
    TimeProfile,
    bound_exceedance,
    design_chart,
    run_length,
)

PROFILE = TimeProfile(p99_ns=1000, count=1000)


def test_bounds_of_the_exceedance_are_clopper_and_pearsons():
    # 95 % quantiles of the beta distributions (2, 99) and (11, 990).
    assert bound_exceedance(100) == pytest.approx(0.04656, abs=1e-5)
    assert bound_exceedance(1000) == pytest.approx(0.01690, abs=1e-5)
    # The more is known, the nearer to one in a hundred.
    assert 0.01 < bound_exceedance(100_000) < 0.0106


def test_bound_of_the_exceedance_covers_as_promised():
    generator = random.Random(3)
    trials, count = 2000, 200
    bound, held = bound_exceedance(count), 0
    for _ in range(trials):
        # Uniform on (0, 1): the exceedance of a value is one minus the value.
        p99 = sorted(generator.random() for _ in range(count))[math.ceil(0.99 * count) - 1]
        held += 1.0 - p99 <= bound
    # 95 % promised, the binomial deviation of 2000 trials is 0.5 %.
    assert 0.935 <= held / trials <= 0.965


def test_run_lengths_are_those_of_small_chains_by_hand():
    # Limit 1: the first exceedance alarms, the geometric distribution's mean.
    assert run_length(Chart(1, 1), 0.2) == pytest.approx(5.0)
    # Limit 2, up 1: two in a row from 0, gambler's run of two: (1 + p) / p^2.
    assert run_length(Chart(1, 2), 0.5) == pytest.approx(6.0)


def test_run_length_is_what_happens():
    generator, chart, share = random.Random(4), Chart(8, 20), 0.1
    lengths = []
    for _ in range(2000):
        total = length = 0
        while total < chart.limit:
            total = total + chart.up if generator.random() < share else max(0, total - 1)
            length += 1
        lengths.append(length)
    mean = sum(lengths) / len(lengths)
    assert mean == pytest.approx(run_length(chart, share), rel=0.1)


@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_a_false_alarm_is_rarer_than_a_million_frames(count):
    exceedance = bound_exceedance(count)
    chart = design_chart(exceedance)
    assert run_length(chart, exceedance) >= FRAMES_PER_FALSE_ALARM
    # And no rarer than it has to be.
    assert run_length(Chart(chart.up, chart.limit - 1), exceedance) < FRAMES_PER_FALSE_ALARM
    # Three times as many exceedances are found within a minute at 30 Hz.
    assert run_length(chart, RATIO * exceedance) < 1800


def feed(monitor, share, frames, seed=1):
    """Frames until the alarm; None = none."""
    generator = random.Random(seed)
    for frame in range(frames):
        monitor.observe(1001 if generator.random() < share else 1000)
        if monitor.alarm:
            return frame + 1
    return None


def test_times_that_match_raise_no_alarm():
    monitor = DriftMonitor(PROFILE)
    assert feed(monitor, 0.01, 50_000) is None
    assert monitor.judged == 50_000
    assert 0.0 < monitor.recent < 0.03
    assert monitor.level < 1.0


def test_slower_times_raise_it_soon():
    # A throttled board: nearly everything is above the p99.
    assert feed(DriftMonitor(PROFILE), 0.95, 100) == 9
    found = feed(DriftMonitor(PROFILE), 0.1, 5000)
    assert found is not None
    assert found < 500


def test_the_alarm_ends_when_times_match_again():
    monitor = DriftMonitor(PROFILE)
    assert math.isnan(monitor.recent)
    feed(monitor, 1.0, 100)
    assert monitor.alarm
    assert monitor.recent == pytest.approx(1.0)
    for _ in range(1000):
        monitor.observe(1001)
    limit = design_chart(PROFILE.exceedance).limit
    assert monitor.level == 2.0
    for _ in range(2 * limit - 1):
        monitor.observe(1000)
    assert monitor.alarm
    monitor.observe(1000)
    assert (monitor.alarm, monitor.alarms, monitor.level) == (False, 1, 0.0)


def test_without_a_profile_the_first_frames_are_it():
    monitor = DriftMonitor()
    generator = random.Random(5)
    for _ in range(LEARNED_TIMES):
        assert math.isnan(monitor.level)
        monitor.observe(generator.randrange(10_000))
    assert monitor.profile is not None
    assert monitor.profile.p99_ns == pytest.approx(9900, abs=100)
    assert monitor.judged == 0
    for _ in range(3000):
        monitor.observe(generator.randrange(10_000))
    assert not monitor.alarm
    for _ in range(10):
        monitor.observe(12_000)
    assert monitor.alarm


def test_too_small_a_profile_is_refused():
    with pytest.raises(ValueError, match="times_ns must hold at least 100 times: 99"):
        TimeProfile.of([1] * 99)
    assert TimeProfile.of(list(range(100, 0, -1))) == TimeProfile(99, 100)


@pytest.mark.parametrize("exceedance", [0.0, 0.34, 1.0])
def test_exceedances_that_cannot_be_tripled_are_refused(exceedance):
    with pytest.raises(ValueError, match="exceedance must be in"):
        design_chart(exceedance)
