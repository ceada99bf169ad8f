# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results of simulated runs, and their confidence."""

from __future__ import annotations

import math

import pytest
from worlds import make_task, make_world, run

from jetson_dnn_rt.lab.simulate.tally import Tally, miss_ratio_ci95, student, summarize, wilson


def tally_of(*releases_ms, name="a", deadline_ms=12.0):
    tally = Tally()
    simulation, frames = run(
        make_world(make_task(name, releases_ms, (5.0, 5.0), deadline_ms=deadline_ms))
    )
    for frame in frames:
        tally.add(frame)
    tally.energy_j = simulation.energy_j
    tally.wall_s = 0.5
    tally.decision_ns.extend([1000, 3000])
    return tally


def test_everything_that_is_not_met_is_missed():
    """Of four frames, the second and the third come while the first runs."""
    tally = tally_of(0.0, 1.0, 2.0, 20.0)
    assert (tally.released, tally.met) == (4, 2)
    result = summarize([tally])
    assert result["miss_ratio"] == 0.5
    assert result["max_burst"] == 2
    assert result["accuracy"] == 1.0
    assert result["response_ms"] == {"p50": 10.0, "p99": 10.0, "max": 10.0}
    assert result["energy_per_met_frame_j"] == pytest.approx(tally.energy_j / 2)
    assert result["decision_us"] == {"p50": 1.0, "p99": 3.0}
    assert result["frames_per_s"] == 8.0


def test_a_frame_without_a_result_never_ends():
    tally = tally_of(0.0, 1.0, 2.0, 20.0)
    assert [tally.response_ms(share) for share in (0.25, 0.5, 0.51, 0.99)] == [
        10.0,
        10.0,
        math.inf,
        math.inf,
    ]
    assert Tally().response_ms(0.5) == math.inf


def test_nothing_met():
    result = summarize([tally_of(0.0, 20.0, deadline_ms=8.0)])
    assert result["miss_ratio"] == 1.0
    assert result["accuracy"] is None
    assert result["energy_per_met_frame_j"] is None


def test_runs_of_one_seed_are_put_together():
    one, other = tally_of(0.0, 1.0, 2.0, 20.0), tally_of(0.0, 20.0, name="b")
    energy_j = one.energy_j + other.energy_j
    one.merge(other)
    assert (one.released, one.met, one.energy_j) == (6, 4, energy_j)
    with pytest.raises(ValueError, match="counted already"):
        one.merge(tally_of(0.0))
    one.merge(tally_of(0.0), prefix="second/")
    assert set(one.tasks) == {"a", "b", "second/a"}


def test_wilson_as_published():
    """Wilson's interval of 8 in 10 is 0.4902 to 0.9433 (Brown, Cai & DasGupta 2001)."""
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert (wilson(0, 50)[0], wilson(50, 50)[1]) == (0.0, 1.0)


def test_the_interval_over_seeds_is_students():
    """Ratios 0.5 and 0.0: mean 0.25, standard error 0.25, t(0.975, 1) = 12.7062; then cut."""
    missed, met = tally_of(0.0, 1.0, 2.0, 20.0), tally_of(0.0, 20.0)
    low, high = miss_ratio_ci95([missed, met]) or (None, None)
    assert (low, high) == (0.0, 1.0)
    low, high = miss_ratio_ci95([missed, missed, missed, met]) or (None, None)
    half = 3.1824 * 0.125
    assert low == pytest.approx(max(0.0, 0.375 - half), abs=1e-6)
    assert high == pytest.approx(0.375 + half, abs=1e-6)
    assert miss_ratio_ci95([met, met]) == wilson(0, 4)
    assert miss_ratio_ci95([missed]) == wilson(2, 4)


@pytest.mark.parametrize("degrees", [1, 2, 5, 9, 19, 30, 31, 60, 1000])
def test_students_t_is_that_of_scipy(degrees):
    expected = pytest.importorskip("scipy.stats").t.ppf(0.975, degrees)
    within = {"abs": 6e-5} if degrees <= 30 else {"rel": 2e-3}
    assert student(degrees) == pytest.approx(expected, **within)
