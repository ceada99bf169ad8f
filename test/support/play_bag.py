# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Stands for `ros2 bag play`, with the options that replay.launch.py gives: images and a clock.

`rosbag2_py` comes with a ROS 2 installation only; this reads with rosbags.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import rclpy
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rosbags.rosbag2 import Reader
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image


def main() -> int:
    """Play a bag; 3 when it is not there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=2, choices=["bag", "play"])
    parser.add_argument("bag", type=Path)
    parser.add_argument("--clock", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--topics", nargs="+", required=True)
    parser.add_argument("--storage", choices=["mcap", "sqlite3"])
    parser.add_argument("--subscribers", type=int, default=1, help="of the images, to wait for")
    args = parser.parse_args()
    rclpy.init()
    node = rclpy.create_node("rosbag2_player")
    images = node.create_publisher(Image, args.topics[0], QoSProfile(depth=10))
    clock = node.create_publisher(Clock, "/clock", QoSProfile(depth=10))
    wanted: int = args.subscribers
    while images.get_subscription_count() < wanted or not clock.get_subscription_count():
        time.sleep(0.01)
    with Reader(args.bag) as reader:
        connections = [c for c in reader.connections if c.topic in args.topics]
        messages = [(t, raw) for _, t, raw in reader.messages(connections)]
    if not messages:
        return 3
    first_ns, begin_ns = messages[0][0], time.monotonic_ns()
    period_ns = int(1e9 / args.clock)
    tick_ns = first_ns
    for time_ns, raw in messages:
        while True:
            now_ns = first_ns + int((time.monotonic_ns() - begin_ns) * args.rate)
            if now_ns >= tick_ns:
                message = Clock()
                message.clock.sec, message.clock.nanosec = divmod(now_ns, 10**9)
                clock.publish(message)
                tick_ns = now_ns + period_ns
            if now_ns >= time_ns:
                break
            time.sleep(0.001)
        images.publish(deserialize_message(bytes(raw), Image))
    time.sleep(0.5)  # reliable, but gone with this process
    rclpy.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
