# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames for tasks: one stream, from a camera or an image topic, shared by its tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError
from jetson_dnn_rt.cameras.frame_sizes import FrameSizes
from jetson_dnn_rt.cameras.image_messages import decode_image, stamp_to_ns, view_image
from jetson_dnn_rt.cameras.serialized_images import UNREADABLE_HEADER, read_image
from jetson_dnn_rt.cameras.stamps import STAMP, StampClock
from jetson_dnn_rt.config.task import AUTO
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.process.distribution import (
    SubscriptionEventCallbacks,
    count_connected,
    given_parameters,
    take_with_info,
)
from jetson_dnn_rt.nodes.process.parameters import SIM_TIME
from jetson_dnn_rt.nodes.process.qos import (
    BEST_EFFORT_TEXT,
    OVERRIDABLE,
    RELIABLE_TEXT,
    UNKNOWN,
    make_events,
    make_qos,
    read_reliability,
)
from jetson_dnn_rt.nodes.reports.duplicates import describe_endpoint
from jetson_dnn_rt.nodes.reports.losses import LOST_SHARE, Losses
from jetson_dnn_rt.nodes.tasks.conversion import unusable_frame
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


_RELIABLE, _BEST_EFFORT = "DEFAULT", "SENSOR_DATA"
"""The QoS of ``auto``, by name."""

LOOK_PERIOD_S = 0.25
"""Period of looking at a topic's publishers and message counts."""

OVERLAP_NS = 1_000_000_000
"""Time after a change of the subscription in which copies of what the old one delivered may still
wait in the queue of the new one."""

RELIABLE_DEPTH = 4
"""Least depth of a reliable subscription of ``auto``. An image takes a place in the queue while
its fragments are put together: with a depth of 1 the next image would replace it half-done."""


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
    qos: str = AUTO
    depth: int = 1
    deadline_ms: float = 0.0  # longest time between two images before an event; 0 = none
    stamp_clock: str = "synchronised"


class ImageInput:
    """Hands images of a topic on as frames, from `open` to `close`.

    With the QoS ``auto`` the subscription is reliable if every publisher is, else best effort;
    until a publisher is known there is one of each. A subscription that is to be replaced stays
    until the new one is connected, so that no image is missed. Meanwhile images may come twice:
    duplicates are recognised by the publisher's sequence number, else by their stamp.
    """

    def __init__(
        self, node: Node, key: InputKey, submit: Callable[[Sequence[str], Frame, int], None]
    ) -> None:
        self.key = key
        self.fanout = Fanout(submit)
        self.deadline_events = 0
        self.incompatible = ""
        self._node = node
        self.sizes = FrameSizes(key.topic)
        self.stamps = StampClock(
            key.topic,
            lambda: node.get_clock().now().nanoseconds,
            synchronised=key.stamp_clock == "synchronised",
            simulated=lambda: bool(node.get_parameter(SIM_TIME).value),
        )
        self._sequence = 0
        self._said: set[str] = set()
        raw = key.transport == "raw"
        self._read: Callable[[Any], Any] = read_image if raw else lambda message: message
        self._convert = view_image if raw else decode_image
        self._topic = key.topic if raw else f"{key.topic}/compressed"
        self._subscriptions: dict[str, Any] = {}  # by the name of their QoS
        self._proven: set[str] = set()  # names of those that have delivered
        self._wanted: tuple[str, ...] = ()
        self._look_timer: Any = None
        self._publishers: list[Any] = []  # rclpy's infos, as of the last look
        self._last_stamp_ns = 0
        self._alone_ns = 0  # from when on nothing can come twice
        self.losses = Losses()
        self._silence: Any = None  # timer, until the first image
        self._silent_since_ns = 0
        self._lost: list[str] = []
        self._look_again_ns = 0

    def open(self) -> None:
        """Subscribe; nothing happens when it has done so."""
        if self._subscriptions:
            return
        self._silent_since_ns = time.monotonic_ns()
        self._look()
        self._look_timer = self._node.create_timer(LOOK_PERIOD_S, self._look)
        self._silence = self._node.create_timer(SILENCE_S, self._on_silence)

    def close(self) -> None:
        """Destroy the subscription, if there is one."""
        for name in list(self._subscriptions):
            self._unsubscribe(name)
        self._end_silence()
        timer, self._look_timer = self._look_timer, None
        if timer is not None:
            self._node.destroy_timer(timer)

    def _subscribe(self, name: str) -> None:
        from sensor_msgs.msg import CompressedImage, Image

        key, raw = self.key, self.key.transport == "raw"
        reliable = key.qos == AUTO and name == _RELIABLE
        self._subscriptions[name] = self._node.create_subscription(
            Image if raw else CompressedImage,
            self._topic,
            take_with_info(partial(self._on_message, name)),
            make_qos(
                name, max(key.depth, RELIABLE_DEPTH) if reliable else key.depth, key.deadline_ms
            ),
            event_callbacks=make_events(
                SubscriptionEventCallbacks,
                self._on_incompatible,
                lambda count: self._on_deadline(name, count),
                lambda count: self._on_lost(name, count),
            ),
            qos_overriding_options=OVERRIDABLE(),
            raw=raw,
        )

    def _unsubscribe(self, name: str) -> None:
        self._proven.discard(name)
        self._node.destroy_subscription(self._subscriptions.pop(name))
        self._alone_ns = time.monotonic_ns() + OVERLAP_NS

    def _look(self) -> None:
        """Mark the message counts; subscribe and unsubscribe as the present publishers require."""
        self.losses.mark(time.monotonic_ns())
        self._publishers = self._node.get_publishers_info_by_topic(self._topic)
        self._wanted = self._choose()
        missing = [name for name in self._wanted if name not in self._subscriptions]
        for name in missing:
            self._subscribe(name)
        # A new subscription is not yet connected on the publishers' side.
        if not missing and all(map(self._can_deliver, self._wanted)):
            for name in set(self._subscriptions) - set(self._wanted):
                self._unsubscribe(name)

    def _choose(self) -> tuple[str, ...]:
        """Choose the QoS of the subscriptions, by name; two until a publisher is known."""
        if self.key.qos != AUTO:
            return (self.key.qos,)
        topic = self._node.resolve_topic_name(self._topic)
        if f"qos_overrides.{topic}.subscription.reliability" in given_parameters(self._node):
            return (_BEST_EFFORT,)  # rclpy replaces its reliability by the override
        offered = read_reliability(self._publishers)
        if offered == UNKNOWN:
            # When the last publisher is gone, the next one is probably like it.
            return self._wanted or (_RELIABLE, _BEST_EFFORT)
        return (_RELIABLE if offered == RELIABLE_TEXT else _BEST_EFFORT,)

    def _can_deliver(self, name: str) -> bool:
        connected = count_connected(self._subscriptions[name])
        return name in self._proven or connected is None or connected >= len(self._publishers)

    def count_publishers(self) -> dict[str, int]:
        """Count the publishers of the topic, and those connected, where rclpy tells these."""
        known = self._node.count_publishers(self._topic)
        connected = [count_connected(one) for one in self._subscriptions.values()]
        told = [count for count in connected if count is not None]
        return {"publishers": known} | ({"publishers_connected": max(told)} if told else {})

    def describe_delivery(self) -> dict[str, object]:
        """Values for diagnostics: how many images arrive, and the reliability of both sides."""
        counts = self.losses.snapshot()
        return {
            "images_arrived": counts.arrived,
            "images_lost": counts.lost,
            "arriving_hz": counts.arriving_hz,
            "published_hz": counts.published_hz,
            "publisher_reliability": read_reliability(self._publishers),
            "subscription_reliability": read_reliability(list(self._subscriptions.values())),
        }

    def explain_mixture(self) -> str:
        """Warn of several publishers on the topic; empty with one at most."""
        if len(self._publishers) < 2:
            return ""
        nodes = ", ".join(sorted(map(describe_endpoint, self._publishers)))
        return (
            f"{len(self._publishers)} publishers of {self._topic} ({nodes}), whose images are "
            "mixed; fix: end all but one, or give each a topic of its own"
        )

    def explain_losses(self) -> str:
        """Explain why published images do not arrive, with the fix."""
        offers = read_reliability(self._publishers)
        takes = read_reliability(list(self._subscriptions.values()))
        if offers == takes == RELIABLE_TEXT:
            return (
                "although publisher and subscription are reliable: the pictures are too large for "
                "the shared memory of the publisher's process or for the network, or the machine "
                "is too busy; fix: give its process the Fast DDS profile that jetson-dnn-rt "
                "doctor names"
            )
        if offers == RELIABLE_TEXT and takes == BEST_EFFORT_TEXT:
            fix = "set input_qos: auto, and no qos_overrides"
        else:
            fix = (
                "make the publisher reliable, or give its process the Fast DDS profile that "
                "jetson-dnn-rt doctor names"
            )
        return f"the publisher is {offers}, the subscription {takes}; fix: {fix}"

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
        if self.losses.snapshot().lost_share > LOST_SHARE:
            return f"{they} of {self._topic}, whose images are lost: {self.explain_losses()}"
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

    def _on_message(self, name: str, given: bytes | CompressedImage, info: Any) -> None:
        arrival_ns = time.monotonic_ns()
        self._proven.add(name)
        if name not in self._wanted and not self._proven.isdisjoint(self._wanted):
            return  # its replacement has begun to deliver
        overlaps = len(self._subscriptions) > 1 or arrival_ns < self._alone_ns
        is_new = self.losses.observe(info, alone=len(self._publishers) == 1 and not overlaps)
        if is_new is False:
            return
        try:
            message = self._read(given)
        except BadImageError as error:
            self._refuse(error, UNREADABLE_HEADER, self._count(), arrival_ns, STAMP)
            return
        stamp_ns = stamp_to_ns(message.header)
        if is_new is None and overlaps and stamp_ns and stamp_ns == self._last_stamp_ns:
            return
        self._last_stamp_ns, sequence = stamp_ns, self._count()
        capture_ns, doubt = self.stamps.judge(stamp_ns, arrival_ns)
        try:
            frame = self._convert(message, sequence)
        except BadImageError as error:
            self._refuse(error, message.header, sequence, capture_ns, doubt)
            return
        except Exception as error:  # whatever it is, every task counts the frame
            FAULTS.note(f"image of {self.key.topic}", error)
            frame = unusable_frame(message.header, sequence, doubt)
            self.fanout.reject(frame, capture_ns, UNREADABLE)
            return
        frame.doubt = doubt
        self.sizes.observe(frame, self._node.get_logger().warning)
        self.fanout.deliver(frame, capture_ns)

    def _count(self) -> int:
        sequence, self._sequence = self._sequence, self._sequence + 1
        return sequence

    def _refuse(
        self, error: BadImageError, header: Any, sequence: int, capture_ns: int, doubt: str
    ) -> None:
        """Tell the tasks of a message that is not an image, and log the first of its kind."""
        if error.reason not in self._said:
            self._said.add(error.reason)
            self._node.get_logger().error(
                f"{self.key.topic}: {error} (logged once; later ones are counted as failed)"
            )
        self.fanout.reject(unusable_frame(header, sequence, doubt), capture_ns, error.reason)

    def _on_deadline(self, name: str, count: int) -> None:
        if self._wanted[:1] == (name,):  # of two subscriptions each tells of the same silence
            self.deadline_events += count

    def _on_lost(self, name: str, count: int) -> None:
        if self._wanted == (name,):  # else the other subscription may have received it
            self.losses.add_events(count)

    def _on_incompatible(self, policy: str) -> None:
        if self.key.qos == AUTO and policy == "RELIABILITY":
            return  # the next look decides
        self.incompatible = policy
        self._node.get_logger().error(
            f"{self.key.topic}: a publisher offers another {policy} than input_qos "
            f"{self.key.qos} requests: no image will come from it; change input_qos, or "
            "qos_overrides of either side"
        )
