# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The interface packages are the public ones: the ROS 2 type hashes are equal."""

from __future__ import annotations

import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2")

# Hashes of the released packages (REP 2011), the same from Iron on.
RELEASED = {
    ("vision_msgs", "Classification"): (
        "RIHS01_f74db28d0eaef3afb78f48bf2161cd709a1383a0309d3454383b25be11345143"
    ),
    ("vision_msgs", "Detection2DArray"): (
        "RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968"
    ),
    ("vision_msgs", "LabelInfo"): (
        "RIHS01_3d37df4015cdf660cc851c51897f2acd957e1ca6205ba0a99aebffb9406b0783"
    ),
    ("statistics_msgs", "MetricsMessage"): (
        "RIHS01_36a67fb499fc2a11b8b9ff9ac735ed76e8d5a1f7775d6d5b97b625188ec68e20"
    ),
}


@pytest.fixture(scope="module")
def node():
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("interfaces", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


@pytest.mark.parametrize(("package", "name"), RELEASED, ids=lambda part: part)
def test_type_hash(node, package, name):
    messages = pytest.importorskip(f"{package}.msg")
    publisher = node.create_publisher(getattr(messages, name), f"hash_of_{name}", 1)
    (endpoint,) = node.get_publishers_info_by_topic(publisher.topic_name)
    if not hasattr(endpoint, "topic_type_hash"):
        pytest.skip("this ROS distribution (Humble) has no type hashes")
    assert str(endpoint.topic_type_hash) == RELEASED[package, name]


def test_statistic_types_have_the_public_values():
    types = pytest.importorskip("statistics_msgs.msg").StatisticDataType
    names = ("UNINITIALIZED", "AVERAGE", "MINIMUM", "MAXIMUM", "STDDEV", "SAMPLE_COUNT")
    values = [getattr(types, f"STATISTICS_DATA_TYPE_{name}") for name in names]
    assert values == [0, 1, 2, 3, 4, 5]
