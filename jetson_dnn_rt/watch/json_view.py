# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A view of the graph for programs: ``--json``, and the web page."""

from __future__ import annotations

import dataclasses
import math

from jetson_dnn_rt.watch.graph import CoordinatorView, GraphView, StatusView, TaskView

_ARRAYS = ("frames", "variants")


def to_dict(view: GraphView) -> dict[str, object]:
    """Make a dict for JSON; what is not known is None, numbers have three decimals."""
    return {
        "tasks": [describe_task(task) for task in view.tasks],
        "coordinators": [_describe(one) for one in view.coordinators],
        "warnings": [_describe(one) for one in view.warnings],
        "dropped_messages": dict(view.dropped),
    }


def describe_task(task: TaskView) -> dict[str, object]:
    """Describe a task without its frames."""
    return {**_describe(task), "miss_ratio": _round(task.miss_ratio)}


def _describe(one: TaskView | CoordinatorView | StatusView) -> dict[str, object]:
    names = [field.name for field in dataclasses.fields(one) if field.name not in _ARRAYS]
    return {name: _round(getattr(one, name)) for name in names}


def _round(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3) if math.isfinite(value) else None
    return value
