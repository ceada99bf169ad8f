# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Masks as PNG, encoded only while they have subscribers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import cv2
import numpy as np
from sensor_msgs.msg import CompressedImage

from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.nodes.process.qos import OVERRIDABLE
from jetson_dnn_rt.nodes.tasks.conversion import compress_image, make_palette
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

NICE = 10

OPTIONS = (cv2.IMWRITE_PNG_COMPRESSION, 1)
"""Fast: masks are large areas of one value."""


class CompressedMasks:
    """``<mask>/compressed`` of both masks, from a thread of low priority; the newest one counts.

    `class_topic` and `color_topic` are full names; `make_qos` makes a profile for each publisher.
    """

    def __init__(
        self, node: Node, class_topic: str, color_topic: str, make_qos: Callable[[], QoSProfile]
    ) -> None:
        self._class_publisher, self._color_publisher = (
            node.create_publisher(
                CompressedImage,
                f"{topic}/compressed",
                make_qos(),
                qos_overriding_options=OVERRIDABLE(),
            )
            for topic in (class_topic, color_topic)
        )
        self._palette = np.ascontiguousarray(make_palette()[:, ::-1])  # BGR, as cv2 writes
        self._mailbox: Mailbox[tuple[Image, Frame]] = Mailbox(
            "compressed-masks", self._encode, nice=NICE
        )

    def publish(self, mask: Image, frame: Frame) -> None:
        """Queue a mask, [H, W], if somebody subscribes; returns at once."""
        publishers = (self._class_publisher, self._color_publisher)
        if any(publisher.get_subscription_count() for publisher in publishers):
            self._mailbox.put((mask, frame))

    def close(self) -> None:
        """Stop the thread."""
        self._mailbox.close()

    def _encode(self, item: tuple[Image, Frame]) -> None:
        mask, frame = item
        if self._class_publisher.get_subscription_count():
            message = compress_image(mask, frame, "mono8", "png", OPTIONS)
            self._class_publisher.publish(message)
        if self._color_publisher.get_subscription_count():
            message = compress_image(self._palette[mask], frame, "rgb8", "png", OPTIONS)
            self._color_publisher.publish(message)
