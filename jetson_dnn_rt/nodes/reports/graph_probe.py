# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The nodes of a graph and the publishers of its topics, as JSON, for ``doctor``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection
from typing import Any

from rclpy.node import Node

from jetson_dnn_rt.nodes.process.context import open_context
from jetson_dnn_rt.nodes.reports.duplicates import describe_endpoint


def look(seconds: float, types: Collection[str]) -> dict[str, Any]:
    """Names of all nodes, and by topic of one of `types` those of its publishers' nodes.

    `seconds` are left for discovery.
    """
    context = open_context()
    # An underscore hides a node from `ros2 node list`.
    node = Node(
        f"_jetson_dnn_rt_doctor_{os.getpid()}",
        context=context,
        enable_rosout=False,
        start_parameter_services=False,
    )
    try:
        time.sleep(seconds)
        names = node.get_node_names_and_namespaces()
        return {
            "nodes": [f"{space.rstrip('/')}/{name}" for name, space in names],
            "topics": {
                topic: list(map(describe_endpoint, node.get_publishers_info_by_topic(topic)))
                for topic, known in node.get_topic_names_and_types()
                if set(known) & set(types)
            },
        }
    finally:
        node.destroy_node()
        context.try_shutdown()


if __name__ == "__main__":
    print(json.dumps(look(float(sys.argv[1]), sys.argv[2:])))
