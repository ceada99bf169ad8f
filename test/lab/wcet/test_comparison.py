# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Before and after an update, and bounds against a second campaign."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from jetson_dnn_rt.lab.wcet.comparison import Change, compare, validate
from jetson_dnn_rt.lab.wcet.evt import judge


def draw(seed, count=10_000, scale=1.0):
    random = np.random.default_rng(seed)
    return np.round(scale * (1e7 + 1e6 * random.standard_exponential(count)))


def test_the_same_work_is_no_worse():
    comparison = compare(draw(0), draw(1), title="detector", tolerance=0.1)
    assert comparison.verdict is Change.NO_WORSE
    assert not comparison.worse
    assert comparison.test.passed
    assert [one.quantile for one in comparison.differences] == [0.5, 0.9, 0.99, 0.999]
    assert all(
        one.change_lower <= one.change <= one.change_upper for one in comparison.differences
    )
    assert comparison.statement.startswith("no worse: ")
    fields = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert fields["verdict"] == "no worse"
    assert fields["quantiles"][2]["before_ms"] == comparison.differences[2].before_ns / 1e6


def test_slower_work_is_worse():
    comparison = compare(draw(0), draw(1, scale=1.2))
    assert comparison.worse
    assert not comparison.test.passed
    for one in comparison.differences:
        assert one.change == pytest.approx(0.2, abs=0.05)
        assert one.change_lower > 0.1
    assert comparison.statement.startswith("worse: p")


def test_the_tail_decides_not_the_median():
    before, after = draw(0), draw(1)
    after[::50] *= 1.5
    slower = compare(before, after)
    verdicts = {one.quantile: one.verdict for one in slower.differences}
    assert (verdicts[0.5], verdicts[0.99]) == (Change.NO_WORSE, Change.WORSE)
    assert slower.worse
    after = draw(1)
    flat = compare(before, np.maximum(after, np.quantile(after, 0.8)))
    assert flat.differences[0].verdict is Change.WORSE
    assert not flat.worse


def test_tolerance_decides():
    before, after = draw(0), draw(1, scale=1.1)
    assert compare(before, after, tolerance=0.05).worse
    assert compare(before, after, tolerance=0.2).verdict is Change.NO_WORSE
    assert compare(before, draw(1, scale=0.8), tolerance=0.0).verdict is Change.NO_WORSE


def test_few_times_leave_it_open():
    comparison = compare(draw(0, 150), draw(1, 150, 1.05))
    assert comparison.verdict is Change.UNDECIDED
    assert [one.quantile for one in comparison.differences] == [0.5, 0.9]
    assert "measure more" in comparison.statement


def test_false_alarms_are_rare_without_tolerance():
    """5 % by the confidence; of 60, 3 +- 1.7."""
    worse = [
        compare(draw(2 * seed, 1000), draw(2 * seed + 1, 1000), tolerance=0.0).worse
        for seed in range(60)
    ]
    assert sum(worse) <= 9


def test_blocks_carry_what_frames_have_in_common():
    """Frames that resemble their neighbours say less: the bounds are wider."""
    random = np.random.default_rng(0)

    def width(repeat):
        before, after = (
            1e7 + 1e6 * np.repeat(random.standard_exponential(4000 // repeat), repeat)
            for _ in range(2)
        )
        one = compare(before, after, quantiles=(0.9,)).differences[0]
        return one.change_upper - one.change_lower

    assert width(8) > 1.7 * width(1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"before_ns": [1.0] * 99}, "before_ns"),
        ({"after_ns": [0.0] * 200}, "after_ns"),
        ({"quantiles": (1.0,)}, "quantiles"),
        ({"quantiles": (0.5,)}, "do not reach"),
        ({"confidence": 0.4}, "confidence"),
        ({"tolerance": -0.1}, "tolerance"),
    ],
)
def test_arguments_are_checked(options, match):
    arguments = {"before_ns": draw(0, 200), "after_ns": draw(1, 200), **options}
    with pytest.raises(ValueError, match=match):
        compare(**arguments)


@pytest.fixture(scope="module")
def campaign():
    times = 1e7 + 1e6 * np.random.default_rng(0).standard_exponential(10_000)
    return judge(times.astype(np.int64), title="first", exceedances=(1e-2, 1e-4, 1e-9))


def test_the_same_work_holds_and_slower_work_refutes(campaign):
    second = 1e7 + 1e6 * np.random.default_rng(1).standard_exponential(5000)
    found = validate(campaign, second)
    assert [one.exceedance for one in found] == [1e-2, 1e-4]
    assert [one.claimed for one in found] == pytest.approx([50.0, 0.5])
    assert not any(one.refuted for one in found)
    slower = 1e7 + 1.5e6 * np.random.default_rng(1).standard_exponential(5000)
    assert validate(campaign, slower)[0].refuted


def test_counts_and_their_probability_by_hand(campaign):
    upper = campaign.bounds[0].upper_ns
    times = [upper] * 290 + [upper + 1] * 10
    found = validate(campaign, times)[0]
    assert (found.counted, found.claimed) == (10, 3.0)
    assert found.p_value == pytest.approx(stats.binom.sf(9, 300, 0.01))
    assert found.refuted
    with pytest.raises(ValueError, match="times_ns"):
        validate(campaign, [])
