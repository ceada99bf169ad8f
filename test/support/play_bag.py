# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Stands for `ros2 bag play` and `ros2 service call`, with the options of replay.launch.py.

As unkind as the original (rosbag2_transport's player, Humble to Kilted): it plays as soon as it
is there, whoever listens, unless it is started paused; paused, it publishes its clock, which
stands still; at its end it waits for what has not arrived only with ``--wait-for-all-acked``.
`rosbag2_py` and the type of its service come with a ROS 2 installation only: this reads with
rosbags, and the service is an empty one, too.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

import rclpy
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rosbags.rosbag2 import Reader
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from std_srvs.srv import Empty

RESUME = ["/rosbag2_player/resume", "rosbag2_interfaces/srv/Resume"]


def call() -> int:
    """Call the service of a player."""
    if sys.argv[3:] != RESUME:
        return 2
    rclpy.init()
    node = rclpy.create_node("caller")
    client = node.create_client(Empty, RESUME[0])
    client.wait_for_service()
    rclpy.spin_until_future_complete(node, client.call_async(Empty.Request()))
    rclpy.shutdown()
    return 0


def play() -> int:
    """Play a bag; 3 when it is not there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=2, choices=["bag", "play"])
    parser.add_argument("bag", type=Path)
    parser.add_argument("--clock", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--topics", nargs="+", required=True)
    parser.add_argument("--storage", choices=["mcap", "sqlite3"])
    parser.add_argument("--start-paused", action="store_true")
    parser.add_argument("--wait-for-all-acked", type=int, default=-1)
    args = parser.parse_args()
    with Reader(args.bag) as reader:
        connections = [c for c in reader.connections if c.topic in args.topics]
        messages = [(t, raw) for _, t, raw in reader.messages(connections)]
    if not messages:
        return 3
    rclpy.init()
    node = rclpy.create_node("rosbag2_player")
    images = node.create_publisher(Image, args.topics[0], QoSProfile(depth=10))
    clock = node.create_publisher(Clock, "/clock", QoSProfile(depth=10))
    going_on = threading.Event()
    if not args.start_paused:
        going_on.set()

    def resume(request: Empty.Request, response: Empty.Response) -> Empty.Response:
        going_on.set()
        return response

    node.create_service(Empty, RESUME[0], resume)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinning = threading.Thread(target=executor.spin, daemon=True)
    spinning.start()

    def tick(now_ns: int) -> None:
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(now_ns, 10**9)
        clock.publish(message)

    first_ns = messages[0][0]
    while not going_on.wait(1 / args.clock):
        tick(first_ns)
    begin_ns = time.monotonic_ns()
    period_ns = int(1e9 / args.clock)
    tick_ns = first_ns
    for time_ns, raw in messages:
        while True:
            now_ns = first_ns + int((time.monotonic_ns() - begin_ns) * args.rate)
            if now_ns >= tick_ns:
                tick(now_ns)
                tick_ns = now_ns + period_ns
            if now_ns >= time_ns:
                break
            time.sleep(0.001)
        images.publish(deserialize_message(bytes(raw), Image))
    if args.wait_for_all_acked >= 0:
        images.wait_for_all_acked(Duration(nanoseconds=args.wait_for_all_acked * 10**6))
    executor.shutdown()
    spinning.join()
    rclpy.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(call() if sys.argv[1:3] == ["service", "call"] else play())
