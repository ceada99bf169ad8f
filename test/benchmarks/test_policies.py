# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark of policies: its bars and relations on known figures, and one small run."""

import benches
import pytest

from benchmarks import policies


def figures(**changes):
    base = {"miss_ratio": 0.0, "accuracy": 0.95, "energy_j": 10.0, "energy_per_met_frame_j": 0.1}
    return {**base, **changes}


def judge(ours, **others):
    policies_of = {"oracle": figures(), **others, "horizon": ours}
    cell = {"board": "tx2", "cohort": 4, "policies": policies_of}
    return {str(bar["bar"]): bool(bar["met"]) for bar in policies._judge([cell])}


ALL_MET = {"misses": True, "not beaten": True, "energy_per_met_frame_j": True, "accuracy": True}


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, None),
        ({"miss_ratio": 0.0051}, "misses"),
        ({"energy_per_met_frame_j": 0.1051}, "energy_per_met_frame_j"),
        ({"energy_per_met_frame_j": 0.05}, None),
        ({"accuracy": 0.9}, "accuracy"),
        ({"accuracy": None}, "accuracy"),
    ],
)
def test_bars(changes, missed):
    assert judge(figures(**changes)) == ALL_MET | ({missed: False} if missed else {})


def test_beaten_only_by_who_is_better_in_everything():
    better = figures(energy_per_met_frame_j=0.09, accuracy=0.96)
    assert not judge(figures(), other=better)["not beaten"]
    assert judge(figures(), other=figures(energy_per_met_frame_j=0.09))["not beaten"]
    missing = figures(miss_ratio=0.001, energy_per_met_frame_j=0.01, accuracy=1.0)
    assert judge(figures(), other=missing)["not beaten"]
    assert judge(figures(), **{"other@once": better})["not beaten"]


def all_figures():
    names = {claim.policy for claim in policies.CLAIMS}
    names |= {claim.other for claim in policies.CLAIMS}
    names |= {f"{name}@once" for name in names if name.startswith("neuos")}
    return {name: figures() for name in names}


def find(cell, text, board="tx2", cohort=4):
    judged = policies.judge_relations({(board, cohort): cell}, "@once")
    (relation,) = [relation for relation in judged if relation["claim"] == text]
    return relation


LESS = "balanced takes less energy than PredJoule"


@pytest.mark.parametrize(
    ("changes", "board", "why"),
    [
        ({}, "xavier", "the paper excepts it"),
        ({"neuos_balanced@once": figures()}, "tx2", "the delay of clock changes"),
        (
            {"neuos_balanced": figures(energy_per_met_frame_j=0.2, energy_j=5.0, miss_ratio=0.6)},
            "tx2",
            "by run it does",
        ),
        ({}, "tx2", "not in this model"),
    ],
)
def test_reasons(changes, board, why):
    cell = all_figures()
    dear = figures(energy_per_met_frame_j=0.2, energy_j=20.0)
    cell["neuos_balanced"] = cell["neuos_balanced@once"] = dear
    relation = find(cell | changes, LESS, board)
    assert not relation["reproduced"]
    assert relation["why"].startswith(why)


def test_misses_that_are_saved_energy():
    cell = all_figures()
    relation = find(cell, LESS)
    assert (relation["reproduced"], relation["why"]) == (True, "")  # what holds needs no reason
    missing = figures(miss_ratio=0.1, energy_j=5.0)
    cell["neuos_balanced"] = cell["neuos_balanced@once"] = missing
    why = find(cell, "balanced misses less than PredJoule")["why"]
    assert "5 J against 10 J" in why


@pytest.mark.slow
def test_a_small_run(monkeypatch):
    monkeypatch.setattr(policies, "BOARDS", ("tx2",))
    monkeypatch.setattr(policies, "COHORTS", {1: ("alexnet", "vgg16")})
    _, result = benches.run("policies", "--seeds 1 --frames 40 --processes 1 --policies max_n")
    (cell,) = result["cells"]
    assert set(cell["policies"]) == {"max_n", "horizon", "oracle"}
    assert cell["policies"]["max_n"]["accuracy"] == 1.0
    text = benches.show("policies", result)
    assert "tx2, cohort of 1" in text
    assert "bars of horizon" in text
