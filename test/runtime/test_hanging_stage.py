# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""EDGES 7, show 5: the campaign of a stage that hangs for ever, for some seconds in real time."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("rclpy", reason="rclpy is not installed: tasks are loaded by the nodes")

from hanging_stage import list_broken, run

from jetson_dnn_rt.runtime import task_entry


@pytest.mark.slow
def test_a_stage_that_hangs_for_ever_costs_its_task_only(monkeypatch):
    """EDGES 7: threads, memory and counts; the share of met frames is for the long form."""
    monkeypatch.setattr(task_entry, "PAUSES_NS", (0, 100_000_000, 200_000_000))
    figures = run(0.075)
    broken = list_broken(figures)
    assert [what for what in broken if what != "met frames"] == [], figures
    assert figures["hangs"] == 4
