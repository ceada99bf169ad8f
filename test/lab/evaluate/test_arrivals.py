# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Arrival times of recorded frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.streams import LONGEST_PAUSE_NS, find_period_ns, plan_arrivals

MS = 1_000_000


def test_as_recorded_faster_or_at_a_rate():
    for changes, recorded_ms, times_ms, period_ms in (
        ({}, [100, 140, 179, 260], [0, 40, 79, 160], 40),
        ({"speed": 2.0}, [0, 40, 80], [0, 20, 40], 20),
        ({"rate_hz": 50.0}, [5, 5, 3, 10**9], [0, 20, 40, 60], 20),
    ):
        plan = plan_arrivals([time_ms * MS for time_ms in recorded_ms], **changes)
        assert plan.times_ns.tolist() == [time_ms * MS for time_ms in times_ms]
        assert (plan.period_ns, plan.jumps) == (period_ms * MS, 0)


def test_steps_of_the_clock_are_no_pauses():
    year_ns = 365 * 86400 * 1000 * MS
    recorded = [0, 40 * MS, year_ns, year_ns + 40 * MS, 10 * MS, 50 * MS]
    plan = plan_arrivals(recorded)
    assert plan.times_ns.tolist() == [40 * MS * place for place in range(6)]
    assert plan.jumps == 2
    # A pause of the camera is kept.
    plan = plan_arrivals([0, 40 * MS, 40 * MS + LONGEST_PAUSE_NS])
    assert plan.times_ns.tolist() == [0, 40 * MS, 40 * MS + LONGEST_PAUSE_NS]


def test_where_the_recording_says_no_period():
    assert find_period_ns([7]) == 0
    assert find_period_ns([7, 7, 7]) == 0
    assert plan_arrivals([7], period_ns=33 * MS).times_ns.tolist() == [0]
    with pytest.raises(ConfigurationError, match="--rate"):
        plan_arrivals([7])


@pytest.mark.parametrize("changes", [{"speed": 0.0}, {"speed": float("nan")}, {"rate_hz": -1.0}])
def test_out_of_range(changes):
    with pytest.raises(ConfigurationError, match="speed must be > 0"):
        plan_arrivals([0, MS], **changes)


@given(
    st.lists(st.integers(0, 2 * LONGEST_PAUSE_NS), min_size=2, max_size=40), st.floats(0.1, 10.0)
)
def test_times_never_fall_and_no_frame_is_lost(recorded, speed):
    plan = plan_arrivals(recorded, speed=speed, period_ns=MS)
    assert len(plan.times_ns) == len(recorded)
    assert plan.times_ns[0] == 0
    assert (np.diff(plan.times_ns) >= 0).all()
    assert plan.period_ns > 0
