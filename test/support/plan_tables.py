# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Random profile tables for plans over the rest of a frame."""

from __future__ import annotations

import numpy as np
from cohorts import make_table
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.policies.horizon.frontier import tail_quantile
from jetson_dnn_rt.coordinator.tables.tables import TaskTable


def whole_ns(table: TaskTable, plan: np.ndarray, clocks: int, confidence: float) -> float:
    """High quantile of a plan for the last stages, without recourse."""
    stages = np.arange(len(table.stages) - len(plan), len(table.stages))
    times = table.times_ns[plan, stages] * table.slowdown[plan, stages, clocks][:, None]
    return float(tail_quantile(times.sum(axis=0), confidence))


def build_table(stages: list[tuple[float, float, float]], frames: list[float]) -> TaskTable:
    """Two variants of stages: a time in ms, the other's share of it, and the accuracy it costs."""
    return make_table(
        times_ms=[[t for t, _, _ in stages], [t * gain for t, gain, _ in stages]],
        loss=[[0.0] * len(stages), [loss for _, _, loss in stages]],
        frames=(1.0, *frames),
    )


def tables() -> st.SearchStrategy[TaskTable]:
    """Two variants of up to four stages, whose frames vary."""
    stage = st.tuples(st.floats(0.5, 5.0), st.floats(0.3, 0.95), st.floats(0.0, 0.05))
    return st.builds(
        build_table,
        st.lists(stage, min_size=1, max_size=4),
        st.lists(st.floats(0.9, 1.2), max_size=6),
    )
