# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The executables: ``ros2 run jetson_dnn_rt camera | detector | ...``.

Nodes are imported when they are made: `run_node` must watch for signals before that.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.running import BAD_CONFIGURATION, run_node

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.process.running import MakeNode


def _run(executable: str, module: str, name: str) -> int:
    def make(context: Any, args: list[str]) -> Any:
        return getattr(import_module(f"jetson_dnn_rt.nodes.{module}"), name)(context=context)

    return _start(executable, make)


def _start(executable: str, make: MakeNode) -> int:
    """Run a node, unless its command line asks for help or has words that ROS would ignore."""
    given = sys.argv[1:]
    if given and (given[0] != "--ros-args" or {"--", "-h", "--help"} & set(given)):
        from jetson_dnn_rt.nodes.process import arguments

        what = arguments.EXECUTABLES[executable]
        if arguments.asks_for_help(given):
            print(arguments.format_help(what))
            return 0
        try:
            arguments.refuse_non_ros_arguments(what, given)
        except ConfigurationError as error:
            print(error, file=sys.stderr)
            return BAD_CONFIGURATION
    return run_node(make, given)


def camera() -> int:
    """Run one camera."""
    return _run("camera", "cameras.camera", "CameraNode")


def detector() -> int:
    """Run one detection task with an executor of its own."""
    return _run("detector", "tasks.task_node", "DetectorNode")


def segmenter() -> int:
    """Run one segmentation task with an executor of its own."""
    return _run("segmenter", "tasks.task_node", "SegmenterNode")


def classifier() -> int:
    """Run one classification task with an executor of its own."""
    return _run("classifier", "tasks.task_node", "ClassifierNode")


def perception() -> int:
    """Run all tasks and cameras in one process."""

    def make(context: Any, args: list[str]) -> Any:
        from jetson_dnn_rt.nodes.perception import PerceptionNode

        return PerceptionNode(context=context, arguments=args)

    return _start("perception", make)


def coordinator() -> int:
    """Run the coordinator of tasks in other processes."""
    return _run("coordinator", "coordinator.coordinator_node", "CoordinatorNode")
