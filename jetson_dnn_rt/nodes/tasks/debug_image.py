"""The picture for people: boxes or mask over the frame, drawn while somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
import numpy as np
from sensor_msgs.msg import Image as ImageMessage

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.nodes.process.qos import RELIABLE
from jetson_dnn_rt.nodes.tasks.conversion import ImageWriter, make_palette, paint_mask
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox
from jetson_dnn_rt.results import Detections, Result, Segmentation

if TYPE_CHECKING:
    from rclpy.node import Node

NICE = 10
MASK_OPACITY = 0.5
_FONT = cv2.FONT_HERSHEY_SIMPLEX


@dataclass(frozen=True)
class DebugItem:
    """A frame, its result and a line of text, to be drawn."""

    frame: Frame
    result: Result
    caption: str


class DebugImage:
    """Draws on a thread of its own at low priority; of what it cannot keep up with the newest."""

    def __init__(self, node: Node, topics: Sequence[str], labels: Sequence[str]) -> None:
        self._node, self._labels = node, labels
        self._publishers_made = [
            node.create_publisher(ImageMessage, topic, RELIABLE) for topic in topics
        ]
        self._writer = ImageWriter("bgr8")
        self._palette = make_palette()
        self._overlay: Image = np.zeros((0, 0, 3), np.uint8)
        self.drawn = 0
        self._mailbox: Mailbox[DebugItem] = Mailbox("debug-image", self._draw, nice=NICE)

    @property
    def wanted(self) -> bool:
        """Whether somebody subscribes."""
        return any(p.get_subscription_count() for p in self._publishers_made)

    def put(self, item: DebugItem) -> None:
        """Draw this one next; returns at once."""
        self._mailbox.put(item)

    def close(self) -> None:
        """End the thread, drop the publishers."""
        self._mailbox.close()
        while self._publishers_made:
            self._node.destroy_publisher(self._publishers_made.pop())

    def _draw(self, item: DebugItem) -> None:
        frame = item.frame
        canvas = copy_as_bgr(frame, self._writer.prepare(frame.height, frame.width, frame))
        if isinstance(item.result, Detections):
            draw_boxes(canvas, item.result, self._labels, self._palette)
        elif isinstance(item.result, Segmentation):
            if self._overlay.shape != canvas.shape:
                self._overlay = np.zeros_like(canvas)
            paint_mask(item.result.mask, self._palette[:, ::-1], self._overlay)
            cv2.addWeighted(
                canvas, 1.0 - MASK_OPACITY, self._overlay, MASK_OPACITY, 0.0, dst=canvas
            )
        put_text(canvas, item.caption, (4, 16), (255, 255, 255))
        for publisher in self._publishers_made:
            publisher.publish(self._writer.message)
        self.drawn += 1


def draw_boxes(
    canvas: Image, detections: Detections, labels: Sequence[str], palette: Image
) -> None:
    """Draw boxes with label and score on a BGR image, in place."""
    for (x1, y1, x2, y2), score, class_id in zip(
        detections.boxes.round().astype(int).tolist(),
        detections.scores.tolist(),
        detections.class_ids.tolist(),
        strict=True,
    ):
        red, green, blue = palette[(class_id + 1) % 256].tolist()
        colour = (blue, green, red)
        cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, 2)
        name = labels[class_id] if class_id < len(labels) else str(class_id)
        put_text(canvas, f"{name} {score:.2f}", (x1 + 1, max(12, y1 - 4)), colour)


def put_text(canvas: Image, text: str, origin: tuple[int, int], colour: tuple) -> None:
    """Write text with a dark outline, readable on any ground."""
    cv2.putText(canvas, text, origin, _FONT, 0.5, (0, 0, 0), 3, cv2.LINE_AA)
    cv2.putText(canvas, text, origin, _FONT, 0.5, colour, 1, cv2.LINE_AA)
