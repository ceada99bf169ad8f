# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Duplicates of a node: others with its name, or that publish its topics.

ROS allows both, as when a stack is started twice in one domain, and subscribers get the results
of all of them mixed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rclpy.node import Node

SHARED_TOPICS = ("/diagnostics", "/statistics", "/rosout", "/parameter_events")
"""Topics that many nodes publish."""

LEASE_NS = 25_000_000_000
"""A duplicate that lasts longer is an error and is logged. The nodes of a killed process stay in
the graph until their lease ends: 20 s with Fast DDS."""

MOST_NAMED = 3
"""Topics that a message names."""

FIX = "end one of the two, or give it another namespace or ROS_DOMAIN_ID"


def find_duplicates(node: Node) -> list[str]:
    """Describe the other nodes with the name of a node, and the other publishers of its topics."""
    own, found = (node.get_name(), node.get_namespace()), []
    others = node.get_node_names_and_namespaces().count(own) - 1
    if others > 0:
        they = "another node is" if others == 1 else f"{others} other nodes are"
        found.append(f"{they} called {node.get_fully_qualified_name()}")
    topics = Counter(publisher.topic_name for publisher in node.publishers)
    mixed = [
        topic
        for topic, count in sorted(topics.items())
        if topic not in SHARED_TOPICS and node.count_publishers(topic) > count
    ]
    if mixed:
        named = ", ".join(mixed[:MOST_NAMED])
        more = f" and {len(mixed) - MOST_NAMED} more" if len(mixed) > MOST_NAMED else ""
        whose = _name_others(node, mixed[0], topics[mixed[0]])
        found.append(f"{whose} publishes {named}{more}, too")
    return found


def _name_others(node: Node, topic: str, own: int) -> str:
    infos = node.get_publishers_info_by_topic(topic)
    names = Counter(describe_endpoint(info) for info in infos)
    names[node.get_fully_qualified_name()] -= own
    return (
        " and ".join(sorted(name for name, count in names.items() if count > 0)) or "another node"
    )


def describe_endpoint(info: Any) -> str:
    """Full name of the node of a publisher or subscription."""
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


class DuplicateWatch:
    """Looks for duplicates of a node whenever its diagnostics are made."""

    def __init__(
        self,
        node: Node,
        now_ns: Callable[[], int] = time.monotonic_ns,
        find: Callable[[Node], list[str]] = find_duplicates,
    ) -> None:
        self._node, self._now_ns, self._find = node, now_ns, find
        self._since_ns: int | None = None
        self._is_logged = False

    def look(self) -> tuple[str, bool]:
        """Describe the present duplicates, empty without any, and whether they have lasted."""
        found = self._find(self._node)
        if not found:
            self._since_ns = None
            return "", False
        now_ns = self._now_ns()
        self._since_ns = now_ns if self._since_ns is None else self._since_ns
        text = f"{'; '.join(found)}; fix: {FIX}"
        lasting = now_ns - self._since_ns >= LEASE_NS
        if lasting and not self._is_logged:
            self._is_logged = True
            self._node.get_logger().error(text)
        return text, lasting
