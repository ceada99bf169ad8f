# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Feeds a `Graph` from the topics of any running graph, whose tasks it finds by itself."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy

from jetson_dnn_rt.nodes.process.context import open_context
from jetson_dnn_rt.nodes.process.distribution import SubscriptionEventCallbacks
from jetson_dnn_rt.nodes.process.spinner import Spinner
from jetson_dnn_rt.watch.graph import Graph

if TYPE_CHECKING:
    from rclpy.subscription import Subscription

TIMING = "/debug/timing"
"""Every task publishes ``<its node>/debug/timing``, a message for each frame that ends."""

TYPE = "diagnostic_msgs/msg/DiagnosticArray"

DISCOVERY_PERIOD_S = 1.0

MOST_STATUSES, MOST_VALUES = 256, 512
"""Of a message, and of a status: the message or status that has more is dropped."""


@contextlib.contextmanager
def watching(graph: Graph, namespace: str = "/") -> Iterator[Spinner]:
    """Feed `graph` from a node of its own, which spins on a thread of its own."""
    context = open_context()
    with contextlib.ExitStack() as ended:
        ended.callback(context.try_shutdown)
        # An underscore hides a node from `ros2 node list`.
        node = Node(
            f"_jetson_dnn_rt_watch_{os.getpid()}",
            context=context,
            enable_rosout=False,
            start_parameter_services=False,
        )
        ended.callback(node.destroy_node)
        spinner = Spinner(context)
        ended.callback(spinner.executor.shutdown)
        spinner.add(node)
        GraphSubscriber(node, graph, namespace)
        ended.callback(spinner.stop)
        spinner.start()
        yield spinner


class GraphSubscriber:
    """Subscribes with `node`, which others spin, to every task below `namespace`.

    Tasks that start later are found within a second, those that end are marked as gone. Messages
    are timed by their arrival, so it does not matter which clock the graph runs by. Subscriptions
    are best effort: no task waits for one that watches it.
    """

    def __init__(self, node: Node, graph: Graph, namespace: str = "/") -> None:
        self._node, self._graph = node, graph
        self._prefix = f"/{namespace.strip('/')}/" if namespace.strip("/") else "/"
        self._tasks: dict[str, Subscription] = {}
        self._lock, self._closed = threading.Lock(), False
        self._diagnostics = self._subscribe("/diagnostics", self._take_diagnostics)
        # The node's own clock stands still where a simulation does.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(DISCOVERY_PERIOD_S, self.discover, clock=steady)
        self.discover()

    def discover(self) -> None:
        """Look for tasks now, on the thread that spins the node."""
        node = self._node
        present = {
            name[: -len(TIMING)]
            for name, types in node.get_topic_names_and_types()
            if name.startswith(self._prefix) and name.endswith(TIMING) and TYPE in types
            # Our own subscriptions keep their topics in the graph.
            and node.count_publishers(name)
        }  # fmt: skip
        with self._lock:
            if self._closed:
                return
            known = self._graph.set_present(present - {""})
            for task in known - set(self._tasks):
                take = partial(self._take_timing, task)
                self._tasks[task] = self._subscribe(f"{task}{TIMING}", take)
            for task in set(self._tasks) - known:
                node.destroy_subscription(self._tasks.pop(task))

    def close(self) -> None:
        """Destroy what was made; on any thread, as rqt does with a node that it spins."""
        self._node.destroy_timer(self._timer)
        with self._lock:
            self._closed = True
            for subscription in (self._diagnostics, *self._tasks.values()):
                self._node.destroy_subscription(subscription)
            self._tasks.clear()

    def _subscribe(self, topic: str, take: Callable[[DiagnosticArray], None]) -> Subscription:
        qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
        # Without rclpy's own: this matches every publisher, and executors trip over events.
        events = SubscriptionEventCallbacks(use_default_callbacks=False)
        return self._node.create_subscription(
            DiagnosticArray, topic, take, qos, event_callbacks=events
        )

    def _take_timing(self, task: str, message: DiagnosticArray) -> None:
        if len(message.status) != 1:
            self._graph.drop("statuses")
        elif (values := self._read(message.status[0])) is not None:
            stamp = message.header.stamp
            self._graph.add_frame(task, values, stamp.sec * 10**9 + stamp.nanosec)

    def _take_diagnostics(self, message: DiagnosticArray) -> None:
        if len(message.status) > MOST_STATUSES:
            self._graph.drop("statuses")
            return
        for status in message.status:
            # Without a namespace the names of older nodes, which say none, are taken as well.
            if self._prefix not in ("/", status.name[: len(self._prefix)]):
                continue
            if (values := self._read(status)) is not None:
                level = int.from_bytes(status.level, "little")
                self._graph.add_status(status.name, level, status.message, values)

    def _read(self, status: DiagnosticStatus) -> dict[str, str] | None:
        if len(status.values) > MOST_VALUES:
            self._graph.drop("values")
            return None
        return {one.key: one.value for one in status.values}
