# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark on a small network: what it compares."""

import benches
import pytest

from benchmarks import tucker


def test_small_network(monkeypatch):
    monkeypatch.setattr(tucker, "REDUCTIONS", {"squeezenet1_1": 30.0})
    monkeypatch.setattr(tucker, "_SIZES", {"squeezenet1_1": (64, 64)})
    monkeypatch.setattr(tucker, "_choose_backends", lambda: ["torch"])
    _, result = benches.run("tucker", "--seconds 0.01 --threads 1")
    model = result["models"]["squeezenet1_1"]
    assert model["reduction"] == pytest.approx(30.0, abs=0.5)
    assert model["mean_error"] < model["equal_ratio"]["mean_error"]
    # The one ratio saves no more than the budget, so that it has no fewer operations.
    assert model["equal_ratio"]["reduction"] <= model["reduction"]
    assert model["equal_ratio"]["reduction"] > 20.0
    assert model["layers"] == 9  # the stem, and one in each of eight blocks
    assert model["layers_decomposed"] <= model["layers"]
    assert 0.0 < model["parameters_kept"] < 1.0
    assert set(model["times"]["torch"]) == {"full_ms", "reduced_ms"}
    assert result["passed"] is True
