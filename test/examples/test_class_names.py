# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The example of a subscriber finds a name for each class."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path
from types import SimpleNamespace

TIMEOUT_S = 120.0
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "class_names.py"


def test_a_subscriber_names_what_a_task_finds(ros):
    """The names were published before it began; a class without one keeps its number."""
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from vision_msgs.msg import (
        Detection2D,
        Detection2DArray,
        LabelInfo,
        ObjectHypothesisWithPose,
        VisionClass,
    )

    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    names = ros.advertise(LabelInfo, "detector/label_info", latched)
    names.publish(LabelInfo(class_map=[VisionClass(class_id=2, class_name="car")]))
    detections = ros.advertise(Detection2DArray, "detections", 1)
    example = runpy.run_path(str(EXAMPLE))["ClassNames"]
    named, seen, lines = threading.Event(), threading.Event(), []

    class Watched(example):
        def on_names(self, message):
            super().on_names(message)
            named.set()

        def on_detections(self, message):
            super().on_detections(message)
            seen.set()

        def get_logger(self):
            return SimpleNamespace(info=lines.append)

    node = ros.make(Watched)
    assert named.wait(TIMEOUT_S)
    ros.wait(lambda: detections.get_subscription_count() == 1)
    message = Detection2DArray()
    for number in ("2", "9"):
        found = ObjectHypothesisWithPose()
        found.hypothesis.class_id, found.hypothesis.score = number, 0.5
        message.detections.append(Detection2D(results=[found]))
    ros.call(lambda: detections.publish(message))
    assert seen.wait(TIMEOUT_S)
    assert lines == ["car 0.50 at 0, 0", "9 0.50 at 0, 0"]
    assert node.names == {"2": "car"}
