"""Every test of the nodes runs on real rclpy and real DDS."""

from __future__ import annotations

import pytest


@pytest.fixture
def ros():
    """A context with a spinning thread, ended cleanly after the test."""
    pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
    from ros_graph import Ros

    ros = Ros()
    try:
        yield ros
    finally:
        ros.close()
