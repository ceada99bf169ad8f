# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Real rclpy on real DDS: a context, a spinning thread and a node that listens and sends."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import rclpy

try:
    from rclpy.event_handler import PublisherEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions

from jetson_dnn_rt.nodes.process.spinner import Spinner

TIMEOUT_S = 120.0


class Inbox:
    """Messages of one subscription, in order."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._condition = threading.Condition()

    def take(self, message: Any) -> None:
        with self._condition:
            self.messages.append(message)
            self._condition.notify_all()

    def wait(self, wanted: Callable[[list[Any]], Any], what: str = "the message") -> Any:
        """Wait until `wanted` returns something true for the messages, and return that."""
        with self._condition:
            end_s = time.monotonic() + TIMEOUT_S
            while not (found := wanted(self.messages)):
                if not self._condition.wait(end_s - time.monotonic()):
                    raise TimeoutError(f"{what} did not come in {TIMEOUT_S} s")
            return found

    def wait_count(self, count: int) -> list[Any]:
        return self.wait(lambda messages: len(messages) >= count and messages, f"message {count}")

    def clear(self) -> None:
        with self._condition:
            self.messages.clear()


class Ros:
    """A context with one spinning thread, as a process has it."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        rclpy.init(args=[], context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self.spinner = Spinner(self.context)
        self._nodes: list[Node] = []
        self.probe = Node("probe", context=self.context)
        self._add(self.probe)
        self.spinner.start()

    def _add(self, node: Node) -> None:
        self.spinner.add(node)
        self._nodes.append(node)

    def make(self, kind: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a node, with its children, on the spinning thread."""

        def make() -> Any:
            node = kind(*args, context=self.context, **options)
            self._add(node)
            return node

        return self.call(make)

    def call(self, function: Callable[[], Any]) -> Any:
        """Run a function on the spinning thread."""
        return self.spinner.call(function, TIMEOUT_S)

    def set(self, node: Node, **values: Any) -> Any:
        """Set parameters as ``ros2 param set`` does; returns the result of the first."""
        from rclpy.parameter import Parameter

        parameters = [Parameter(name, value=value) for name, value in values.items()]
        return self.call(lambda: node.set_parameters(parameters))[0]

    def set_by_service(self, name: str, **values: Any) -> Any:
        """Set parameters of the node of that name over its service; returns the first result."""
        from rcl_interfaces.srv import SetParameters
        from rclpy.parameter import Parameter

        parameters = [Parameter(n, value=v).to_parameter_msg() for n, v in values.items()]
        request = SetParameters.Request(parameters=parameters)
        return self.request(SetParameters, f"{name}/set_parameters", request).results[0]

    def listen(self, kind: Any, topic: str, qos: QoSProfile | int = 10) -> Inbox:
        inbox = Inbox()
        subscription = self.call(
            lambda: self.probe.create_subscription(kind, topic, inbox.take, qos)
        )
        inbox.subscription = subscription  # type: ignore[attr-defined]
        return inbox

    def advertise(
        self, kind: Any, topic: str, qos: QoSProfile | int = qos_profile_sensor_data
    ) -> Any:
        # rclpy's own event callbacks use a deprecated function, which is an error in tests.
        events = PublisherEventCallbacks(use_default_callbacks=False)
        return self.call(
            lambda: self.probe.create_publisher(kind, topic, qos, event_callbacks=events)
        )

    def wait(self, condition: Callable[[], Any], what: str = "the condition") -> Any:
        """Wait for something that sends no event (discovery, counts)."""
        end_s = time.monotonic() + TIMEOUT_S
        while not (found := condition()):
            if time.monotonic() > end_s:
                raise TimeoutError(f"{what} did not come true in {TIMEOUT_S} s")
            time.sleep(0.005)
        return found

    def request(self, kind: Any, name: str, request: Any) -> Any:
        """Call a service and wait for its answer.

        The request is sent again after ten seconds: Fast DDS drops an answer when the server has
        not discovered the client's half of it in 0.1 s, which happens between processes.
        """
        client = self.call(lambda: self.probe.create_client(kind, name))
        assert client.wait_for_service(TIMEOUT_S)
        done, answers = threading.Event(), []

        def take(future: Any) -> None:
            answers.append(future.result())
            done.set()

        for _ in range(int(TIMEOUT_S / 10.0)):
            self.call(lambda: client.call_async(request)).add_done_callback(take)
            if done.wait(10.0):
                return answers[0]
        raise TimeoutError(f"{name} does not answer")

    def close(self) -> None:
        for node in reversed(self._nodes):
            if hasattr(node, "trigger_shutdown"):
                node.trigger_shutdown()
            self.call(node.destroy_node)
        assert self.spinner.stop(TIMEOUT_S)
        assert self.spinner.error is None, self.spinner.error
        self.spinner.executor.shutdown()
        self.context.try_shutdown()
        # rclpy's lifecycle nodes are reference cycles that hold the DDS participant, and a domain
        # takes only so many of them.
        self._nodes.clear()
        del self.probe, self.spinner
        gc.collect()
