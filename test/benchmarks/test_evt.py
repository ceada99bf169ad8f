# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`evt` and its laws: what they do; the figures are for the benchmark itself."""

import benches
import numpy as np
import pytest

from benchmarks.evt import bench
from benchmarks.evt.laws import (
    DEVELOPED_WITH,
    HELD_OUT,
    IID,
    LAWS,
    SLOW_SHARE,
    UNSEEN,
    UNSEEN_SHARE,
    draw_times,
)
from benchmarks.harness import main as harness
from jetson_dnn_rt.lab.wcet.comparison import Validation


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


def test_the_quantile_of_an_unseen_mode_is_that_of_the_mode_where_it_decides():
    law = next(law for law in LAWS if law.kind == UNSEEN)
    assert law.quantile(UNSEEN_SHARE / 2) == pytest.approx(15e6, rel=1e-6)
    assert law.quantile(0.01) == pytest.approx(10.698e6, rel=1e-3)


def test_nothing_is_in_both_sets():
    names = [law.name for law in LAWS]
    assert len(set(names)) == len(names) == len(DEVELOPED_WITH) + len(HELD_OUT)


def test_a_run_counts_and_passes_its_bars():
    _, result = benches.run(
        "evt", "--tuning-seeds 0-1 --test-seeds 7 --count 5000 --laws slow --workers 1"
    )
    assert [(row["law"], row["set"]) for row in result["laws"]] == [
        ("slow mode apart", "developed with"),
        ("slow mode at the edge", "developed with"),
        ("slow mode in the tail", "developed with"),
        ("slow mode of 1 in 50,000", "held out"),
    ]
    assert (result["tuning_seeds"], result["test_seeds"]) == ("0-1", "7")
    apart, *_, unseen = result["laws"]
    assert (apart["flagged"], apart["passed"], unseen["passed"]) == (1.0, True, None)
    assert apart["by"]
    assert {row["law"] for row in result["bounds"]} == {"slow mode of 1 in 50,000"}
    assert [row["exceedance"] for row in result["bounds"]] == [1e-3, 1e-4, 1e-6]
    assert all(one["largest"] < 0.01 for one in result["agreement"])
    libraries = {one["library"] for one in result["agreement"]}
    assert libraries == {"scipy", "pyextremes"}


def test_seeds_of_both_sets_do_not_overlap(capsys):
    assert harness.main(["evt", "--tuning-seeds", "0-9", "--test-seeds", "9-20"]) == 2
    assert "no seed in common: 9" in capsys.readouterr().err


@pytest.mark.nightly
def test_processes_give_the_same_as_one(monkeypatch):
    monkeypatch.setattr(bench, "measure_agreement", lambda *args: [])
    options = (
        "--tuning-seeds 0-11 --count 1000 --second 1000 --exceedances 1e-3 --laws GPD, --workers"
    )
    rows = [benches.run("evt", options, n)[1]["bounds"] for n in ("1", "2")]
    assert rows[0] == rows[1]
    assert rows[0][0]["bounded"] >= 0.6


def _try(ratio, exceedance, counted=2):
    return bench.Trial((), ((ratio, Validation(exceedance, 1.0, 1.0, counted, 0.5)),), 0.1)


def test_a_bar_not_met_is_said():
    law = LAWS[0]
    trials = [_try(ratio, 1e-4) for ratio in (0.9, 1.1, 1.2, 1.2)]
    row = bench.summarize_bounds(law, 1e-4, trials)
    assert (row["coverage"], row["tightness"], row["exceeded_to_claimed"]) == (0.75, 1.15, 2.0)
    assert row["passed"] is False
    flagged = [bench.Trial(("Gap",), (), 0.1)] * 4
    assert bench.summarize_flags(law, flagged)["passed"] is False
    assert bench.summarize_bounds(law, 1e-4, flagged)["passed"] is None


def test_a_bound_may_be_wider_far_out():
    far, near = (
        bench.summarize_bounds(LAWS[0], p, [_try(1.9, p)]) for p in (1e-6, 1e-4)
    )  # fmt: skip
    assert (far["passed"], near["passed"]) == (True, False)
    assert bench.summarize_bounds(LAWS[0], 1e-6, [_try(2.1, 1e-6)])["passed"] is False
