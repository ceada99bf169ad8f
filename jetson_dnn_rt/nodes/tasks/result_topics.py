"""Publishers of results: detections, masks, and the labels that explain their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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


class DetectionTopics:
    """``detections``: an empty array too, so that silence always means a fault."""

    def __init__(self, node: Node, qos: QoSProfile) -> None:
        from vision_msgs.msg import Detection2DArray

        self._publisher = node.create_publisher(
            Detection2DArray, "detections", qos, qos_overriding_options=OVERRIDABLE()
        )
        self._writer = DetectionsWriter()

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return str(self._publisher.topic_name)

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish boxes in pixels of the source image."""
        assert isinstance(result, Detections)
        if self._publisher.get_subscription_count():
            self._publisher.publish(self._writer.write(result, frame))


class SegmentationTopics:
    """``class_mask`` (mono8) and ``color_mask`` (rgb8), at the size of the source image."""

    def __init__(self, node: Node, qos: QoSProfile) -> None:
        from sensor_msgs.msg import Image

        self._class_publisher, self._color_publisher = (
            node.create_publisher(Image, topic, qos, qos_overriding_options=OVERRIDABLE())
            for topic in ("class_mask", "color_mask")
        )
        self._class_writer, self._color_writer = ImageWriter("mono8"), ImageWriter("rgb8")
        self._palette = make_palette()

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return str(self._class_publisher.topic_name)

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
