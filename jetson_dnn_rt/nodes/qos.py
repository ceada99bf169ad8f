"""Quality of service by name, and the events that say when it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

if TYPE_CHECKING:
    from collections.abc import Callable

QOS_NAMES = ("SENSOR_DATA", "DEFAULT", "SYSTEM_DEFAULT")

__all__ = [
    "LATCHED",
    "QOS_NAMES",
    "RELIABLE",
    "OVERRIDABLE",
    "make_qos",
    "subscription_events",
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


def subscription_events(
    on_deadline: Callable[[int], None], on_incompatible: Callable[[str], None]
) -> SubscriptionEventCallbacks:
    """Make callbacks for what usually happens in silence.

    Parameters
    ----------
    on_deadline : callable
        Called with the number of deadlines missed so far.
    on_incompatible : callable
        Called with the name of the policy in which a publisher and this subscription differ.
    """
    return SubscriptionEventCallbacks(
        deadline=lambda info: on_deadline(info.total_count),
        incompatible_qos=lambda info: on_incompatible(_policy_name(info.last_policy_kind)),
    )


def _policy_name(kind: int) -> str:
    from rclpy.qos import qos_policy_name_from_kind

    return str(qos_policy_name_from_kind(kind))
