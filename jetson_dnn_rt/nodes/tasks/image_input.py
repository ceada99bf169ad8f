"""One subscription of one image topic, whatever the number of tasks on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError
from jetson_dnn_rt.cameras.image_messages import decode_image, stamp_to_ns, view_image
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.qos import (
    OVERRIDABLE,
    SubscriptionEventCallbacks,
    make_events,
    make_qos,
)
from jetson_dnn_rt.nodes.tasks.conversion import unusable_frame
from jetson_dnn_rt.nodes.tasks.fanout import Fanout
from jetson_dnn_rt.nodes.tasks.stamps import StampClock
from jetson_dnn_rt.safety.faults import FAULTS

if TYPE_CHECKING:
    from rclpy.node import Node
    from sensor_msgs.msg import CompressedImage, Image

UNREADABLE = "unreadable"
"""Reason of a frame on which the conversion failed in a way that it does not foresee."""


@dataclass(frozen=True)
class InputKey:
    """What makes a subscription: tasks that agree in all of it share one.

    Attributes
    ----------
    topic : str
        Resolved name of the image topic, without the transport's suffix.
    transport : str
        ``raw`` or ``compressed``.
    qos, depth : str, int
        Name of the profile and length of the queue.
    deadline_ms : float
        Longest time between two images before an event is raised; 0 = none.
    """

    topic: str
    transport: str = "raw"
    qos: str = "SENSOR_DATA"
    depth: int = 1
    deadline_ms: float = 0.0


class ImageInput:
    """Subscribes to images and hands them on as frames.

    Parameters
    ----------
    node : Node
        Owns the subscription.
    key : InputKey
        What to subscribe to.
    submit : callable
        Releases a frame in tasks, see `Fanout`.
    """

    def __init__(
        self, node: Node, key: InputKey, submit: Callable[[Sequence[str], Frame, int], None]
    ) -> None:
        from sensor_msgs.msg import CompressedImage, Image

        self.key = key
        self.fanout = Fanout(submit)
        self.deadline_events = 0
        self.incompatible = ""
        self._node = node
        self._stamps = StampClock(key.topic, lambda: node.get_clock().now().nanoseconds)
        self._sequence = 0
        self._said: set[str] = set()
        raw = key.transport == "raw"
        self._convert = view_image if raw else decode_image
        self._subscription = node.create_subscription(
            Image if raw else CompressedImage,
            key.topic if raw else f"{key.topic}/compressed",
            self._on_message,
            make_qos(key.qos, key.depth, key.deadline_ms),
            event_callbacks=make_events(
                SubscriptionEventCallbacks, self._on_incompatible, self._on_deadline
            ),
            qos_overriding_options=OVERRIDABLE(),
        )

    @property
    def distrusted_stamps(self) -> int:
        """Frames whose stamp was not believed."""
        return self._stamps.distrusted

    def close(self) -> None:
        """Drop the subscription."""
        self._node.destroy_subscription(self._subscription)

    def _on_message(self, message: Image | CompressedImage) -> None:
        arrival_ns = time.monotonic_ns()
        sequence, self._sequence = self._sequence, self._sequence + 1
        capture_ns = self._stamps.capture_ns(stamp_to_ns(message.header), arrival_ns)
        try:
            frame = self._convert(message, sequence)
        except BadImageError as error:
            if error.reason not in self._said:
                self._said.add(error.reason)
                self._node.get_logger().error(
                    f"{self.key.topic}: {error} (said once; later ones are counted as failed)"
                )
            self.fanout.reject(unusable_frame(message.header, sequence), capture_ns, error.reason)
            return
        except Exception as error:  # whatever it is, every task counts the frame
            FAULTS.note(f"image of {self.key.topic}", error)
            self.fanout.reject(unusable_frame(message.header, sequence), capture_ns, UNREADABLE)
            return
        self.fanout.deliver(frame, capture_ns)

    def _on_deadline(self, count: int) -> None:
        self.deadline_events = count

    def _on_incompatible(self, policy: str) -> None:
        self.incompatible = policy
        self._node.get_logger().error(
            f"{self.key.topic}: a publisher offers another {policy} than input_qos "
            f"{self.key.qos} requests: no image will come from it; change input_qos, or "
            "qos_overrides of either side"
        )
