"""The executables: ``ros2 run jetson_dnn_rt camera | detector | ...``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jetson_dnn_rt.nodes.process.running import run_node

if TYPE_CHECKING:
    from rclpy.context import Context

    from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode


def camera() -> int:
    """Run one camera."""

    def make(context: Context, args: list[str]) -> ManagedNode:
        from jetson_dnn_rt.nodes.cameras.camera import CameraNode

        return CameraNode(context=context)

    return run_node(make, sys.argv[1:])


def detector() -> int:
    """Run one detection task with an executor of its own."""

    def make(context: Context, args: list[str]) -> ManagedNode:
        from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode

        return DetectorNode(context=context)

    return run_node(make, sys.argv[1:])


def segmenter() -> int:
    """Run one segmentation task with an executor of its own."""

    def make(context: Context, args: list[str]) -> ManagedNode:
        from jetson_dnn_rt.nodes.tasks.task_node import SegmenterNode

        return SegmenterNode(context=context)

    return run_node(make, sys.argv[1:])


def perception() -> int:
    """Run all tasks and cameras in one process."""

    def make(context: Context, args: list[str]) -> ManagedNode:
        from jetson_dnn_rt.nodes.perception import PerceptionNode

        return PerceptionNode(context=context, arguments=args)

    return run_node(make, sys.argv[1:])


def coordinator() -> int:
    """Run the coordinator of tasks in other processes."""

    def make(context: Context, args: list[str]) -> ManagedNode:
        from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode

        return CoordinatorNode(context=context)

    return run_node(make, sys.argv[1:])
