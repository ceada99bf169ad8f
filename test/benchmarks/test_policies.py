# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark of policies: its bars and relations on known figures, and one small run."""

import benches
import pytest

from benchmarks import policies


def figures(**changes):
    base = {"miss_ratio": 0.0, "accuracy": 0.95, "energy_j": 10.0, "energy_per_met_frame_j": 0.1}
    return {**base, **changes}


def judge(ours):
    policies_of = {"oracle": figures(), "horizon": ours}
    cell = {"board": "tx2", "cohort": 4, "policies": policies_of}
    return {str(bar["bar"]): bool(bar["met"]) for bar in policies._judge([cell])}


ALL_MET = {"misses": True, "energy_per_met_frame_j": True, "accuracy": True}


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


@pytest.mark.nightly
def test_a_small_run(monkeypatch):
    monkeypatch.setattr(policies, "BOARDS", ("tx2",))
    monkeypatch.setattr(policies, "COHORTS", {1: ("alexnet", "vgg16")})
    _, result = benches.run(
        "policies", "--test-seeds 100 --frames 40 --processes 1 --policies max_n"
    )
    (cell,) = result["cells"]
    assert set(cell["policies"]) == {"max_n", "horizon", "oracle"}
    assert cell["policies"]["max_n"]["accuracy"] == 1.0
    text = benches.show("policies", result)
    assert "tx2, cohort of 1" in text
    assert "bars of horizon" in text
