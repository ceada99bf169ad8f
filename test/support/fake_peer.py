# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A fake of somebody else's node: a program that sees the same car in every image.

As unreliable as others: every seventh image has no answer.
"""

from __future__ import annotations

import contextlib
import itertools

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2D, Detection2DArray, ObjectHypothesisWithPose

TOPIC = "/peer/detections"


def main() -> None:
    """Answer images until SIGTERM."""
    rclpy.init()
    node = rclpy.create_node("fake_peer")
    results = node.create_publisher(Detection2DArray, TOPIC, 10)
    car = Detection2D(results=[ObjectHypothesisWithPose()])
    car.results[0].hypothesis.class_id, car.results[0].hypothesis.score = "car", 0.5
    car.bbox.center.position.x, car.bbox.center.position.y = 320.0, 300.0
    car.bbox.size_x, car.bbox.size_y = 80.0, 60.0

    images = itertools.count(1)

    def answer(image: Image) -> None:
        if next(images) % 7 == 0:
            return
        results.publish(Detection2DArray(header=image.header, detections=[car]))

    newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    node.create_subscription(Image, "image_raw", answer, newest)
    with contextlib.suppress(ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    main()
