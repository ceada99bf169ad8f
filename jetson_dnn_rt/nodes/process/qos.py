"""Quality of service by name, and the events that say when it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rclpy.duration import Duration
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSPresetProfiles,
    QoSProfile,
    ReliabilityPolicy,
)
from rclpy.qos_overriding_options import QoSOverridingOptions

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

from jetson_dnn_rt.config.task import QOS_NAMES
from jetson_dnn_rt.safety.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rclpy.node import Node

__all__ = [
    "LATCHED",
    "OVERRIDABLE",
    "QOS_NAMES",
    "RELIABLE",
    "EventPoller",
    "PublisherEventCallbacks",
    "SubscriptionEventCallbacks",
    "UnsupportedEventTypeError",
    "make_events",
    "make_qos",
]

LATCHED = QoSProfile(
    depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL, reliability=ReliabilityPolicy.RELIABLE
)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


def make_qos(name: str, depth: int, deadline_ms: float = 0.0) -> QoSProfile:
    """Make a profile.

    Parameters
    ----------
    name : str
        One of `QOS_NAMES`: ``SENSOR_DATA`` is best effort, ``DEFAULT`` reliable,
        ``SYSTEM_DEFAULT`` what the middleware's configuration says.
    depth : int
        Of the queue (KEEP_LAST), >= 1.
    deadline_ms : float
        Longest time between two messages before an event is raised; 0 = none.
    """
    preset = QoSPresetProfiles.get_from_short_key(name.lower())
    qos = QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=preset.reliability,
        durability=preset.durability,
    )
    if deadline_ms:
        qos.deadline = Duration(nanoseconds=int(deadline_ms * 1e6))
    return qos


OVERRIDABLE = QoSOverridingOptions.with_default_policies
"""Makes options that let ``qos_overrides.<topic>`` change history, depth and reliability."""


class EventPoller:
    """Looks for QoS events of a node's publishers and subscriptions once a second.

    rclpy hands events to the executor as *waitables*; Kilted's EventsExecutor runs those without
    the interpreter's lock, and the process dies of a segmentation fault sooner or later (deadline
    events every 5 ms and a second busy thread: within seconds). They are taken from the node's
    waitables here and asked in turn instead, which no executor notices.

    Parameters
    ----------
    node : Node
        Whose events.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._handlers: dict[int, list[Any]] = {}

    def watch(self, entity: Any) -> Any:
        """Take the events of a publisher or subscription over from its node; returns it."""
        for handler in entity.event_handlers:
            self._node.remove_waitable(handler)
        self._handlers[id(entity)] = list(entity.event_handlers)
        return entity

    def forget(self, entity: Any) -> None:
        """Give the events back to the node, which is about to destroy the entity with them."""
        for handler in self._handlers.pop(id(entity), ()):
            self._node.add_waitable(handler)

    def poll(self) -> None:
        """Call the callbacks of what has happened since the last time."""
        for handler in [h for handlers in self._handlers.values() for h in handlers]:
            try:
                handler._ready_to_take_data = True  # what an executor's wait would have found out
                info = handler.take_data()
                if info is not None and info.total_count_change > 0:
                    handler.callback(info)
            except Exception as error:  # the other handlers have their turn
                FAULTS.note("QoS event", error)


def make_events(
    kind: type[Any],
    on_incompatible: Callable[[str], None],
    on_deadline: Callable[[int], None] | None = None,
) -> Any:
    """Make callbacks for what usually happens in silence.

    Parameters
    ----------
    kind : type
        `PublisherEventCallbacks` or `SubscriptionEventCallbacks`.
    on_incompatible : callable
        Called with the name of the policy in which publisher and subscription differ.
    on_deadline : callable, optional
        Called with the number of deadlines missed so far.
    """
    return kind(
        incompatible_qos=lambda info: on_incompatible(_policy_name(info.last_policy_kind)),
        deadline=None if on_deadline is None else lambda info: on_deadline(info.total_count),
        use_default_callbacks=False,
    )


def _policy_name(kind: int) -> str:
    from rclpy.qos import qos_policy_name_from_kind

    return str(qos_policy_name_from_kind(kind))
