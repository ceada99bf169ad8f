"""Debug image: boxes or mask over the frame, drawn only while it has subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sensor_msgs.msg import Image as ImageMessage

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.qos import RELIABLE
from jetson_dnn_rt.nodes.tasks.conversion import ImageWriter
from jetson_dnn_rt.nodes.tasks.drawing import draw_label, draw_results
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox
from jetson_dnn_rt.results import Result

if TYPE_CHECKING:
    from rclpy.node import Node

NICE = 10


class DebugImage:
    """Draws on a thread of its own at low priority; drops older results when it cannot keep up."""

    def __init__(self, node: Node, topics: Sequence[str], labels: Sequence[str]) -> None:
        self._labels = labels
        self._publishers = [
            node.create_publisher(ImageMessage, topic, RELIABLE) for topic in topics
        ]
        self._writer = ImageWriter("bgr8")
        self.drawn = 0
        self._mailbox: Mailbox[tuple[Frame, Result, str]] = Mailbox(
            "debug-image", self._draw, nice=NICE
        )

    @property
    def wanted(self) -> bool:
        """Whether it has subscribers."""
        return any(p.get_subscription_count() for p in self._publishers)

    def put(self, frame: Frame, result: Result, caption: str) -> None:
        """Queue a result and a line of text to be drawn over its frame; returns at once."""
        self._mailbox.put((frame, result, caption))

    def close(self) -> None:
        """Stop the thread."""
        self._mailbox.close()

    def _draw(self, item: tuple[Frame, Result, str]) -> None:
        frame, result, caption = item
        picture = self._writer.prepare(frame.height, frame.width, frame)
        draw_results(frame, [(result, self._labels)], picture)
        draw_label(picture, caption, (2, 14), (255, 255, 255))
        for publisher in self._publishers:
            publisher.publish(self._writer.message)
        self.drawn += 1
