# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Publishers of results: detections, masks, classes, and the labels that explain their indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.config.result_topics import INSTANCE_MASK, KEYPOINTS, name_masks
from jetson_dnn_rt.config.task import OUTPUTS, TaskConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.labels import name_mask_classes
from jetson_dnn_rt.nodes.process.qos import LATCHED, OVERRIDABLE, make_qos
from jetson_dnn_rt.nodes.tasks.annotations import make_annotations
from jetson_dnn_rt.nodes.tasks.compressed_masks import CompressedMasks, Picture
from jetson_dnn_rt.nodes.tasks.conversion import (
    ClassificationWriter,
    DetectionsWriter,
    ImageWriter,
    KeypointsWriter,
    make_palette,
    paint_mask,
)
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.publisher import Publisher

    from jetson_dnn_rt.models.model import Model

_PARTS = {"_seg": INSTANCE_MASK, "_pose": KEYPOINTS}
"""What a head of the package gives beside boxes, by the end of its name."""


def find_parts(model: Model) -> tuple[str, ...]:
    """Find the topics that a detector has beside ``detections``: `INSTANCE_MASK`, `KEYPOINTS`.

    A decoder of the user's names them in an attribute `parts`; ConfigurationError for others.
    """
    for end, part in _PARTS.items():
        if model.head.name.endswith(end):
            return (part,)
    parts = tuple(getattr(model.create_decoder(), "parts", ()))
    if unknown := [part for part in parts if part not in _PARTS.values()]:
        known = " and ".join(_PARTS.values())
        raise ConfigurationError(
            f"head {model.head.name!r}: its `parts` name {unknown}, there are {known}"
        )
    return parts


def find_masks(model: Model) -> tuple[tuple[str, int], ...]:
    """Find the names of a segmenter's masks, with their numbers of classes; none where it has one.

    Its decoder has them in an attribute `masks`.
    """
    return tuple(getattr(model.create_decoder(), "masks", ()))


class ResultTopics:
    """Publishers of the results of one task; the main topic is that of its kind."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        """Names of the classes on the main topic."""
        self.mask_labels: dict[str, Sequence[str]] = {}
        """Names of the classes of each mask, where there are several, by topic."""

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        raise NotImplementedError

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish the result of a frame, with its header."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the threads that encode; by default there are none."""


class DetectionTopics(ResultTopics):
    """``detections``: an empty array too, so that silence always means a fault.

    With the parameter `annotations` also those for Foxglove; with a model that gives them
    ``instance_mask`` (mono16) and ``keypoints``.
    """

    def __init__(self, node: Node, values: TaskConfig, model: Model) -> None:
        from sensor_msgs.msg import Image, PointCloud2
        from vision_msgs.msg import Detection2DArray

        super().__init__(model.labels)
        self._publisher = _advertise(node, Detection2DArray, OUTPUTS["detection"], values)
        self._writer = DetectionsWriter(_name_classes(values, model))
        self._annotations = None
        if values.annotations:
            qos = make_qos(values.output_qos, values.output_qos_depth)
            self._annotations = make_annotations(node, model.labels, qos)
        parts = find_parts(model)
        self._mask_publisher = self._keypoints_publisher = None
        if INSTANCE_MASK in parts:
            self._mask_publisher = _advertise(node, Image, INSTANCE_MASK, values)
            self._mask_writer = ImageWriter("mono16")
            self._compressed = _compress(
                node, values, {str(self._mask_publisher.topic_name): ("mono16", _keep)}
            )
        if KEYPOINTS in parts:
            self._keypoints_publisher = _advertise(node, PointCloud2, KEYPOINTS, values)
            self._keypoints_writer = KeypointsWriter()

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return str(self._publisher.topic_name)

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish boxes in pixels of the source image, and what the network gives beside them."""
        assert isinstance(result, Detections)
        if self._publisher.get_subscription_count():
            self._publisher.publish(self._writer.write(result, frame))
        if self._annotations is not None:
            self._annotations.publish(result, frame)
        publisher, mask = self._mask_publisher, result.instance_mask
        if publisher is not None and mask is not None:
            if publisher.get_subscription_count():
                publisher.publish(self._mask_writer.write(mask, frame))
            self._compressed.publish(mask, frame)
        publisher, keypoints = self._keypoints_publisher, result.keypoints
        if publisher is not None and keypoints is not None and publisher.get_subscription_count():
            publisher.publish(self._keypoints_writer.write(keypoints, frame))

    def close(self) -> None:
        """Stop the thread that encodes masks."""
        if self._mask_publisher is not None:
            self._compressed.close()


class MaskTopics:
    """``class_mask`` (mono8) and ``color_mask`` (rgb8) of one mask, at the size of the source.

    With the parameter `confidence_image` also ``confidence`` (mono8). `space` goes before them.
    """

    def __init__(self, node: Node, values: TaskConfig, space: str) -> None:
        from sensor_msgs.msg import Image

        self._class_publisher, self._color_publisher = (
            _advertise(node, Image, f"{space}{topic}", values)
            for topic in (OUTPUTS["segmentation"], "color_mask")
        )
        self._confidence_publisher = None
        if values.confidence_image:
            self._confidence_publisher = _advertise(node, Image, f"{space}confidence", values)
        self._class_writer, self._color_writer = ImageWriter("mono8"), ImageWriter("rgb8")
        self._confidence_writer = ImageWriter("mono8")
        self._palette = make_palette()
        as_written = np.ascontiguousarray(self._palette[:, ::-1])  # BGR, as cv2 takes it
        self._compressed = _compress(
            node,
            values,
            {
                self.topic: ("mono8", _keep),
                str(self._color_publisher.topic_name): ("rgb8", as_written.__getitem__),
            },
        )

    @property
    def topic(self) -> str:
        """Full name of the topic of classes."""
        return str(self._class_publisher.topic_name)

    def publish(self, result: Segmentation, frame: Frame) -> None:
        """Publish the class, the colour and the confidence of every pixel."""
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


class SegmentationTopics(ResultTopics):
    """Topics of a mask; of several ``<mask>/class_mask`` and so on, the main one is the first's.

    ConfigurationError when a mask's name gives no name for a topic.
    """

    def __init__(self, node: Node, values: TaskConfig, model: Model) -> None:
        masks = find_masks(model)
        names = name_masks([name for name, _ in masks])
        labels = [name_mask_classes(model.labels, *mask) for mask in masks]
        super().__init__(labels[0] if labels else model.labels)
        self.mask_labels = {
            f"{name}/label_info": own for name, own in zip(names, labels, strict=True)
        }
        self.masks = [
            MaskTopics(node, values, space) for space in [f"{name}/" for name in names] or [""]
        ]

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return self.masks[0].topic

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish every mask."""
        assert isinstance(result, Segmentation)
        for topics, mask in zip(self.masks, result.masks, strict=True):
            topics.publish(mask, frame)

    def close(self) -> None:
        """Stop the threads that encode."""
        for topics in self.masks:
            topics.close()


class ClassificationTopics(ResultTopics):
    """``classification``: the best classes of the whole picture."""

    def __init__(self, node: Node, values: TaskConfig, model: Model) -> None:
        from vision_msgs.msg import Classification as ClassificationMessage

        super().__init__(model.labels)
        topic = OUTPUTS["classification"]
        self._publisher = _advertise(node, ClassificationMessage, topic, values)
        self._writer = ClassificationWriter(_name_classes(values, model))

    @property
    def topic(self) -> str:
        """Full name of the main topic."""
        return str(self._publisher.topic_name)

    def publish(self, result: Result, frame: Frame) -> None:
        """Publish the classes, best first."""
        assert isinstance(result, Classification)
        if self._publisher.get_subscription_count():
            self._publisher.publish(self._writer.write(result, frame))


def _name_classes(values: TaskConfig, model: Model) -> Sequence[str]:
    """What ``class_id`` says in place of numbers; nothing with ``class_id: number``."""
    return model.labels if values.class_id == "name" else ()


def _keep(mask: Any) -> Any:
    return mask


def _compress(node: Node, values: TaskConfig, pictures: Mapping[str, Picture]) -> CompressedMasks:
    return CompressedMasks(node, pictures, lambda: make_qos(values.debug_image_qos, 1))


def _advertise(node: Node, kind: Any, topic: str, values: TaskConfig) -> Publisher:
    # A profile of its own: rclpy writes overrides into the one that it is given.
    qos = make_qos(values.output_qos, values.output_qos_depth)
    return node.create_publisher(kind, topic, qos, qos_overriding_options=OVERRIDABLE())


RESULT_TOPICS: dict[str, type[Any]] = {
    "detection": DetectionTopics,
    "segmentation": SegmentationTopics,
    "classification": ClassificationTopics,
}
"""Publishers by the kind of task."""


class LabelTopics:
    """Latched `LabelInfo`: the names of the class indices, by topic."""

    def __init__(self, node: Node, labels: Mapping[str, Sequence[str]]) -> None:
        from vision_msgs.msg import LabelInfo, VisionClass

        self._node = node
        self._topics: list[tuple[Publisher, LabelInfo]] = []
        for topic, names in labels.items():
            classes = [VisionClass(class_id=i, class_name=name) for i, name in enumerate(names)]
            publisher = node.create_publisher(LabelInfo, topic, LATCHED)
            self._topics.append((publisher, LabelInfo(class_map=classes)))

    def publish(self, threshold: float) -> None:
        """Publish names and confidence threshold; late subscribers get the last one."""
        stamp = self._node.get_clock().now().to_msg()
        for publisher, message in self._topics:
            message.threshold, message.header.stamp = threshold, stamp
            publisher.publish(message)
