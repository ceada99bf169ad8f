# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Debug image: boxes or mask over the frame, drawn only while it has subscribers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sensor_msgs.msg import CompressedImage
from sensor_msgs.msg import Image as ImageMessage

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.qos import OVERRIDABLE
from jetson_dnn_rt.nodes.tasks.conversion import ImageWriter, compress_image
from jetson_dnn_rt.nodes.tasks.drawing import draw_results
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox
from jetson_dnn_rt.results import Result

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.qos import QoSProfile

NICE = 10

ENCODING = "bgr8"


class DebugImage:
    """Draws on a thread of its own at low priority; drops older results when it cannot keep up.

    Each of `topics` has a JPEG beside it, ``<topic>/compressed``; `make_qos` makes a profile for
    each publisher.
    """

    def __init__(
        self,
        node: Node,
        topics: Sequence[str],
        labels: Sequence[str],
        make_qos: Callable[[], QoSProfile],
    ) -> None:
        self._labels = labels
        names = [node.resolve_topic_name(topic) for topic in topics]
        self._publishers, self._compressed = (
            [
                node.create_publisher(
                    kind, f"{name}{suffix}", make_qos(), qos_overriding_options=OVERRIDABLE()
                )
                for name in names
            ]
            for kind, suffix in ((ImageMessage, ""), (CompressedImage, "/compressed"))
        )
        self._writer = ImageWriter(ENCODING)
        self.drawn = 0
        self._mailbox: Mailbox[tuple[Frame, Result, str]] = Mailbox(
            "debug-image", self._draw, nice=NICE
        )

    @property
    def wanted(self) -> bool:
        """Whether it has subscribers."""
        return any(p.get_subscription_count() for p in (*self._publishers, *self._compressed))

    def put(self, frame: Frame, result: Result, caption: str) -> None:
        """Queue a result and a line of text to be drawn over its frame; returns at once."""
        self._mailbox.put((frame, result, caption))

    def close(self) -> None:
        """Stop the thread."""
        self._mailbox.close()

    def _draw(self, item: tuple[Frame, Result, str]) -> None:
        frame, result, caption = item
        picture = self._writer.prepare(frame.height, frame.width, frame)
        draw_results(frame, [(result, self._labels)], picture, caption)
        for publisher in self._publishers:
            if publisher.get_subscription_count():
                publisher.publish(self._writer.message)
        wanted = [p for p in self._compressed if p.get_subscription_count()]
        if wanted:
            message = compress_image(picture, frame, ENCODING, "jpeg")
            for publisher in wanted:
                publisher.publish(message)
        self.drawn += 1
