# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`engine`: what it measures, not how fast this machine is."""

import os

import benches
import pytest

from benchmarks import engine
from benchmarks.harness.processes import BenchmarkError
from jetson_dnn_rt.compiled import Build, find_build


def test_both_sides_of_every_number_of_tasks():
    if not find_build().used:
        pytest.skip(f"nothing to compare: {find_build().reason}")
    _, result = benches.run("engine", "--tasks 1 3 --loads 2 --stages 100 --rounds 1")
    rows = {(row["side"], row["cold"], row["tasks"]): row for row in result["rows"]}
    assert len(rows) == len(result["rows"]) == 8
    assert all(
        0.0 < row[name]["p50"] <= row[name]["p99"]
        for row in rows.values()
        for name in engine.FIGURES
    )
    judged = [row for (side, cold, _), row in rows.items() if side == "compiled" and not cold]
    assert result["passed"] == all(
        row["stage"][name] <= bar for row in judged for name, bar in engine.BARS_US.items()
    )


def test_without_a_build_there_is_nothing_to_compare(monkeypatch):
    monkeypatch.setattr(engine, "find_build", lambda: Build(os.curdir, "not built"))
    with pytest.raises(BenchmarkError, match=r"nothing to compare: not built\. Fix: python3 -m"):
        engine.run(None)
