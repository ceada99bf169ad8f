# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Quality of service by name, and the events raised when it does not match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rclpy.duration import Duration
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_policy_name_from_kind,
)
from rclpy.qos_overriding_options import QoSOverridingOptions

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.distribution import can_poll, given_parameters, take_event
from jetson_dnn_rt.safety.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rclpy.node import Node

LATCHED = QoSProfile(
    depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL, reliability=ReliabilityPolicy.RELIABLE
)
RELIABLE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)

RELIABLE_TEXT, BEST_EFFORT_TEXT, UNKNOWN = "reliable", "best effort", "unknown"

_POLICIES = {
    "SENSOR_DATA": (ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE),
    "DEFAULT": (ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE),
    "SYSTEM_DEFAULT": (ReliabilityPolicy.SYSTEM_DEFAULT, DurabilityPolicy.SYSTEM_DEFAULT),
}
"""Of ROS's own profiles of these names; Humble's enum of profiles lacks DEFAULT."""

OVERRIDABLE = QoSOverridingOptions.with_default_policies
"""Makes options that let ``qos_overrides.<topic>`` change history, depth and reliability."""


def narrow_overrides(
    node: Node, kind: str, topic: str, options: QoSOverridingOptions
) -> QoSOverridingOptions:
    """Of policies that may be overridden, take those that the configuration does override.

    `kind` is ``publisher`` or ``subscription``. rclpy declares each policy of `options` as a
    read-only parameter with the value of the first profile, which every later profile of the topic
    would get in place of its own: of another `output_qos`, say. ConfigurationError for others.
    """
    prefix = f"qos_overrides.{node.resolve_topic_name(topic)}.{kind}."
    given = {name[len(prefix) :] for name in given_parameters(node) if name.startswith(prefix)}
    policies = {policy.name.lower(): policy for policy in options.policy_kinds}
    if unknown := sorted(given - policies.keys()):
        raise ConfigurationError(f"{prefix}{unknown[0]} is not one of {', '.join(policies)}")
    return QoSOverridingOptions([policies[name] for name in sorted(given)])


def make_qos(name: str, depth: int, deadline_ms: float = 0.0) -> QoSProfile:
    """Make a KEEP_LAST profile from one of `jetson_dnn_rt.config.task.QOS_NAMES`.

    `deadline_ms` is the longest time between two messages before an event is raised; 0 = none.
    """
    reliability, durability = _POLICIES[name]
    qos = QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=durability,
    )
    if deadline_ms:
        qos.deadline = Duration(nanoseconds=int(deadline_ms * 1e6))
    return qos


class EventPoller:
    """Polls QoS events of a node's publishers and subscriptions.

    rclpy hands events to the executor as *waitables*; Kilted's EventsExecutor runs those without
    the interpreter's lock, and sooner or later the process dies of a segmentation fault (with
    deadline events every 5 ms and a second busy thread: within seconds). Here they are removed
    from the node's waitables and polled in turn, which no executor notices.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._handlers: dict[int, list[Any]] = {}

    def watch(self, entity: Any) -> Any:
        """Take over the events of a publisher or subscription from its node; returns it."""
        handlers = [handler for handler in entity.event_handlers if can_poll(handler)]
        for handler in handlers:
            self._node.remove_waitable(handler)
        self._handlers[id(entity)] = handlers
        return entity

    def forget(self, entity: Any) -> None:
        """Return the events to the node, which is about to destroy the entity with them."""
        for handler in self._handlers.pop(id(entity), ()):
            self._node.add_waitable(handler)

    def poll(self) -> None:
        """Call the callbacks of what has happened since the last poll."""
        for handler in [h for handlers in self._handlers.values() for h in handlers]:
            try:
                info = take_event(handler)
                if info is not None and info.total_count_change > 0:
                    handler.callback(info)
            except Exception as error:  # go on with the other handlers
                FAULTS.note("QoS event", error)


def make_events(
    kind: type[Any],
    on_incompatible: Callable[[str], None],
    on_deadline: Callable[[int], None] | None = None,
    on_lost: Callable[[int], None] | None = None,
) -> Any:
    """Make callbacks, `kind`, for events that ROS usually does not report.

    `on_incompatible` gets the name of the policy in which publisher and subscription differ;
    `on_deadline` and `on_lost` the deadlines missed, and the messages lost, since their last call.
    """
    lost = {} if on_lost is None else {"message_lost": _take_change(on_lost)}
    return kind(
        **lost,
        incompatible_qos=lambda info: on_incompatible(
            str(qos_policy_name_from_kind(info.last_policy_kind))
        ),
        deadline=None if on_deadline is None else _take_change(on_deadline),
        use_default_callbacks=False,
    )


def _take_change(callback: Callable[[int], None]) -> Callable[[Any], None]:
    return lambda info: callback(info.total_count_change)


def read_reliability(infos: Sequence[Any]) -> str:
    """Describe the reliability of endpoints: ``reliable``, ``best effort``, or the count of each.

    `infos` are rclpy's endpoint infos, or subscriptions; ``unknown`` without any.
    """
    reliable = sum(info.qos_profile.reliability == ReliabilityPolicy.RELIABLE for info in infos)
    if not infos:
        return UNKNOWN
    if reliable in (0, len(infos)):
        return RELIABLE_TEXT if reliable else BEST_EFFORT_TEXT
    return f"{reliable} {RELIABLE_TEXT}, {len(infos) - reliable} {BEST_EFFORT_TEXT}"
