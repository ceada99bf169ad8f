# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two cameras with two tasks each come from one parameter file, in one process or in six."""

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
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

import launch

SHARE = find_share()

NAMESPACE = "/test_two"
NODES = ("camera", "detector", "segmenter")


@pytest.mark.launch
@pytest.mark.launch_test
@launch_testing.parametrize("composed", ["true", "false"])
def generate_test_description(composed):
    arguments = {
        "params_file": "two_cameras.param.yaml",
        "namespace": NAMESPACE,
        "model": "null:2",
        "segmenter_model": "null:2,segmentation",
        "engine_cache": "none",
        "composed": composed,
    }
    include = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "perception.launch.py")),
        launch_arguments=arguments.items(),
    )
    return launch.LaunchDescription([include, launch_testing.actions.ReadyToTest()]), {}


class TestTwoCameras(Probe):
    """Every task sees the frames of its own camera."""

    def test_results_of_every_task_come_under_its_camera_s_header(self):

        for camera in ("front", "rear"):
            for kind, topic in ((Detection2DArray, "detections"), (Image, "class_mask")):
                message = self.receive(kind, f"{NAMESPACE}/{camera}/{topic}")
                assert message.header.frame_id == f"{camera}_camera_optical_frame"


@launch_testing.post_shutdown_test()
class TestEnd(unittest.TestCase):
    """After Ctrl-C."""

    def test_each_node_had_its_process(self, proc_info, composed):
        names = {name.rpartition("-")[0] for name in proc_info.process_names()}
        tasks = {f"{space}_{name}" for space in ("front", "rear") for name in NODES}
        assert names == ({"perception"} if composed == "true" else tasks)
        launch_testing.asserts.assertExitCodes(proc_info)
