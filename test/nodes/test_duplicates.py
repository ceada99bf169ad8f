# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Two stacks of one name in a domain, two publishers of one topic: each node says so."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image
from std_msgs.msg import Float64
from task_bench import Bench, Log, diagnostics_of, make_image, wait_for_value
from vision_msgs.msg import Detection2DArray

from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode
from jetson_dnn_rt.nodes.reports.duplicates import LEASE_NS, DuplicateWatch, find_duplicates
from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode

WARN = b"\x01"


def test_a_node_alone_is_in_order(ros):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench = Bench(ros)
    bench.start()
    found = diagnostics_of(inbox, "/detector: name_status", b"\x00")
    assert found[""] == "no other node has this name or publishes these topics"


def test_another_stack_of_the_same_names_is_said(ros):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    first, second = Bench(ros), Bench(ros)
    first.start()
    assert second.node.autostart()
    found = diagnostics_of(inbox, "/detector: name_status", WARN)
    assert found[""].startswith("another node is called /detector")
    found = wait_for_value(inbox, "/detector: name_status", "", "/detector publishes ")
    assert found[""].endswith("give it another namespace or ROS_DOMAIN_ID")
    for bench in (first, second):
        assert "/detections" in str(ros.call(lambda one=bench: find_all(one.node)))


def find_all(node):
    """Every topic that another node publishes, too."""
    return [
        publisher.topic_name
        for publisher in node.publishers
        if node.count_publishers(publisher.topic_name) > 1
    ]


@pytest.mark.parametrize("kind", [CameraNode, CoordinatorNode])
def test_cameras_and_coordinators_of_one_name_are_said(ros, kind):
    name = "camera" if kind is CameraNode else "coordinator"
    first, _ = ros.make(kind), ros.make(kind)
    ros.wait(lambda: ros.call(lambda: find_duplicates(first)))
    assert ros.call(lambda: find_duplicates(first))[0] == f"another node is called /{name}"


def test_another_node_that_publishes_on_a_topic_of_ours_is_named(ros):
    bench = Bench(ros)
    bench.start()
    assert ros.call(lambda: find_duplicates(bench.node)) == []
    ros.advertise(Detection2DArray, "detections")
    ros.wait(lambda: bench.node.count_publishers("/detections") == 2)
    assert ros.call(lambda: find_duplicates(bench.node)) == ["/probe publishes /detections, too"]
    # What every node publishes is no duplicate.
    ros.advertise(DiagnosticArray, "/diagnostics")
    assert len(ros.call(lambda: find_duplicates(bench.node))) == 1


def test_nodes_of_one_name_in_other_namespaces_are_none(ros):
    first = Bench(ros)
    first.start()
    ros.make(lambda **options: DetectorNode(namespace="front", **options))
    assert ros.call(lambda: find_duplicates(first.node)) == []


def test_it_is_logged_once_when_it_stays(ros):
    """Of a process that was killed the middleware shows the nodes for 20 s."""
    now, found = [0], [[]]
    node = ros.probe
    log = Log(node)
    watch = DuplicateWatch(node, lambda: now[0], lambda node: found[0])
    assert watch.look() == ("", False)
    found[0] = ["another node is called /probe"]
    text, stays = watch.look()
    assert text.startswith("another node is called /probe; fix: ")
    now[0] = LEASE_NS - 1
    assert (stays, watch.look()[1], log.lines) == (False, False, [])
    now[0] = LEASE_NS
    assert watch.look() == (text, True)
    assert watch.look() == (text, True)
    assert log.lines == [text]
    found[0] = []
    assert watch.look() == ("", False)
    found[0] = ["another node is called /probe"]
    assert watch.look() == (text, False)


def test_two_publishers_of_the_image_topic_are_said(ros):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench = Bench(ros, expected_frequency=0.05)
    bench.start()
    other = ros.advertise(Image, "image_raw", qos_profile_sensor_data)
    for publisher in (bench.images, other):
        ros.wait(publisher.get_subscription_count)
    bench.send(make_image(ros), 1)
    found = wait_for_value(inbox, "/detector: camera_status", "", "images are mixed")
    assert (
        "2 publishers of /image_raw (/probe, /probe), whose images are mixed; fix: " in found[""]
    )


def test_one_topic_twice_in_a_node_is_its_own(ros):
    ros.advertise(Float64, "value")
    ros.advertise(Float64, "value")
    assert ros.call(lambda: find_duplicates(ros.probe)) == []
