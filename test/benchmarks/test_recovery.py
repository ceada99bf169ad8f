# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How the figures of the recovery benchmark are judged, kept and printed."""

import benches
import pytest
import torch

from benchmarks import recovery
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.splitting import split
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.measuring.macs import count


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


@pytest.mark.nightly
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


def test_a_small_network_is_the_same_with_fewer_channels(tmp_path):
    train_builtin = pytest.importorskip("train_builtin")
    path = tmp_path / "builtin_segmenter.onnx"
    network = builtin.build("segmenter", 0.7)
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.is_floating_point():  # equal ones would be one in the file
                value += 0.1 * torch.rand_like(value)
    train_builtin.write_onnx("segmenter", network, path, {builtin.WIDTH: "0.7"})
    small = recovery.load_small("segmenter", tmp_path)
    full = split(load_model("builtin:segmenter"), 1).graph
    assert [node.name for node in small.graph.nodes] == [node.name for node in full.graph.nodes]
    shape = (1, 3, *builtin.INPUT_SIZE["segmenter"])
    share = count(small, shape).macs / count(full, shape).macs
    assert 0.4 < share < 0.55
    with pytest.raises(ModelError, match="builtin:detector cannot be read"):
        recovery.load_small("detector", tmp_path)


def test_a_small_network_that_is_missing_is_told_before_anything_is_measured(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(recovery, "_measure", lambda *args: pytest.fail("it measures"))
    with pytest.raises(ModelError, match="builtin:detector cannot be read"):
        recovery.run(benches.parse("recovery", "--small", str(tmp_path)))
