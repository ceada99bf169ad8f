# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task node alone between a publisher and a subscription; what observers and statuses tell."""

from __future__ import annotations

import array
import threading
from collections.abc import Callable
from typing import Any

import ros_graph
from ros_graph import Inbox, Ros
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work


class Seen:
    """An observer: jobs that ended, with their works."""

    def __init__(self) -> None:
        self.items: list[tuple[JobRecord, Work]] = []
        self._condition = threading.Condition()

    def __call__(self, record: JobRecord, work: Work) -> None:
        with self._condition:
            self.items.append((record, work))
            self._condition.notify_all()

    def wait(
        self, count: int, wanted: Callable[[JobRecord], bool] = lambda record: True
    ) -> list[tuple[JobRecord, Work]]:
        """Wait for so many jobs that are wanted; returns those there are."""

        def find() -> list[tuple[JobRecord, Work]]:
            return [item for item in self.items if wanted(item[0])]

        with self._condition:
            assert self._condition.wait_for(lambda: len(find()) >= count, ros_graph.TIMEOUT_S)
            return find()

    def after(self, send: Callable[[], None]) -> JobRecord:
        """Call `send`, and wait for the next job to end."""
        count = len(self.items)
        send()
        return self.wait(count + 1)[-1][0]

    def of(self, task: str) -> list[tuple[JobRecord, Work]]:
        """The jobs of one task."""
        return [item for item in self.items if item[0].task == task]

    @property
    def variants(self) -> list[str]:
        """The variant of each job."""
        return [record.variant for record, _ in self.items]


def make_image(ros: Ros, size: tuple[int, int] = (48, 64), /, **changes: Any) -> Image:
    height, width = size
    message = Image(height=height, width=width, encoding="bgr8", step=width * 3)
    message.data = array.array("B", bytes(height * width * 3))
    message.header.stamp = ros.probe.get_clock().now().to_msg()
    message.header.frame_id = "front"
    for name, value in changes.items():
        setattr(message, name, value)
    return message


class Bench:
    """A task node with a publisher before it and a subscription behind it."""

    def __init__(self, ros: Ros, node_class: Any = DetectorNode, **values: Any) -> None:
        self.ros = ros
        # On a busy machine a millisecond of work may take a hundred.
        given = {"model": "null:1", "warmup_runs": 2, "deadline_ms": 500.0, **values}
        self.seen = Seen()
        self.node = ros.make(
            node_class, parameter_overrides=make_parameters(given), observer=self.seen
        )
        self.images = ros.advertise(Image, "image_raw")

    def start(self) -> Inbox:
        results = self.ros.listen(Detection2DArray, "detections")
        assert self.node.autostart(), self.node.fault
        self.ros.wait(lambda: self.images.get_subscription_count() == 1, "the subscription")
        self.ros.wait(results.subscription.get_publisher_count, "the publisher")
        self.ros.wait(lambda: self.node._results._publisher.get_subscription_count())
        return results

    def count(self, outcome: Outcome) -> int:
        return self.node.snapshot.outcomes[outcome]

    def send(self, message: Any, count: int) -> None:
        """Send a message; wait until it is the `count`-th to end and all observers have seen it.

        Outcomes are counted before observers are told, and the result is published by the first
        of them: neither says that what comes behind (timing, pictures, the test's own observer)
        has happened.
        """
        self.images.publish(message)
        self.ros.wait(
            lambda: sum(self.node.snapshot.outcomes.values()) == count, f"outcome {count}"
        )
        assert self.node.session.wait_idle(ros_graph.TIMEOUT_S)


class Log:
    """Takes what a node logs."""

    def __init__(self, node: Any) -> None:
        self.lines: list[str] = []
        names = ("info", "warning", "warn", "error")
        fields = dict.fromkeys(names, staticmethod(self.lines.append))
        node.get_logger = lambda: type("Logger", (), fields)

    def count(self, text: str) -> int:
        """Lines with this text."""
        return sum(text in line for line in self.lines)


def start_coordinator(ros: Ros, tables: str, **values: Any) -> Any:
    """The coordinator of a detector in another process, with a file of tables."""
    from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode

    given = {"tasks": ["detector"], "tables": [tables], **values}
    node = ros.make(CoordinatorNode, parameter_overrides=make_parameters(given))
    assert node.autostart(), node.fault
    return node


def make_parameters(values: dict[str, Any]) -> list[Any]:
    from rclpy.parameter import Parameter

    return [Parameter(name, value=value) for name, value in values.items()]


def diagnostics_of(inbox: Inbox, name: str, level: bytes | None = None) -> dict[str, str]:
    """Wait for a status of that name (and level) and return its message and values."""

    def find(messages: list[Any]) -> Any:
        for message in reversed(messages):
            for status in message.status:
                if status.name == name and level in (None, status.level):
                    return status
        return None

    status = inbox.wait(find, f"diagnostics {name} at level {level!r}")
    return {"": status.message, **{v.key: v.value for v in status.values}}


def wait_for_value(inbox: Inbox, name: str, key: str, text: str) -> dict[str, str]:
    """Wait for a status of that name with `text` in the value of `key`; returns it."""

    def find(messages: list[Any]) -> Any:
        for message in messages:
            for status in message.status:
                values = {"": status.message, **{v.key: v.value for v in status.values}}
                if status.name == name and text in values.get(key, ""):
                    return values
        return None

    found: dict[str, str] = inbox.wait(find, f"diagnostics {name} with {key}: {text}")
    return found
