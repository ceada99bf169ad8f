# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`evt` and its laws: what they do; the figures are for the benchmark itself."""

import benches
import numpy as np
import pytest

from benchmarks import evt
from benchmarks.evt import IID, LAWS, SLOW_SHARE, draw_times


@pytest.mark.parametrize("law", [law for law in LAWS if law.kind == IID], ids=lambda law: law.name)
def test_quantiles_are_those_of_the_draws(law):
    times = draw_times(law, np.random.default_rng(0), 200_000)
    for exceedance in (0.5, 0.01, 1e-3):
        above = float((times > law.quantile(exceedance)).mean())
        spread = np.sqrt(exceedance / 200_000)
        assert above == pytest.approx(exceedance, abs=4.0 * spread)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_times_are_whole_positive_and_repeatable(law):
    first, again = (draw_times(law, np.random.default_rng(3), 2000) for _ in range(2))
    assert first.dtype == np.int64
    assert first.min() > 0
    assert (first == again).all()


def test_slow_modes_are_rare():
    law = next(law for law in LAWS if law.name == "slow mode apart")
    times = draw_times(law, np.random.default_rng(0), 100_000)
    assert (times > 12.5e6).mean() == pytest.approx(SLOW_SHARE, rel=0.15)


def test_a_run_counts_and_passes_its_bars():
    _, result = benches.run("evt", "--trials 2 --count 5000 --laws slow --workers 1")
    assert [row["law"] for row in result["laws"]] == [
        "slow mode apart",
        "slow mode at the edge",
        "slow mode in the tail",
    ]
    apart = result["laws"][0]
    assert apart["flagged"] == 1.0
    assert apart["by"]
    assert all(one["largest"] < 0.01 for one in result["agreement"])
    libraries = {one["library"] for one in result["agreement"]}
    assert libraries == {"scipy", "pyextremes"}


@pytest.mark.slow
def test_processes_give_the_same_as_one(monkeypatch):
    monkeypatch.setattr(evt, "measure_agreement", lambda *args: [])
    options = "--trials 12 --count 1000 --laws GPD, --workers"
    rows = [benches.run("evt", options, n)[1]["laws"] for n in ("1", "2")]
    assert rows[0] == rows[1]
    assert rows[0][0]["bounded"] >= 8


def test_a_bar_not_met_is_said():
    law = LAWS[0]
    trials = [
        evt.Trial((), ratio, counted=2, claimed=1.0, taken_s=0.1) for ratio in (0.9, 1.1, 1.2, 1.2)
    ]
    row = evt._summarize(law, trials)
    assert (row["coverage"], row["tightness"], row["exceeded_to_claimed"]) == (0.75, 1.15, 2.0)
    assert row["passed"] is False
    flagged = [evt.Trial(("Gap",), float("nan"), 0, 0.0, 0.1)] * 4
    assert evt._summarize(law, flagged)["passed"] is False
