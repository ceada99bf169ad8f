# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tables that say which variant a policy has to choose, whatever this machine does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jetson_dnn_rt.coordinator.tables.files import TableFile, save_tables
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.platforms.clocks import ClockSpace

FULL, FAST = "full@onnxruntime-fp32", "full@openvino-fp32"
STAGES = ("preprocess", "inference", "decode")

VALUES = {"model": "builtin:detector", "variants": [FULL, FAST], "threads": 1, "warmup_runs": 3}


def make_table(
    task: str = "detector", *, full_ms: float = 1800.0, fast_ms: float = 1.0,
    deadline_ms: float = 500.0, stages: tuple[str, ...] = STAGES,
) -> TaskTable:  # fmt: skip
    """A task no stage of whose full variant can make its deadline; all of the other can."""
    counts = len(stages)
    totals_ns = np.array([full_ms, fast_ms]) * 1e6
    times_ns = np.repeat(totals_ns[:, None, None] / counts, counts, axis=1)
    return TaskTable(
        task,
        stages,
        (FULL, FAST),
        int(deadline_ms * 1e6),
        int(deadline_ms * 1e6),
        np.repeat(times_ns, 8, axis=2).astype(np.int64),
        np.ones((2, counts, 1)),
        np.ones((2, counts, 1)),
        np.array([[0.0] * counts, [0.1 / counts] * counts]),
    )


def write_tables(folder: Path, *tables: TaskTable) -> str:
    """Write them for a machine with fixed clocks; returns the file's path."""
    clocks = ClockTable(ClockSpace([]), np.array([0]), np.array([0.0]), 0, 0)
    path = folder / "tables.json"
    save_tables(path, TableFile(clocks, tables or (make_table(),)))
    return str(path)


def make_clocks(space: ClockSpace) -> ClockTable:
    """The slowest, a middle and the fastest configuration."""
    indices = np.array([0, len(space) // 2, len(space) - 1])
    return ClockTable(space, indices, np.array([1.0, 2.0, 3.0]), 2, 0)


def write_clock_tables(folder: Path, clocks: ClockTable) -> str:
    """A task that is fast enough even at the slowest clocks."""
    stages = ("preprocess", "inference", "decode")
    table = TaskTable(
        "detector", stages, ("full@null",), 10**9, 10**9,
        np.full((1, 3, 4), 10**6), np.tile([4.0, 2.0, 1.0], (1, 3, 1)),
        np.tile([3.0, 6.0, 12.0], (1, 3, 1)), np.zeros((1, 3)),
    )  # fmt: skip
    save_tables(folder / "tables.json", TableFile(clocks, (table,), power_measured=True))
    return str(folder / "tables.json")
