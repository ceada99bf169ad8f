# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames for tasks: one stream, from a camera or an image topic, shared by its tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError
from jetson_dnn_rt.cameras.frame_sizes import FrameSizes
from jetson_dnn_rt.cameras.image_messages import decode_image, stamp_to_ns, view_image
from jetson_dnn_rt.cameras.serialized_images import UNREADABLE_HEADER, read_image
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.distribution import SubscriptionEventCallbacks, count_connected
from jetson_dnn_rt.nodes.process.qos import OVERRIDABLE, make_events, make_qos
from jetson_dnn_rt.nodes.tasks.conversion import unusable_frame
from jetson_dnn_rt.nodes.tasks.stamps import StampClock
from jetson_dnn_rt.platforms.shared_memory import find_lost_ports
from jetson_dnn_rt.safety.faults import FAULTS

if TYPE_CHECKING:
    from rclpy.node import Node
    from sensor_msgs.msg import CompressedImage

UNREADABLE = "unreadable"
"""Reason of a frame whose conversion failed in an unforeseen way."""

SILENCE_S = 5.0
"""A topic without an image for so long after it was subscribed to is logged. As long as none comes
it is looked at again after the same time, and each other reason is logged, once."""

NOT_ACCEPTED = "the task's listener failed"
NOT_RELEASED = "the frame could not be released"


class FrameListener(Protocol):
    """Interface of a task to a stream. The methods must return at once."""

    def accept(self, frame: Frame, capture_ns: int) -> bool:
        """Whether the task wants this frame; `capture_ns` is on the steady clock."""

    def on_bad_frame(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Count a frame that cannot be used."""


class Fanout:
    """Listeners of one stream; a frame is released in all of them at one instant.

    `submit` takes the names of the tasks, the frame and its capture time. When `remove` has
    returned, the listener is not in a call and gets no more calls. A listener that raises loses
    that frame, as a bad one; the others get it.
    """

    def __init__(self, submit: Callable[[Sequence[str], Frame, int], None]) -> None:
        self._submit = submit
        self._lock = threading.Lock()
        self._listeners: dict[str, FrameListener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    @property
    def first(self) -> str:
        """Name of the listener that has been there longest; empty without one."""
        with self._lock:
            return next(iter(self._listeners), "")

    def add(self, name: str, listener: FrameListener) -> None:
        """Add or replace the listener of this name."""
        with self._lock:
            self._listeners[name] = listener

    def remove(self, name: str) -> None:
        """Forget a listener; nothing happens when it is not there."""
        with self._lock:
            self._listeners.pop(name, None)

    def deliver(self, frame: Frame, capture_ns: int) -> None:
        """Deliver a frame to all listeners."""
        with self._lock:
            tasks = []
            for name, listener in self._listeners.items():
                try:
                    if listener.accept(frame, capture_ns):
                        tasks.append(name)
                except Exception as error:
                    FAULTS.note(f"task {name}: listener", error)
                    self._reject(name, frame, capture_ns, NOT_ACCEPTED)
            if not tasks:
                return
            try:
                self._submit(tasks, frame, capture_ns)
            except Exception as error:
                FAULTS.note("release of a frame", error)
                for name in tasks:
                    self._reject(name, frame, capture_ns, NOT_RELEASED)

    def reject(self, frame: Frame, capture_ns: int, reason: str) -> None:
        """Tell all listeners of a frame that cannot be used."""
        with self._lock:
            for name in self._listeners:
                self._reject(name, frame, capture_ns, reason)

    def _reject(self, name: str, frame: Frame, capture_ns: int, reason: str) -> None:
        try:
            self._listeners[name].on_bad_frame(frame, capture_ns, reason)
        except Exception as error:
            FAULTS.note(f"task {name}: listener", error)


@dataclass(frozen=True)
class InputKey:
    """Settings of a subscription: tasks with equal ones share it."""

    topic: str  # resolved, without the transport's suffix
    transport: str = "raw"
    qos: str = "SENSOR_DATA"
    depth: int = 1
    deadline_ms: float = 0.0  # longest time between two images before an event; 0 = none


class ImageInput:
    """Hands images of a topic on as frames, from `open` to `close`."""

    def __init__(
        self, node: Node, key: InputKey, submit: Callable[[Sequence[str], Frame, int], None]
    ) -> None:
        self.key = key
        self.fanout = Fanout(submit)
        self.deadline_events = 0
        self.incompatible = ""
        self._node = node
        self.sizes = FrameSizes(key.topic)
        self.stamps = StampClock(key.topic, lambda: node.get_clock().now().nanoseconds)
        self._sequence = 0
        self._said: set[str] = set()
        raw = key.transport == "raw"
        self._read: Callable[[Any], Any] = read_image if raw else lambda message: message
        self._convert = view_image if raw else decode_image
        self._topic = key.topic if raw else f"{key.topic}/compressed"
        self._subscription: Any = None
        self._silence: Any = None  # timer, until the first image
        self._silent_since_ns = 0
        self._lost: list[str] = []
        self._look_again_ns = 0

    def open(self) -> None:
        """Subscribe; nothing happens when it has done so."""
        if self._subscription is not None:
            return
        from sensor_msgs.msg import CompressedImage, Image

        key, raw = self.key, self.key.transport == "raw"
        self._subscription = self._node.create_subscription(
            Image if raw else CompressedImage,
            self._topic,
            self._on_message,
            make_qos(key.qos, key.depth, key.deadline_ms),
            event_callbacks=make_events(
                SubscriptionEventCallbacks, self._on_incompatible, self._on_deadline
            ),
            qos_overriding_options=OVERRIDABLE(),
            raw=raw,
        )
        self._silent_since_ns = time.monotonic_ns()
        self._silence = self._node.create_timer(SILENCE_S, self._on_silence)

    def close(self) -> None:
        """Destroy the subscription, if there is one."""
        if self._subscription is not None:
            self._node.destroy_subscription(self._subscription)
            self._end_silence()

    def count_publishers(self) -> dict[str, int]:
        """Count the publishers of the topic, and those connected, where rclpy tells these."""
        known = self._node.count_publishers(self._topic)
        connected = count_connected(self._subscription)
        return {"publishers": known} | (
            {} if connected is None else {"publishers_connected": connected}
        )

    def explain_silence(self) -> str:
        """Say what is known of why no image comes: no publisher, no connection, or no message."""
        counts = self.count_publishers()
        known = counts["publishers"]
        if not known:
            return f"no publisher of {self._topic} was discovered"
        they = "1 publisher" if known == 1 else f"{known} publishers"
        connected = counts.get("publishers_connected", known)
        if not connected:
            return f"{they} of {self._topic}, not connected"
        if lost := self._lost_ports():
            return (
                f"{they} of {self._topic}, from which nothing comes, as Fast DDS has lost the "
                f"shared memory that this process receives in ({', '.join(lost)}): start it again"
            )
        return f"{they} of {self._topic}, from which nothing comes"

    def _lost_ports(self) -> list[str]:
        """Lost ports of this process; looked for every `SILENCE_S`, for that takes some ms."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._look_again_ns:
            self._look_again_ns = now_ns + int(SILENCE_S * 1e9)
            self._lost = find_lost_ports()
        return self._lost

    def _on_silence(self) -> None:
        if self._sequence:
            self._end_silence()
            return
        reason = self.explain_silence()
        if reason not in self._said:
            self._said.add(reason)
            seconds = (time.monotonic_ns() - self._silent_since_ns) / 1e9
            self._node.get_logger().warning(
                f"no image {seconds:.0f} s after subscribing: {reason} "
                "(docs/troubleshooting.md, no output)"
            )

    def _end_silence(self) -> None:
        timer, self._silence = self._silence, None
        if timer is not None:
            self._node.destroy_timer(timer)

    def _on_message(self, given: bytes | CompressedImage) -> None:
        arrival_ns = time.monotonic_ns()
        sequence, self._sequence = self._sequence, self._sequence + 1
        try:
            message = self._read(given)
        except BadImageError as error:
            self._refuse(error, UNREADABLE_HEADER, sequence, arrival_ns)
            return
        capture_ns = self.stamps.capture_ns(stamp_to_ns(message.header), arrival_ns)
        try:
            frame = self._convert(message, sequence)
        except BadImageError as error:
            self._refuse(error, message.header, sequence, capture_ns)
            return
        except Exception as error:  # whatever it is, every task counts the frame
            FAULTS.note(f"image of {self.key.topic}", error)
            self.fanout.reject(unusable_frame(message.header, sequence), capture_ns, UNREADABLE)
            return
        self.sizes.observe(frame, self._node.get_logger().warning)
        self.fanout.deliver(frame, capture_ns)

    def _refuse(self, error: BadImageError, header: Any, sequence: int, capture_ns: int) -> None:
        """Tell the tasks of a message that is not an image, and log the first of its kind."""
        if error.reason not in self._said:
            self._said.add(error.reason)
            self._node.get_logger().error(
                f"{self.key.topic}: {error} (logged once; later ones are counted as failed)"
            )
        self.fanout.reject(unusable_frame(header, sequence), capture_ns, error.reason)

    def _on_deadline(self, count: int) -> None:
        self.deadline_events = count

    def _on_incompatible(self, policy: str) -> None:
        self.incompatible = policy
        self._node.get_logger().error(
            f"{self.key.topic}: a publisher offers another {policy} than input_qos "
            f"{self.key.qos} requests: no image will come from it; change input_qos, or "
            "qos_overrides of either side"
        )
