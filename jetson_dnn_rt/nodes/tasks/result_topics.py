"""Publishers of results: detections, masks, and the labels that explain their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.qos import LATCHED, OVERRIDABLE
from jetson_dnn_rt.nodes.tasks.conversion import (
    DetectionsWriter,
    ImageWriter,
    make_palette,
    paint_mask,
)
from jetson_dnn_rt.results import Detections, Result, Segmentation

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.qos import QoSProfile


class ResultTopics(Protocol):
    """Publishes the results of one kind of task."""

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish one result under its frame's header."""

    def close(self) -> None:
        """Drop the publishers."""


class DetectionTopics:
    """``detections``: an empty array too, so that silence always means a fault."""

    def __init__(self, node: Node, qos: QoSProfile) -> None:
        from vision_msgs.msg import Detection2DArray

        self._node = node
        self._publisher = node.create_publisher(
            Detection2DArray, "detections", qos, qos_overriding_options=OVERRIDABLE()
        )
        self._writer = DetectionsWriter()

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish boxes in pixels of the source image."""
        assert isinstance(result, Detections)
        if self._publisher.get_subscription_count():
            self._publisher.publish(self._writer.write(result, frame))

    def close(self) -> None:
        """Drop the publisher."""
        self._node.destroy_publisher(self._publisher)


class SegmentationTopics:
    """``class_mask`` (mono8) and ``color_mask`` (rgb8), at the size of the source image."""

    def __init__(self, node: Node, qos: QoSProfile) -> None:
        from sensor_msgs.msg import Image

        self._node = node
        self._class_publisher, self._color_publisher = (
            node.create_publisher(Image, topic, qos, qos_overriding_options=OVERRIDABLE())
            for topic in ("class_mask", "color_mask")
        )
        self._class_writer, self._color_writer = ImageWriter("mono8"), ImageWriter("rgb8")
        self._palette = make_palette()

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish the class and the colour of every pixel."""
        assert isinstance(result, Segmentation)
        mask = result.mask
        if self._class_publisher.get_subscription_count():
            self._class_publisher.publish(self._class_writer.write(mask, frame))
        if self._color_publisher.get_subscription_count():
            colours = self._color_writer.prepare(mask.shape[0], mask.shape[1], frame)
            paint_mask(mask, self._palette, colours)
            self._color_publisher.publish(self._color_writer.message)

    def close(self) -> None:
        """Drop the publishers."""
        self._node.destroy_publisher(self._class_publisher)
        self._node.destroy_publisher(self._color_publisher)


def make_result_topics(kind: str, node: Node, qos: QoSProfile) -> ResultTopics:
    """Make the publishers of a kind of task."""
    kinds: dict[str, Any] = {"detection": DetectionTopics, "segmentation": SegmentationTopics}
    return kinds[kind](node, qos)


class LabelTopics:
    """Latched `LabelInfo`: which name an index has."""

    def __init__(self, node: Node, topics: Sequence[str]) -> None:
        from vision_msgs.msg import LabelInfo

        self._node = node
        self._publishers = [node.create_publisher(LabelInfo, topic, LATCHED) for topic in topics]

    def publish(self, labels: Sequence[str], threshold: float, frame_id: str = "") -> None:
        """Publish names and confidence threshold; late subscribers get the last one."""
        from vision_msgs.msg import LabelInfo, VisionClass

        message = LabelInfo(threshold=threshold)
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.header.frame_id = frame_id
        message.class_map = [
            VisionClass(class_id=index, class_name=name) for index, name in enumerate(labels)
        ]
        for publisher in self._publishers:
            publisher.publish(message)

    def close(self) -> None:
        """Drop the publishers."""
        while self._publishers:
            self._node.destroy_publisher(self._publishers.pop())
