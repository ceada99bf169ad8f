# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The shipped Fast DDS profile carries camera images between two processes without loss."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from jetson_dnn_rt.cli.environment import profile_variable

CONFIG = Path(__file__).resolve().parent.parent / "config"
PROFILES = ("fastdds_profile.xml", "fastdds_localhost_profile.xml")
IMAGE_BYTES = 640 * 480 * 3
# All of them fit into the shared-memory segment, so the result does not depend on how busy the
# machine is: a reader that falls asleep still finds every image.
IMAGES = 25

PUBLISHER = """
import sys, time
import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

rclpy.init()
node = rclpy.create_node("profile_camera")
qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
publisher = node.create_publisher(Image, "profile_image", qos)
image = Image(height=480, width=640, step=640 * 3, encoding="bgr8", data=bytes(640 * 480 * 3))
print("ready", flush=True)
sys.stdin.readline()  # the subscriber has found this publisher
while publisher.get_subscription_count() == 0:
    rclpy.spin_once(node, timeout_sec=0.05)
for number in range(int(sys.argv[1])):
    image.header.frame_id = str(number)
    publisher.publish(image)
    rclpy.spin_once(node, timeout_sec=1 / 30)
sys.stdin.readline()  # the subscriber has what it gets
"""

SUBSCRIBER = """
import json, sys, time
import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

count = int(sys.argv[1])
got = []
rclpy.init()
node = rclpy.create_node("profile_viewer")
qos = QoSProfile(depth=count, reliability=ReliabilityPolicy.BEST_EFFORT)
node.create_subscription(Image, "profile_image", lambda m: got.append(m.header.frame_id), qos)
while node.count_publishers("profile_image") == 0:
    rclpy.spin_once(node, timeout_sec=0.05)
print("ready", flush=True)
deadline = time.monotonic() + 120
while not got and time.monotonic() < deadline:
    rclpy.spin_once(node, timeout_sec=0.2)
print("first" if got else "no image in 120 s", flush=True)
while len(got) < count and time.monotonic() < deadline:
    rclpy.spin_once(node, timeout_sec=0.2)
print(json.dumps(got), flush=True)
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_the_segment_holds_many_images(profile):
    root = ElementTree.parse(CONFIG / profile).getroot()
    (segment,) = (element for element in root.iter() if element.tag.endswith("segment_size"))
    assert int(segment.text or 0) >= IMAGES * IMAGE_BYTES


def send_images(profile, stop_s=0.0):
    """Return the numbers of the images that reach a reader, which may not run for a while."""
    pytest.importorskip("rclpy", reason="needs ROS 2")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    pipes["env"] = {**os.environ, profile_variable(): str(CONFIG / profile)}
    with (
        subprocess.Popen([sys.executable, "-c", PUBLISHER, str(IMAGES)], **pipes) as publisher,  # type: ignore[call-overload]
        subprocess.Popen([sys.executable, "-c", SUBSCRIBER, str(IMAGES)], **pipes) as subscriber,  # type: ignore[call-overload]
    ):
        try:
            assert publisher.stdout.readline() == "ready\n"
            assert subscriber.stdout.readline() == "ready\n"
            publisher.stdin.write("go\n")
            publisher.stdin.flush()
            assert subscriber.stdout.readline() == "first\n"
            if stop_s:
                subscriber.send_signal(signal.SIGSTOP)
                time.sleep(stop_s)
                subscriber.send_signal(signal.SIGCONT)
            return [int(number) for number in json.loads(subscriber.stdout.readline())]
        finally:
            publisher.stdin.close()
            subscriber.kill()


@pytest.mark.parametrize("profile", PROFILES)
def test_no_image_is_lost_between_processes(profile):
    assert send_images(profile) == list(range(IMAGES))


@pytest.mark.parametrize("profile", PROFILES)
def test_no_image_is_lost_if_the_reader_is_not_scheduled_for_a_while(profile):
    """By default it counts as dead after a second, and what waits for it is lost."""
    assert send_images(profile, stop_s=1.6) == list(range(IMAGES))


NODE = """
import sys
import rclpy

rclpy.init()
node = rclpy.create_node("profile_node")
print("ready", flush=True)
sys.stdin.readline()
"""


def find_ports(process, domain):
    """Addresses of the UDP ports on which a participant of the domain is found and receives."""
    folder = Path("/proc", str(process))
    links = [os.readlink(link) for link in folder.glob("fd/*")]
    lines = (folder / "net" / "udp").read_text().splitlines()[1:]
    for fields in map(str.split, lines):
        address, port = (int(part, 16) for part in fields[1].split(":"))
        # The RTPS specification, 9.6.2.
        if f"socket:[{fields[9]}]" in links and (port - 7400) // 250 == domain:
            yield socket.inet_ntoa(struct.pack("=L", address))


@pytest.mark.parametrize(("profile", "limited"), list(zip(PROFILES, (False, True), strict=True)))
def test_a_localhost_only_node_is_not_reached_from_other_machines(profile, limited):
    pytest.importorskip("rclpy", reason="needs ROS 2")
    # The suite itself runs with both variables that limit ROS to this machine.
    env = {**os.environ, profile_variable(): str(CONFIG / profile)}
    with subprocess.Popen(
        [sys.executable, "-c", NODE], stdin=-1, stdout=-1, text=True, env=env
    ) as node:
        assert node.stdout.readline() == "ready\n"
        addresses = set(find_ports(node.pid, int(os.environ["ROS_DOMAIN_ID"])))
        node.communicate("\n")
    if limited:
        assert addresses == {"127.0.0.1"}
    else:
        assert "0.0.0.0" in addresses
