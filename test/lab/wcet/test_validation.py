"""Second campaigns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from jetson_dnn_rt.lab.wcet.evt import judge
from jetson_dnn_rt.lab.wcet.statement import Campaign
from jetson_dnn_rt.lab.wcet.validation import validate


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    times = 1e7 + 1e6 * np.random.default_rng(0).standard_exponential(10_000)
    return judge(times.astype(np.int64), title="first", exceedances=(1e-2, 1e-4, 1e-9))


def test_another_campaign_of_the_same_work_holds(campaign: Campaign) -> None:
    second = 1e7 + 1e6 * np.random.default_rng(1).standard_exponential(5000)
    found = validate(campaign, second)
    assert [one.exceedance for one in found] == [1e-2, 1e-4]
    assert [one.claimed for one in found] == pytest.approx([50.0, 0.5])
    assert not any(one.refuted for one in found)


def test_counts_and_their_probability_by_hand(campaign: Campaign) -> None:
    upper = campaign.bounds[0].upper_ns
    times = [upper] * 290 + [upper + 1] * 10
    found = validate(campaign, times)[0]
    assert (found.counted, found.claimed) == (10, 3.0)
    assert found.p_value == pytest.approx(stats.binom.sf(9, 300, 0.01))
    assert found.refuted


def test_slower_work_refutes(campaign: Campaign) -> None:
    second = 1e7 + 1.5e6 * np.random.default_rng(1).standard_exponential(5000)
    assert validate(campaign, second)[0].refuted


def test_no_times(campaign: Campaign) -> None:
    with pytest.raises(ValueError, match="times_ns"):
        validate(campaign, [])
