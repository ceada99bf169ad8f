"""Subscribes to the results of a benchmark, so that publishing costs what it costs in use.

Takes messages as they are, without making Python objects of them, and counts them; at SIGTERM it
writes the stamps it got, by topic.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
from pathlib import Path

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image
from vision_msgs.msg import Detection2DArray

from benchmarks.protocol import announce_ready, stop_on_term

TOPICS = {"detections": Detection2DArray, "class_mask": Image}

# CDR: four bytes of encapsulation, then the header's stamp: sec (int32), nanosec (uint32).
_STAMPS = {0: struct.Struct(">iI"), 1: struct.Struct("<iI")}


def read_stamp_ns(data: bytes) -> int:
    """Stamp of a serialized message that begins with a header."""
    sec, nanosec = _STAMPS[data[1] & 1].unpack_from(data, 4)
    return int(sec) * 1_000_000_000 + int(nanosec)


def main(arguments: list[str]) -> None:
    """Listen until SIGTERM; the argument is the file to write."""
    stop = threading.Event()
    stop_on_term(stop)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("bench_listener")
    stamps_ns: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
    for topic, kind in TOPICS.items():

        def take(data: bytes, topic: str = topic) -> None:
            stamps_ns[topic].append(read_stamp_ns(data))

        node.create_subscription(kind, topic, take, qos, raw=True)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    announce_ready()
    while not stop.is_set():
        executor.spin_once(timeout_sec=0.1)
    Path(arguments[0]).write_text(json.dumps(stamps_ns), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
