# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every bar can be met and missed: committed results, with figures at a bar and past it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.main import load

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

# A figure, "*" for every row, with what just meets the bar; one of them, with what misses it.
CASES = {
    "accuracy": [("map50", 0.85, "map50", 0.849), ("miou", 0.85, "miou", None)],
    "decide": [
        ("policies.*.ratio.p99", 1.2, "policies.static.ratio.p99", 1.21),
        ("policies.*.decision_us.*.p99", 50.0, "policies.horizon.decision_us.tx2.p99", 50.1),
    ],
    "engine": [
        ("rows.*.stage.p50", 8.0, "rows.0.stage.p50", 8.1),
        ("rows.*.stage.p99", 25.0, "rows.9.stage.p99", 25.1),
    ],
    "export_c": [
        ("networks.*.time_ratio", 1.5, "networks.2.time_ratio", 1.51),
        ("networks.*.arena_ratio", 1.3, "networks.0.arena_ratio", 1.31),
    ],
    "inside": [
        ("variants.*.sides.node.p50_ratio", 1.1, "variants.1.sides.node.p50_ratio", 1.11),
        ("variants.*.sides.node.p99_ratio", 1.1, "variants.0.sides.node.p99_ratio", 1.11),
    ],
    "overhead": [
        ("rows.*.overhead_ms.p50", 0.5, "rows.2.overhead_ms.p50", 2.6),
        ("rows.*.overhead_ms.p99", 2.0, "rows.0.overhead_ms.p99", 2.1),
        ("rows.*.lost", 0, "rows.1.lost", 1),
        ("rows.*.jobs", 1, "rows.0.jobs", 0),
    ],
    "start": [
        ("starts.*.total_s.median", 3.0, "starts.1.total_s.median", 3.1),
        ("starts.*.total_s.median", 3.0, "starts.3.total_s.median", 3.1),
    ],
    "switching": [("added_us.p99", 50.0, "added_us.p99", 50.1)],
    "threads": [("loads.*.behind_best", 0.03, "loads.2.behind_best", 0.031)],
    "trace": [
        ("call_us.p99", 20.0, "call_us.p99", 20.1),
        ("added_us.p99.us", 20.0, "added_us.p99.us", 20.1),
    ],
    "tracking": [("scenes.*.time_ms.p99", 1.0, "scenes.4.time_ms.p99", 1.1)],
}


def put(value, path, figure):
    """Set a figure of a result, or of all rows of it."""
    key, _, rest = path.partition(".")
    if key == "*":
        for one in value.values() if isinstance(value, dict) else value:
            put(one, rest, figure)
        return
    key = int(key) if isinstance(value, list) else key
    if rest:
        put(value[key], rest, figure)
    else:
        value[key] = figure


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in CASES for number in range(len(CASES[name]))]
)
def test_a_bar_is_met_and_missed(name, number):
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    judge = load(name).rejudge
    for every, enough, _, _ in CASES[name]:
        put(result, every, enough)
    assert judge(result) is True
    _, _, one, too_much = CASES[name][number]
    put(result, one, too_much)
    assert judge(result) is False
