# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The executables: ``ros2 run jetson_dnn_rt camera | detector | ...``.

Nodes are imported when they are made: `run_node` must watch for signals before that.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from jetson_dnn_rt.nodes.process.running import run_node


def _run(module: str, name: str, **options: Any) -> int:
    def make(context: Any, args: list[str]) -> Any:
        node = getattr(import_module(f"jetson_dnn_rt.nodes.{module}"), name)
        return node(context=context, **options)

    return run_node(make, sys.argv[1:])


def camera() -> int:
    """Run one camera."""
    return _run("cameras.camera", "CameraNode")


def detector() -> int:
    """Run one detection task with an executor of its own."""
    return _run("tasks.task_node", "DetectorNode")


def segmenter() -> int:
    """Run one segmentation task with an executor of its own."""
    return _run("tasks.task_node", "SegmenterNode")


def classifier() -> int:
    """Run one classification task with an executor of its own."""
    return _run("tasks.task_node", "ClassifierNode")


def perception() -> int:
    """Run all tasks and cameras in one process."""

    def make(context: Any, args: list[str]) -> Any:
        from jetson_dnn_rt.nodes.perception import PerceptionNode

        node = PerceptionNode(context=context, arguments=args)
        node.check_files(args)
        return node

    return run_node(make, sys.argv[1:])


def coordinator() -> int:
    """Run the coordinator of tasks in other processes."""
    return _run("coordinator.coordinator_node", "CoordinatorNode")
