# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boxes as Foxglove's ImageAnnotations: a light overlay that the viewer draws itself."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.nodes.tasks.conversion import fill_stamp
from jetson_dnn_rt.nodes.tasks.drawing import class_color

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

    from jetson_dnn_rt.frames import Frame
    from jetson_dnn_rt.results import Detections

MISSING = (
    "annotations: foxglove_msgs is not installed: nothing is published on `annotations`; install "
    "ros-<distro>-foxglove-msgs"
)

THICKNESS, FONT_SIZE = 2.0, 14.0
"""Pixels of the image."""


def make_annotations(node: Node, labels: Sequence[str], qos: QoSProfile) -> Annotations | None:
    """Make the publisher of ``annotations``; without foxglove_msgs log it and return None."""
    try:
        messages = importlib.import_module("foxglove_msgs.msg")
    except ImportError:
        node.get_logger().error(MISSING)
        return None
    return Annotations(messages, node, labels, qos)


class Annotations:
    """``annotations``: an outline and a text for each box, while somebody subscribes.

    `messages` is the module ``foxglove_msgs.msg``.
    """

    def __init__(self, messages: Any, node: Node, labels: Sequence[str], qos: QoSProfile) -> None:
        self._messages, self._labels = messages, labels
        self._publisher = node.create_publisher(messages.ImageAnnotations, "annotations", qos)

    def publish(self, detections: Detections, frame: Frame) -> None:
        """Publish boxes in pixels of the source image; an empty list clears the last ones."""
        if self._publisher.get_subscription_count():
            self._publisher.publish(self.write(detections, frame))

    def write(self, detections: Detections, frame: Frame) -> Any:
        """Make the message."""
        make, message = self._messages, self._messages.ImageAnnotations()
        if hasattr(message, "timestamp"):  # not in early versions
            fill_stamp(message.timestamp, frame)
        for (x1, y1, x2, y2), score, class_id in zip(
            detections.boxes.tolist(),
            detections.scores.tolist(),
            detections.class_ids.tolist(),
            strict=True,
        ):
            blue, green, red = (value / 255.0 for value in class_color(class_id))
            color = make.Color(r=red, g=green, b=blue, a=1.0)
            corners = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
            box = make.PointsAnnotation(
                type=make.PointsAnnotation.LINE_LOOP,
                points=[make.Point2(x=x, y=y) for x, y in corners],
                outline_color=color,
                thickness=THICKNESS,
            )
            name = self._labels[class_id] if class_id < len(self._labels) else str(class_id)
            text = make.TextAnnotation(
                position=make.Point2(x=x1, y=y1),
                text=f"{name} {score:.2f}",
                font_size=FONT_SIZE,
                text_color=make.Color(r=1.0, g=1.0, b=1.0, a=1.0),
                background_color=color,
            )
            fill_stamp(box.timestamp, frame)
            fill_stamp(text.timestamp, frame)
            message.points.append(box)
            message.texts.append(text)
        return message
