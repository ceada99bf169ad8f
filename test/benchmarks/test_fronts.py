# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Fronts of policies: contests on known points, drawn scenarios, and one small run."""

import benches
import pytest

from benchmarks.fronts import bench, contest, worlds
from benchmarks.harness.seeds import read_seeds
from jetson_dnn_rt.errors import ConfigurationError


def point(name, misses, energy_j, accuracy, group=contest.POLICY):
    return {
        "group": group, "name": name, "setting": "", "miss_ratio": misses, "energy_j": energy_j,
        "accuracy": accuracy, "p50_ms": 1.0, "p99_ms": None,
    }  # fmt: skip


def hold(*points, kind="accuracy", limit=0.95):
    return contest._hold(kind, limit, points)


def test_equal_accuracy():
    cheap = point("cheap", 0.0, 0.5, 0.94)  # below the floor
    lazy = point("lazy", 0.3, 0.4, 0.99)  # misses too many frames
    ours, other = point("horizon", 0.002, 1.0, 0.96), point("other", 0.0, 1.2, 1.0)
    result = hold(cheap, lazy, ours, other)
    assert (result["winner"], result["ours"], result["on_front"]) == (ours, ours, True)
    better = point("better", 0.002, 0.9, 0.95)
    result = hold(ours, other, better)
    assert result["winner"] == better
    assert (result["on_front"], result["beaten_by"]) == (False, ["better"])


def test_an_extreme_point_is_not_on_the_front():
    ours = point("horizon", 0.2, 0.1, 0.99)
    other = point("other", 0.0, 5.0, 0.99)
    result = hold(ours, other)
    assert (result["on_front"], result["beaten_by"], result["winner"]) == (False, ["other"], other)
    assert hold(ours)["on_front"]
    assert hold(point("horizon", 0.0, 1.0, 0.5))["winner"] is None


def test_equal_energy():
    ours, other = point("horizon", 0.0, 1.0, 0.96), point("other", 0.0, 1.0, 0.97)
    dear = point("dear", 0.0, 2.0, 1.0)
    result = hold(ours, other, dear, kind="energy", limit=1.5)
    assert (result["winner"], result["on_front"]) == (other, False)


@pytest.mark.parametrize(("energy_j", "as_good"), [(1.04, True), (1.06, False)])
def test_a_static_choice_that_is_as_good(energy_j, as_good):
    static = point("static", 0.0, energy_j, 0.96, contest.DESK)
    contests = contest.hold_contests([point("horizon", 0.0, 1.0, 0.99), static])
    assert [c["kind"] for c in contests] == ["accuracy"] * 4
    where = [c[f"{contest.DESK} is as good"] for c in contests]
    assert where == [as_good, as_good, False, False]
    sentence = contest.write_sentence(contests)
    assert "`horizon` wins 4 of 4 contests" in sentence
    assert sentence.endswith("needed in part." if as_good else "a coordinator is needed.")


@pytest.mark.parametrize("seed", range(8))
def test_drawn_scenarios_are_disturbed(seed):
    drawn, again = worlds.draw_scenario(seed, 60), worlds.draw_scenario(seed, 60)
    assert drawn.text == again.text
    scenario = drawn.scenario
    assert scenario.tasks == again.scenario.tasks
    assert ("heat" in drawn.disturbances) == (scenario.board.thermal is not None)
    assert ("co-runner" in drawn.disturbances) == bool(scenario.co_runners)
    assert drawn.disturbances
    assert all(task.deadline_ns <= task.period_ns for task in scenario.tasks)


def test_seeds():
    def read(tuning, test):
        return read_seeds(benches.parse("fronts", "--tuning-seeds", tuning, "--test-seeds", test))

    assert read("0-2,7", "5,9").describe() == {"tuning_seeds": "0-2,7", "test_seeds": "5,9"}
    for tuning, test, text in (
        ("0-3", "3", "no seed in common: 3"),
        ("a", "1", "--tuning-seeds must be like"),
        ("0", "5-1", "--test-seeds must rise"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            read(tuning, test)


@pytest.mark.nightly
def test_a_small_run(monkeypatch):
    monkeypatch.setattr(bench, "POLICIES", {"max_n": "", "horizon": ""})
    monkeypatch.setattr(bench, "SETTINGS", {})
    result = bench.run(benches.parse("fronts", "--test-seeds 5 --frames 20"))
    (scenario,) = result["scenarios"]
    assert {p["group"] for p in scenario["points"]} == {
        contest.POLICY, contest.REFERENCE, contest.DESK, contest.HINDSIGHT,
    }  # fmt: skip
    assert scenario["below_bound"] == []
    assert result["test_seeds"] == "5"
    assert scenario["sentence"] in benches.show("fronts", result)


def test_what_the_settings_contribute():
    """At a floor that no contest has, and without the inaccurate variants, ours is cheaper."""
    other = point("other", 0.0, 1.0, 0.96)
    scenario = {"points": [other, {**point("horizon", 0.0, 1.2, 0.96), "setting": "balanced"}]}
    ours = point("horizon", 0.0, 0.9, 0.97)
    least = {
        "points": [*scenario["points"], {**ours, "setting": "min_energy, variants from 0.95"}]
    }
    floor = {"points": [*scenario["points"], {**ours, "setting": "min_energy, floor 0.97"}]}
    usual = {"points": [*scenario["points"], {**ours, "setting": "min_energy, floor 0.95"}]}
    counts = bench.count_by_settings([scenario, least, floor, usual])
    assert [row["on_front"] for row in counts] == [3, 2, 2, 1]
