# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Figures of the fronts: all panels, and the same file from the same result."""

import pytest

pytest.importorskip("matplotlib")

import draw_fronts

from benchmarks.fronts.contest import HINDSIGHT, POLICY


def make_point(group, name, energy_j, accuracy, misses=0.0):
    return {
        "group": group, "name": name, "energy_j": energy_j, "accuracy": accuracy,
        "miss_ratio": misses,
    }  # fmt: skip


def test_one_panel_for_each_scenario(tmp_path):
    points = [
        make_point(POLICY, "horizon", 0.1, 0.98),
        make_point(POLICY, "max_n", 0.2, 1.0, misses=0.3),
        make_point(POLICY, "hopeless", None, None, misses=1.0),
        make_point(HINDSIGHT, "static", 0.12, 1.0),
    ]
    bound = [{"floor": 0.95, "most_misses": 0.0, "energy_j": 0.05}]
    scenarios = [
        {"seed": seed, "disturbances": ["heat"], "points": points, "bound": bound}
        for seed in (7, 8)
    ]
    paths = draw_fronts.draw({"scenarios": scenarios}, tmp_path)
    texts = [path.read_text(encoding="utf-8") for path in paths]
    assert len(texts) == 2
    for text in texts:
        assert "7: heat" in text
        assert "8: heat" in text
        assert "best static" in text
    draw_fronts.draw({"scenarios": scenarios}, tmp_path)
    assert [path.read_text(encoding="utf-8") for path in paths] == texts
