# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How the figures of the recovery benchmark are judged, kept and printed."""

import benches
import pytest

from benchmarks import recovery


def make_figures():
    lost = {"full": 0.0, "plain": 20.0, "data-aware": 2.5, "recovered": 0.9}
    return {
        name: {
            "macs_reduction": 0.0 if name == "full" else 0.5,
            "points_lost": points,
            "time_ms": {"torch": {"p50": 5.0 if name == "full" else 4.0}},
        }
        for name, points in lost.items()
    }


@pytest.mark.parametrize(
    ("variant", "change", "aim"),
    [
        ("recovered", {"points_lost": 1.1}, "recovered loses at most 1 points"),
        ("data-aware", {"points_lost": 3.1}, "data-aware loses at most 3 points"),
        ("recovered", {"macs_reduction": 0.49}, "half of the MACs are gone"),
        ("recovered", {"time_ms": {"torch": {"p50": 5.0}}}, "faster on every back end"),
    ],
)
def test_each_aim_can_be_missed(variant, change, aim):
    figures = make_figures()
    assert all(recovery.judge(figures).values())
    figures[variant] |= change
    assert [name for name, done in recovery.judge(figures).items() if not done] == [aim]


@pytest.mark.slow
def test_a_short_run_measures_and_keeps_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "BACKENDS", ("torch",))
    options = "--models segmenter --scenes 6 --fit-frames 8 --steps 2 --seconds 0.1"
    _, first = benches.run("recovery", options, "--engine-cache", str(tmp_path))
    _, second = benches.run("recovery", options, "--engine-cache", str(tmp_path))
    (model,) = first["models"].values()
    (again,) = second["models"].values()
    assert model["recovery"]["made"] == "in this run"
    assert again["recovery"]["made"] == "before"
    variants = model["variants"]
    assert list(variants) == ["full", "plain", "data-aware", "recovered"]
    for name in ("plain", "data-aware", "recovered"):
        assert variants[name]["macs_reduction"] >= 0.5
        assert again["variants"][name]["accuracy"] == variants[name]["accuracy"]
    assert variants["full"]["accuracy"] > variants["data-aware"]["accuracy"] > 0.8
    assert variants["data-aware"]["accuracy"] > variants["plain"]["accuracy"]
    assert first["passed"] is False or model["passed"]
