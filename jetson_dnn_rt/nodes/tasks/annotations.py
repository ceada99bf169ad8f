# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Objects as Foxglove's ImageAnnotations: a light overlay that the viewer draws itself."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.nodes.tasks.conversion import fill_stamp
from jetson_dnn_rt.nodes.tasks.drawing import KEYPOINT_SCORE, caption_objects, color_objects

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

    from jetson_dnn_rt.frames import Frame
    from jetson_dnn_rt.results import Detections

MISSING = (
    "annotations: foxglove_msgs is not installed: nothing is published on `annotations`; install "
    "ros-<distro>-foxglove-msgs"
)

THICKNESS, POINT_SIZE, FONT_SIZE = 2.0, 6.0, 14.0
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
    """``annotations``: outline, keypoints and a text of each object, while somebody subscribes.

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

        def place(points: Sequence[Sequence[float]]) -> list[Any]:
            return [make.Point2(x=x, y=y) for x, y in points]

        keypoints: list[list[list[float]]] = [[]] * len(detections)
        if detections.keypoints is not None:
            keypoints = detections.keypoints.tolist()
        for corners, points, (blue, green, red), caption in zip(
            detections.outlines.tolist(),
            keypoints,
            color_objects(detections),
            caption_objects(detections, self._labels),
            strict=True,
        ):
            color = make.Color(r=red / 255.0, g=green / 255.0, b=blue / 255.0, a=1.0)
            kinds = make.PointsAnnotation
            drawn = [kinds(type=kinds.LINE_LOOP, points=place(corners), thickness=THICKNESS)]
            if shown := [(x, y) for x, y, score in points if score >= KEYPOINT_SCORE]:
                dots = kinds(type=kinds.POINTS, points=place(shown), thickness=POINT_SIZE)
                dots.fill_color = color
                drawn.append(dots)
            for one in drawn:
                one.outline_color = color
                fill_stamp(one.timestamp, frame)
                message.points.append(one)
            x, y = map(min, zip(*corners, strict=True))
            text = make.TextAnnotation(
                position=make.Point2(x=x, y=y),
                text=caption,
                font_size=FONT_SIZE,
                text_color=make.Color(r=1.0, g=1.0, b=1.0, a=1.0),
                background_color=color,
            )
            fill_stamp(text.timestamp, frame)
            message.texts.append(text)
        return message
