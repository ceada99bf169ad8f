# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A short run of `coordinate`."""

import os

import benches
import pytest

from benchmarks import coordinate


@pytest.mark.slow
def test_every_frame_of_every_policy_is_accounted_for(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    monkeypatch.setattr(coordinate, "PHASES", ((0.3, False), (0.3, True)))
    monkeypatch.setattr(coordinate, "_TIMED_RUNS", 10)
    monkeypatch.setattr(coordinate, "_SCENES", 4)
    variants = "full@onnxruntime-fp32,full@openvino-fp32"
    cores = len(os.sched_getaffinity(0))
    _, result = benches.run(
        "coordinate", "--engine-cache", str(tmp_path), "--variants", variants,
        f"--stages 2 --rounds 1 --hogs {cores} --period-factor 4",
    )  # fmt: skip
    assert set(result["policies"]) == set(coordinate.POLICIES)
    windows = {figures["frames"] for figures in result["policies"].values()}
    (frames,) = windows  # the same for all
    assert frames == 2 * int(600.0 / result["period_ms"])
    for name, figures in result["policies"].items():
        assert sum(figures["outcomes"].values()) == frames
        assert figures["met_ratio"] == figures["outcomes"].get("met", 0) / frames
        # Both variants are the full network, so whatever was met is what the reference says.
        assert figures["accuracy"] > 0.99
        assert sum(figures["stages_by_variant"].values()) > 0
        if name.startswith("static"):
            assert figures["switches_per_s"] == 0.0
    horizon, fast = result["policies"]["horizon"], result["policies"]["static-fast"]
    met = horizon["met_ratio"] >= coordinate.MET_BAR
    assert result["passed"] == (met and horizon["accuracy"] > fast["accuracy"])
    table = benches.show("coordinate", result)
    assert all(name in table for name in coordinate.POLICIES)
