# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS where its log files cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

PROGRAM = """
from rclpy.node import Node
from jetson_dnn_rt.nodes.process.context import open_context

context = open_context(["--ros-args", "-p", "number:=3"])
node = Node("logger", context=context, automatically_declare_parameters_from_overrides=True)
node.get_logger().info(f"number {node.get_parameter('number').value}")
node.destroy_node()
context.try_shutdown()
"""


@pytest.mark.parametrize("home", ["", "/proc/nobody"])
def test_a_graph_starts_though_ros_cannot_write_its_log(home):
    """EDGES, campaign 5: without a home folder, or on a read-only disk, no node started."""
    left_out = ("HOME", "ROS_HOME", "ROS_LOG_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"HOME": home} if home else {}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("set ROS_LOG_DIR to a folder that can be written") == 1
    assert "number 3" in done.stderr
