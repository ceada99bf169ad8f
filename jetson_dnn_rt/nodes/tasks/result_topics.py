# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Publishers of results: detections, masks, and the labels that explain their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.qos import LATCHED, OVERRIDABLE, make_qos
from jetson_dnn_rt.nodes.tasks.annotations import make_annotations
from jetson_dnn_rt.nodes.tasks.compressed_masks import CompressedMasks
from jetson_dnn_rt.nodes.tasks.conversion import (
    DetectionsWriter,
    ImageWriter,
    make_palette,
    paint_mask,
)
from jetson_dnn_rt.results import Detections, Result, Segmentation

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.publisher import Publisher


class DetectionTopics:
    """``detections``: an empty array too, so that silence always means a fault.

    With the parameter `annotations` also those for Foxglove.
    """

    def __init__(self, node: Node, values: TaskConfig, labels: Sequence[str]) -> None:
        from vision_msgs.msg import Detection2DArray

        self._publisher = _advertise(node, Detection2DArray, "detections", values)
        self._writer = DetectionsWriter()
        self._annotations = None
        if values.annotations:
            qos = make_qos(values.output_qos, values.output_qos_depth)
            self._annotations = make_annotations(node, labels, qos)

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return str(self._publisher.topic_name)

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish boxes in pixels of the source image."""
        assert isinstance(result, Detections)
        if self._publisher.get_subscription_count():
            self._publisher.publish(self._writer.write(result, frame))
        if self._annotations is not None:
            self._annotations.publish(result, frame)

    def close(self) -> None:
        """Nothing is left running."""


class SegmentationTopics:
    """``class_mask`` (mono8) and ``color_mask`` (rgb8), at the size of the source image.

    With the parameter `confidence_image` also ``confidence`` (mono8).
    """

    def __init__(self, node: Node, values: TaskConfig, labels: Sequence[str]) -> None:
        from sensor_msgs.msg import Image

        self._class_publisher, self._color_publisher = (
            _advertise(node, Image, topic, values) for topic in ("class_mask", "color_mask")
        )
        self._confidence_publisher = None
        if values.confidence_image:
            self._confidence_publisher = _advertise(node, Image, "confidence", values)
        self._class_writer, self._color_writer = ImageWriter("mono8"), ImageWriter("rgb8")
        self._confidence_writer = ImageWriter("mono8")
        self._palette = make_palette()
        self._compressed = CompressedMasks(
            node,
            self.topic,
            str(self._color_publisher.topic_name),
            lambda: make_qos(values.debug_image_qos, 1),
        )

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return str(self._class_publisher.topic_name)

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish the class, the colour and the confidence of every pixel."""
        assert isinstance(result, Segmentation)
        mask, confidence = result.mask, result.confidence
        if self._class_publisher.get_subscription_count():
            self._class_publisher.publish(self._class_writer.write(mask, frame))
        if self._color_publisher.get_subscription_count():
            colours = self._color_writer.prepare(mask.shape[0], mask.shape[1], frame)
            paint_mask(mask, self._palette, colours)
            self._color_publisher.publish(self._color_writer.message)
        publisher = self._confidence_publisher
        if publisher is not None and confidence is not None and publisher.get_subscription_count():
            publisher.publish(self._confidence_writer.write(confidence, frame))
        self._compressed.publish(mask, frame)

    def close(self) -> None:
        """Stop the thread that encodes."""
        self._compressed.close()


def _advertise(node: Node, kind: Any, topic: str, values: TaskConfig) -> Publisher:
    # A profile of its own: rclpy writes overrides into the one that it is given.
    qos = make_qos(values.output_qos, values.output_qos_depth)
    return node.create_publisher(kind, topic, qos, qos_overriding_options=OVERRIDABLE())


RESULT_TOPICS: dict[str, type[DetectionTopics] | type[SegmentationTopics]] = {
    "detection": DetectionTopics,
    "segmentation": SegmentationTopics,
}
"""Publishers by the kind of task."""


class LabelTopics:
    """Latched `LabelInfo`: the names of the class indices."""

    def __init__(self, node: Node, topics: Sequence[str], labels: Sequence[str]) -> None:
        from vision_msgs.msg import LabelInfo, VisionClass

        self._node = node
        self._publishers = [node.create_publisher(LabelInfo, topic, LATCHED) for topic in topics]
        classes = [VisionClass(class_id=i, class_name=name) for i, name in enumerate(labels)]
        self._message = LabelInfo(class_map=classes)

    def publish(self, threshold: float) -> None:
        """Publish names and confidence threshold; late subscribers get the last one."""
        self._message.threshold = threshold
        self._message.header.stamp = self._node.get_clock().now().to_msg()
        for publisher in self._publishers:
            publisher.publish(self._message)
