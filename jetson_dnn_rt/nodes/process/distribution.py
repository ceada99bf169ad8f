# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of rclpy that differ between ROS 2 distributions, or that are private to it.

Every use is in this module, with another way for an rclpy without the name; `test/ros_api` holds
what the distributions have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lifecycle_msgs.srv import GetAvailableTransitions, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image

try:
    from rclpy.event_handler import (
        PublisherEventCallbacks,
        SubscriptionEventCallbacks,
        UnsupportedEventTypeError,
    )
except ImportError:  # Humble
    from rclpy.qos_event import (
        PublisherEventCallbacks,
        SubscriptionEventCallbacks,
        UnsupportedEventTypeError,
    )

try:
    from rclpy.experimental import EventsExecutor
except ImportError:  # Humble, and Jazzy before rclpy 7.1.4
    EventsExecutor = None

if TYPE_CHECKING:
    from rclpy.context import Context
    from rclpy.executors import Executor
    from rclpy.node import Node

__all__ = [
    "PublisherEventCallbacks",
    "SubscriptionEventCallbacks",
    "UnsupportedEventTypeError",
    "can_poll",
    "count_connected",
    "find_state",
    "find_transitions",
    "given_parameters",
    "make_executor",
    "make_image",
    "release_state",
    "take_event",
    "take_with_info",
]


def make_executor(context: Context) -> Executor:
    """Make the fastest single-threaded executor of this ROS distribution.

    A MultiThreadedExecutor loses images and has tails of 40 to 200 ms; images need one thread.
    """
    return (EventsExecutor or SingleThreadedExecutor)(context=context)


def make_image(encoding: str) -> Image:
    """Make an `Image` that takes an `array.array` for its data as it is.

    Since Jazzy a message copies it, unless it checks its fields.
    """
    try:
        return Image(encoding=encoding, check_fields=True)
    except AssertionError:  # Humble: it always checks
        return Image(encoding=encoding)


def given_parameters(node: Node) -> Collection[str]:
    """Names of the parameters that the configuration sets for a node, declared or not."""
    try:
        return node._parameter_overrides.keys()
    except AttributeError:  # without those of the constructor's `parameter_overrides`
        with node.handle:
            return node.handle.get_parameters(Parameter).keys()


def find_state(node: Node) -> Callable[[], str]:
    """Find how to read the lifecycle state of a node: by the service that tells it to others.

    rclpy keeps the state itself in a private attribute.
    """
    answer = _callback_of(node, "get_state")
    return lambda: str(answer(GetState.Request(), GetState.Response()).current_state.label)


def find_transitions(node: Node) -> Callable[[], dict[int, str]]:
    """Find how to read the transitions that the state of a node allows, with their labels.

    Jazzy raises when another one is requested, where Kilted refuses.
    """
    kind = GetAvailableTransitions
    answer = _callback_of(node, "get_available_transitions")
    return lambda: {
        one.transition.id: one.transition.label
        for one in answer(kind.Request(), kind.Response()).available_transitions
    }


def release_state(node: Any) -> None:
    """Release what rclpy keeps of a destroyed lifecycle node until it is collected as garbage.

    That holds the DDS participant, whose shared memory would stay behind when the process exits.
    Only of a finalized node, which has no more transitions: who asks for its state later, such as
    a thread that is late, is told that.
    """
    machine = getattr(node, "_state_machine", None)
    destroy = getattr(machine, "destroy_when_not_in_use", None)
    if machine is None or destroy is None:  # another rclpy, or the second call
        return
    if machine.current_state[1] != "finalized":
        return
    node._state_machine = SimpleNamespace(
        current_state=machine.current_state,
        initialized=True,  # else it does not answer
        available_transitions=(),
    )
    destroy()


def _callback_of(node: Node, name: str) -> Callable[..., Any]:
    (service,) = (one for one in node.services if one.srv_name.endswith(name))
    return service.callback


def count_connected(subscription: Any) -> int | None:
    """Count the publishers that a subscription is connected to; None: this rclpy does not say."""
    count = getattr(subscription, "get_publisher_count", None)  # not in Humble
    return None if count is None else int(count())


def can_poll(handler: Any) -> bool:
    """Whether `take_event` works on a QoS event handler; otherwise an executor has to wait."""
    return hasattr(handler, "_ready_to_take_data")


def take_event(handler: Any) -> Any:
    """Take what has happened since the last time from a QoS event handler; None if nothing."""
    handler._ready_to_take_data = True  # as an executor's wait would have done
    return handler.take_data()


def take_with_info(callback: Callable[[Any, Any], None]) -> Callable[..., None]:
    """Make a subscription's callback that gets each message with its message info.

    The info is None in Humble. rclpy decides by the signature whether a callback takes it; its
    EventsExecutor passes both as one tuple.
    """
    if not hasattr(Subscription, "CallbackType"):
        return lambda message: callback(message, None)

    def take(*given: Any) -> None:
        message, info = given if len(given) == 2 else given[0]
        callback(message, info)

    take.__signature__ = inspect.signature(callback)  # type: ignore[attr-defined]
    return take
