# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detections of a task with the names of their classes, from any other node.

Usage: python examples/class_names.py --ros-args -p task:=detector
"""

import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from vision_msgs.msg import Detection2DArray, LabelInfo


class ClassNames(Node):
    """Logs what a task finds; its ``label_info`` is latched: it comes first, or again."""

    def __init__(self, **options):
        super().__init__("class_names", **options)
        task = self.declare_parameter("task", "detector").value
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.names = {}
        self.create_subscription(LabelInfo, f"{task}/label_info", self.on_names, latched)
        self.create_subscription(Detection2DArray, "detections", self.on_detections, 1)

    def on_names(self, message):
        """Keep the names by their numbers."""
        self.names = {str(one.class_id): one.class_name for one in message.class_map}

    def on_detections(self, message):
        """Log each detection."""
        for detection in message.detections:
            found = detection.results[0].hypothesis
            name = self.names.get(found.class_id, found.class_id)
            at = detection.bbox.center.position
            self.get_logger().info(f"{name} {found.score:.2f} at {at.x:.0f}, {at.y:.0f}")


if __name__ == "__main__":
    rclpy.init()
    rclpy.spin(ClassNames())
