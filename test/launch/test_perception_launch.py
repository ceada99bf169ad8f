# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The launch file brings up detections, masks and diagnostics, and ends cleanly."""

from __future__ import annotations

import unittest

import pytest

pytest.importorskip(
    "launch_testing", reason="launch_testing is not installed: the launch tests need it"
)
pytest.importorskip("launch_ros", reason="launch_ros is not installed: the launch tests need it")
pytest.importorskip("rclpy", reason="rclpy is not installed: the launch tests need it")

import launch_testing
import launch_testing.actions
import launch_testing.asserts
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launching import Probe, find_share

import launch

SHARE = find_share()

NAMESPACE = "/test_launch"


def make_description(composed):
    file = SHARE / "launch" / "perception.launch.py"
    arguments = {
        "namespace": NAMESPACE.strip("/"),
        "source": "synthetic:320x240",
        "model": "null:2",
        "segmenter_model": "null:2,segmentation",
        "composed": composed,
        "policy": "neuos_balanced",
    }
    include = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(file)), launch_arguments=arguments.items()
    )
    ready = launch_testing.actions.ReadyToTest()
    return launch.LaunchDescription([include, ready]), {}


@pytest.mark.launch
@pytest.mark.launch_test
@launch_testing.parametrize("composed", ["true", "false"])
def generate_test_description(composed):
    return make_description(composed)


class TestPerception(Probe):
    """What a user sees within a minute of `ros2 launch`."""

    def test_detections_come_under_the_camera_s_header(self):
        from vision_msgs.msg import Detection2DArray

        message = self.receive(Detection2DArray, f"{NAMESPACE}/detections")
        assert message.header.frame_id == "camera_optical_frame"
        assert message.header.stamp.sec > 0

    def test_masks_have_the_camera_s_size(self):
        from sensor_msgs.msg import Image

        message = self.receive(Image, f"{NAMESPACE}/class_mask")
        assert (message.height, message.width, message.encoding) == (240, 320, "mono8")

    def test_diagnostics_name_every_node(self):
        from diagnostic_msgs.msg import DiagnosticArray

        for name in (
            f"{NAMESPACE}/camera: camera_status",
            f"{NAMESPACE}/detector: processing_time_status",
            f"{NAMESPACE}/segmenter: processing_time_status",
        ):
            self.receive(
                DiagnosticArray, "/diagnostics",
                lambda m, name=name: any(s.name == name and s.level == b"\0" for s in m.status),
            )  # fmt: skip

    def test_the_policy_is_the_one_asked_for(self):
        from diagnostic_msgs.msg import DiagnosticArray

        def find(message):
            name = f"{NAMESPACE}/coordinator: policy_status"
            return [s for s in message.status if s.name == name]

        wanted = ("state", "active")
        message = self.receive(
            DiagnosticArray, "/diagnostics",
            lambda m: any(wanted in [(v.key, v.value) for v in s.values] for s in find(m)),
        )  # fmt: skip
        (status,) = find(message)
        assert ("policy", "neuos_balanced") in [(v.key, v.value) for v in status.values]

    def test_timing_is_published(self):
        from std_msgs.msg import Float64

        message = self.receive(Float64, f"{NAMESPACE}/detector/debug/processing_time_ms")
        assert message.data >= 2.0


@launch_testing.post_shutdown_test()
class TestEnd(unittest.TestCase):
    """After Ctrl-C."""

    def test_exit_codes(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)
