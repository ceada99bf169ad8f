# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Masks as PNG, encoded only while they have subscribers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import cv2
import numpy.typing as npt
from sensor_msgs.msg import CompressedImage

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.qos import OVERRIDABLE
from jetson_dnn_rt.nodes.tasks.conversion import compress_image
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

NICE = 10

OPTIONS = (cv2.IMWRITE_PNG_COMPRESSION, 1)
"""Fast: masks are large areas of one value."""

Mask = npt.NDArray[Any]

Picture = tuple[str, Callable[[Mask], Mask]]
"""Encoding of a topic, and what makes its picture, grey or BGR, of a mask."""


class CompressedMasks:
    """``<topic>/compressed`` of pictures of a mask, from a thread of low priority.

    The newest mask counts. `pictures` are by the full name of the topic; `make_qos` makes a
    profile for each publisher.
    """

    def __init__(
        self, node: Node, pictures: Mapping[str, Picture], make_qos: Callable[[], QoSProfile]
    ) -> None:
        self.publishers = [
            node.create_publisher(
                CompressedImage,
                f"{topic}/compressed",
                make_qos(),
                qos_overriding_options=OVERRIDABLE(),
            )
            for topic in pictures
        ]
        self._pictures = tuple(pictures.values())
        self._mailbox: Mailbox[tuple[Mask, Frame]] = Mailbox(
            "compressed-masks", self._encode, nice=NICE
        )

    def publish(self, mask: Mask, frame: Frame) -> None:
        """Queue a mask, [H, W], if somebody subscribes; returns at once."""
        if any(publisher.get_subscription_count() for publisher in self.publishers):
            self._mailbox.put((mask, frame))

    def close(self) -> None:
        """Stop the thread."""
        self._mailbox.close()

    def _encode(self, item: tuple[Mask, Frame]) -> None:
        mask, frame = item
        for publisher, (encoding, make) in zip(self.publishers, self._pictures, strict=True):
            if publisher.get_subscription_count():
                publisher.publish(compress_image(make(mask), frame, encoding, "png", OPTIONS))
