"""Every test of the nodes runs on real rclpy and real DDS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ros_graph import Ros


@pytest.fixture
def ros() -> Iterator[Ros]:
    """A context with a spinning thread, ended cleanly after the test."""
    pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
    from ros_graph import Ros

    ros = Ros()
    try:
        yield ros
    finally:
        ros.close()
