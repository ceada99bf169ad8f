# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`threads`: what it judges by, and that it runs; not which split this machine likes."""

import benches
import pytest

from benchmarks import threads
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, SplitFigures
from jetson_dnn_rt.runtime.sharing.forecast import Forecast


def make_figures(workers, met, capacity_hz=50.0):
    forecast = Forecast(100, met, 20.0)
    return SplitFigures(CoreSplit(workers, 2 // workers), {"a": 8.0}, capacity_hz, forecast)


def test_what_the_trial_takes_is_compared_with_the_best_that_was_played():
    figures = [make_figures(1, met=90), make_figures(2, met=100)]
    load = threads.judge(figures, [[0.9, 0.95, 0.99], [0.8, 0.94, 1.0]])
    assert [(row["split"], row["chosen"], row["met"]) for row in load["rows"]] == [
        ("1 x 2", False, 0.95),
        ("2 x 1", True, 0.94),
    ]
    assert load["behind_best"] == pytest.approx(0.01)
    assert load["passed"]
    worse = threads.judge(figures, [[0.95], [0.91]])
    assert not worse["passed"]
    result = {
        "cores": 2, "models": ["a", "b"], "tolerance": threads.TOLERANCE, "passed": False,
        "loads": [{"load": 0.7, "period_ms": 40.0, **one} for one in (load, worse)],
    }  # fmt: skip
    table = benches.show("threads", result)
    assert "-> 2 x 1" in table
    assert "at most 4.0 % of the frames behind the best split (bar 3 %): NOT met" in table


def test_it_tries_and_plays_every_split():
    # Two tasks that sleep: what is too much for one worker leaves two of them time.
    _, result = benches.run(
        "threads", "--models null:15 null:15 --cores 2 --loads 1.2 --rounds 1 --seconds 0.5"
    )
    (load,) = result["loads"]
    assert [row["split"] for row in load["rows"]] == ["1 x 2", "2 x 1"]
    assert [row["chosen"] for row in load["rows"]] == [False, True]
    assert load["rows"][1]["met"] > load["rows"][0]["met"]
    assert all(len(row["met_by_round"]) == 1 for row in load["rows"])
