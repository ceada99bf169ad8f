# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The rooms of each benchmark: folders and files of the package whose code it measures.

A result is of the code that its rooms had. docs/figures.md marks the results whose rooms have
changed since, so a room belongs here if a change in it can change the figures; what only starts
the benchmark, or reads its options, does not.
"""

from __future__ import annotations

_ENGINE = ("scheduling", "tasks.py")
_EXECUTOR = (*_ENGINE, "runtime")
_NETWORKS = ("backends", "models")
_TASKS = (*_EXECUTOR, *_NETWORKS, "config", "variants/running")  # config has the defaults
_NODES = (*_TASKS, "cameras", "nodes")
_POLICIES = ("coordinator", *_ENGINE)
_SIMULATED = (*_POLICIES, "lab/simulate", "platforms")

_ROOMS: dict[str, tuple[str, ...]] = {
    "accuracy": (*_NETWORKS, "demo"),
    "backends": (*_NETWORKS, "variants"),
    "batching": _TASKS,
    "boundary": (*_EXECUTOR, "coordinator"),
    "cancel": _TASKS,
    "coordinate": (*_NODES, "coordinator"),
    "dashcam": _NODES,
    "decide": ("coordinator",),
    "engine": _ENGINE,
    "evt": ("lab/wcet",),
    "export_c": ("models", "tvm"),
    "fidelity": (*_EXECUTOR, "lab/simulate"),
    "fronts": _SIMULATED,
    "gpu": (*_NETWORKS, "variants"),
    "inside": _NODES,
    "loadgen": _NODES,
    "multi_dnn": (*_TASKS, "variants"),
    "overhead": _NODES,
    "overload": _NODES,
    "paper000": (*_NETWORKS, "lab/profile", "lab/wcet", "variants"),
    "paper003": (*_NETWORKS, "tvm"),
    "paper004": _SIMULATED,
    "policies": _SIMULATED,
    "recovery": (*_NETWORKS, "lab/compress", "variants"),
    "replay": (*_EXECUTOR, "cameras/bags", "lab/evaluate", "lab/simulate", "traces"),
    "scale": _EXECUTOR,
    "start": (*_NODES, "cli", "variants"),
    "streaming": (*_NODES, "coordinator", "lab/streaming"),
    "switching": (*_TASKS, "coordinator"),
    "threads": _TASKS,
    "trace": ("traces",),
    "tracking": ("models/tracking.py",),
    "tucker": (*_NETWORKS, "lab/compress", "variants/decomposition.py"),
    "zero_copy": (*_NETWORKS, "cameras", "nodes/tasks", "variants/running"),
}
"""Paths in the package, by the benchmark's name."""


def find_rooms(name: str) -> tuple[str, ...]:
    """Return the rooms of a benchmark, as paths in the checkout; `KeyError` if it has none."""
    return tuple(f"jetson_dnn_rt/{room}" for room in sorted(set(_ROOMS[name])))
