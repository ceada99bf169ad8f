# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Verdicts on campaigns whose law is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evt.laws import DEVELOPED_WITH, draw_times
from jetson_dnn_rt.lab.wcet.conditions import CONDITIONS
from jetson_dnn_rt.lab.wcet.evt import LEAST_COUNT, fit_block_maxima, judge
from jetson_dnn_rt.lab.wcet.statement import Support

BY_NAME = {law.name: law for law in DEVELOPED_WITH}


def draw(name, seed=0, count=10_000):
    return draw_times(BY_NAME[name], np.random.default_rng(seed), count)


def judge_law(name, seed=0, count=10_000, **options):
    return judge(draw(name, seed, count), title=name, **options)


def failed(campaign):
    return {test.name for test in campaign.tests if not test.passed}


def test_independent_times_are_bounded():
    campaign = judge_law("GPD, xi 0", platform="some board")
    assert campaign.support is Support.EXTRAPOLATED
    assert [bound.exceedance for bound in campaign.bounds] == [1e-3, 1e-4, 1e-6]
    supports = [bound.support for bound in campaign.bounds]
    assert supports == [Support.SUPPORTED, Support.EXTRAPOLATED, Support.UNPROVEN]
    assert campaign.bounds[0].method == "order statistics"
    law = BY_NAME["GPD, xi 0"]
    assert law.quantile is not None
    for bound in campaign.bounds[:2]:
        truth = law.quantile(bound.exceedance)
        assert truth <= bound.upper_ns <= 2.0 * truth
        assert bound.estimate_ns < bound.upper_ns
    assert campaign.smallest_supported == pytest.approx(3e-4, rel=0.01)
    assert {test.name for test in campaign.tests} == {"Count", "Complete", *CONDITIONS}
    assert "95% upper confidence, 10,000 frames" in campaign.statement
    assert campaign.statement.endswith("extrapolated, some board")


@pytest.mark.parametrize("name", [law.name for law in DEVELOPED_WITH if law.kind == "iid"])
def test_bounds_of_known_laws_cover_and_are_tight(name):
    """`benchmarks evt` has the figures over 200 seeds; here one of four may miss."""
    campaigns = [judge_law(name, seed, exceedances=(1e-4,)) for seed in range(4)]
    uppers_ns = [c.bounds[0].upper_ns for c in campaigns if c.support is not Support.UNPROVEN]
    ratios = np.array(uppers_ns) / BY_NAME[name].quantile(1e-4)
    assert len(ratios) >= 3
    assert (ratios >= 1.0).sum() >= len(ratios) - 1
    assert ratios.min() >= 0.9
    assert np.median(ratios) <= 1.45


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("slow mode apart", "Gap"),
        ("slow mode at the edge", "Threshold stability"),
        ("slow mode in the tail", "Threshold stability"),
        ("AR(1), 0.2", "Ljung-Box"),
        ("AR(1), 0.6", "Clusters"),
        ("moving maxima", "Clusters"),
        ("volatile", "Ljung-Box, exceedances"),
        ("throttling", "Ljung-Box"),
        ("periodic", "Ljung-Box, exceedances"),
        ("warming", "KPSS"),
    ],
)
def test_what_is_no_campaign_is_flagged(name, test):
    campaign = judge_law(name)
    assert campaign.support is Support.UNPROVEN
    assert test in failed(campaign)
    assert {bound.support for bound in campaign.bounds} == {Support.UNPROVEN}
    figures = [one for bound in campaign.bounds for one in (bound.estimate_ns, bound.upper_ns)]
    assert np.isnan([*figures, campaign.smallest_supported]).all()
    assert campaign.statement.startswith("unproven: ")
    assert f"high-water mark {campaign.hwm_ns / 1e6:.3f} ms" in campaign.statement
    assert CONDITIONS[test].advice in campaign.advice


def test_order_matters_to_the_verdict_only():
    times = draw("GPD, xi 0")
    ordered, drawn = (judge(one, title="") for one in (np.sort(times), times))
    assert ordered.support is Support.UNPROVEN
    assert (ordered.longest_burst, drawn.longest_burst <= 3) == (100, True)
    assert (ordered.p50_ns, ordered.hwm_ns) == (drawn.p50_ns, drawn.hwm_ns)


def test_too_few_frames_or_different_times_or_ended_frames():
    campaign = judge_law("GPD, xi 0", count=LEAST_COUNT - 1)
    assert failed(campaign) == {"Count"}
    assert campaign.support is Support.UNPROVEN
    assert campaign.rule_of_three == pytest.approx(0.003, rel=0.01)
    assert "999 frames are too few: a bound takes 1,000 at least" in campaign.statement
    assert campaign.advice == (
        "measure 1,000 frames for a bound, 10,000 for one that also knows a kind of slow frame as"
        " rare as 1 in 200",
    )
    constant = judge([5_000_000] * 2000, title="constant times have no tail")
    assert failed(constant) == {"Count"}
    assert constant.best_ns == constant.hwm_ns == 5e6
    assert constant.longest_burst == 0
    assert constant.advice[0].startswith("measure with a finer timer: it takes 50 different")
    ended = judge_law("GPD, xi 0", cut_off=3)
    assert failed(ended) == {"Complete"}
    assert "3 slow frames were ended" in ended.statement
    assert "sequential" in ended.advice[0]
    assert math.isnan(ended.bounds[0].upper_ns)


def test_a_coarse_timer_is_no_fault():
    """Times in steps of 50 us, of which every one occurs a hundred times."""
    times = np.round(draw("lognormal, sigma 0.25", 3) / 50_000).astype(np.int64) * 50_000
    campaign = judge(times, title="coarse")
    assert campaign.support is Support.EXTRAPOLATED
    fine = judge_law("lognormal, sigma 0.25", 3)
    for coarse_bound, bound in zip(campaign.bounds, fine.bounds, strict=True):
        assert coarse_bound.upper_ns == pytest.approx(bound.upper_ns, rel=0.05, nan_ok=True)


def test_bounds_end_where_their_coverage_was_not_shown():
    campaign = judge_law("GPD, xi 0", exceedances=(0.01, 1e-4, 9e-5, 9.3e-15))
    supports = [bound.support for bound in campaign.bounds]
    assert supports[:2] == [Support.SUPPORTED, Support.EXTRAPOLATED]
    assert supports[2:] == [Support.UNPROVEN, Support.UNPROVEN]
    assert campaign.support is Support.EXTRAPOLATED
    assert any("9.3e-15 is out of reach" in line for line in campaign.advice)
    out_of_reach = judge_law("GPD, xi 0", exceedances=(1e-12,))
    assert out_of_reach.support is Support.UNPROVEN
    assert "do not reach to 1e-12" in out_of_reach.statement


def test_what_the_sample_reaches_is_supported():
    campaign, surer = (
        judge_law("GPD, xi 0", exceedances=(0.05, 0.01), confidence=one) for one in (0.95, 0.99)
    )
    assert campaign.support is Support.SUPPORTED
    assert campaign.statement.startswith(f"{campaign.bounds[1].upper_ns / 1e6:.3f} ms at 0.01")
    assert surer.bounds[1].upper_ns > campaign.bounds[1].upper_ns


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), exceedances=st.sets(st.floats(1e-6, 0.4), min_size=2))
def test_rarer_is_never_shorter(seed, exceedances):
    campaign = judge_law("GEV, xi 0", seed, 2000, exceedances=tuple(exceedances))
    given_ = [bound.upper_ns for bound in campaign.bounds if not math.isnan(bound.upper_ns)]
    assert given_ == sorted(given_)


def test_the_same_answer_again_and_in_another_unit():
    times = draw("lognormal, sigma 0.5", 1)
    assert judge(times, title="a") == judge(times, title="a")
    microseconds = judge(times / 1e3, title="a")
    for one, other in zip(judge(times, title="a").bounds, microseconds.bounds, strict=True):
        assert one.upper_ns / 1e3 == pytest.approx(other.upper_ns, rel=0.01, nan_ok=True)


def test_maxima_are_those_of_whole_blocks():
    values = np.arange(1019.0) + np.random.default_rng(0).uniform(0.0, 0.1, 1019)
    law, maxima = fit_block_maxima(values)
    assert (law.block, law.count) == (20, 50)
    assert maxima.tolist() == values[19:1000:20].tolist()


@pytest.mark.parametrize(
    ("times", "options", "match"),
    [
        ([], {}, "times_ns"),
        ([[1.0, 2.0]], {}, "times_ns"),
        ([1.0, math.nan], {}, "times_ns"),
        ([1.0], {"exceedances": ()}, "exceedances"),
        ([1.0], {"exceedances": (0.0,)}, "exceedances"),
        ([1.0], {"exceedances": (0.6,)}, "exceedances"),
        ([1.0], {"confidence": 1.0}, "confidence"),
    ],
)
def test_arguments_are_checked(times, options, match):
    with pytest.raises(ValueError, match=match):
        judge(times, title="", **options)
