# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A detector in a process of its own that is sent images from a stranger, over DDS."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from hostile_images import fill_message, make_jpeg, mutate_fields, mutate_file
from node_process import Process
from rclpy.qos import QoSProfile
from ros_graph import Ros
from sensor_msgs.msg import CompressedImage, Image
from vision_msgs.msg import Detection2DArray

from jetson_dnn_rt.cameras.encoded_pictures import MAX_PIXELS

MEMORY_LIMIT_MIB = 3 * 3 * MAX_PIXELS >> 20
"""What a node may take above what it had with its first image: three of the largest pictures."""

_QUEUE = 10


@dataclass(frozen=True)
class StormResult:
    """What became of the images."""

    sent: int  # hostile and good ones
    good: int  # each sent behind a hostile one
    answered: int  # good ones with a result of their own
    outcomes: dict[str, int]  # as the node's last diagnostics count them
    reasons: dict[str, int]
    base_mib: int  # largest resident memory of the process after its first image
    peak_mib: int  # ... and in the end
    slowest_s: float  # longest time from a hostile image to the answer to the good one behind it
    code: int  # exit code of the process
    lines: list[str]  # its output

    @property
    def faults(self) -> list[str]:
        """What is not as it must be."""
        checks = {
            f"exit code {self.code}": self.code == 0,
            f"{self.answered} of {self.good} good images answered": self.answered == self.good,
            f"{self.sent} sent, {self.outcomes}": sum(self.outcomes.values()) == self.sent,
            f"memory {self.base_mib} -> {self.peak_mib} MiB": self.peak_mib - self.base_mib
            < MEMORY_LIMIT_MIB,
            "a traceback": not any("Traceback" in line for line in self.lines),
        }
        return [text for text, holds in checks.items() if not holds]


def storm_detector(ros: Ros, transport: str, count: int, seed: int) -> StormResult:
    """Send `count` hostile images, a good one behind each, and wait for its answer.

    `transport` is ``raw`` or ``compressed``; the images are those of `seed` and the next seeds.
    """
    name = f"storm_{transport}_{os.getpid()}"
    values = {
        "model": "null:1", "warmup_runs": 2, "image_transport": transport, "autostart": True,
        "input_qos": "DEFAULT", "input_qos_depth": _QUEUE, "deadline_ms": 10_000.0,
        "late_results": "publish",
    }  # fmt: skip
    arguments = [
        f"{key}:={str(value).lower() if value is True else value}" for key, value in values.items()
    ]
    process = Process(
        "detector", "-r", f"__ns:=/{name}", *(part for one in arguments for part in ("-p", one))
    )
    try:
        return _Storm(ros, process, name, transport == "raw").run(count, seed)
    finally:
        process.close()


class _Storm:
    def __init__(self, ros: Ros, process: Process, name: str, raw: bool) -> None:
        self._ros, self._process, self._raw = ros, process, raw
        topic = f"/{name}/image_raw" + ("" if raw else "/compressed")
        self._images = ros.advertise(
            Image if raw else CompressedImage, topic, QoSProfile(depth=_QUEUE)
        )
        self._answers = ros.listen(Detection2DArray, f"/{name}/detections")
        self._diagnostics = ros.listen(DiagnosticArray, "/diagnostics", QoSProfile(depth=100))
        self._sent = self._good = 0

    def run(self, count: int, seed: int) -> StormResult:
        self._ros.wait(lambda: self._images.get_subscription_count() == 1, "the subscription")
        self._ros.wait(self._answers.subscription.get_publisher_count, "the publisher")
        # The process may not know of the subscription yet. While it starts it takes no image, and
        # its queue keeps the last ones only: no more may wait than fit in.
        pauses = [0.1 * 2**sent for sent in range(_QUEUE)]
        while not self._answers.messages:
            self._send_good()
            time.sleep(pauses.pop(0))
        base_mib = self._read_peak()
        self._good = answered = 0
        slowest_s = 0.0
        for number in range(seed, seed + count):
            start = time.monotonic()
            self._images.publish(self._make_hostile(number))
            self._sent += 1
            wanted = self._send_good()
            self._answers.wait(
                lambda found, wanted=wanted: any(m.header.frame_id == wanted for m in found),
                f"the answer behind image {number}",
            )
            answered += 1
            self._answers.clear()
            self._diagnostics.messages[:-50] = []
            slowest_s = max(slowest_s, time.monotonic() - start)
        values = self._diagnostics.wait(self._find_counts, f"the count of {self._sent} images")
        peak_mib = self._read_peak()
        code = self._process.end(signal.SIGINT)
        return StormResult(
            self._sent, self._good, answered, _pick(values, "outcome."), _pick(values, "reason."),
            base_mib, peak_mib, slowest_s, code, self._process.lines,
        )  # fmt: skip

    def _send_good(self) -> str:
        fields = {"data": bytes(48 * 192) if self._raw else make_jpeg()}
        if self._raw:
            fields |= {"height": 48, "width": 64, "step": 192, "encoding": "bgr8"}
        message = self._make(fields)
        message.header.stamp = self._ros.probe.get_clock().now().to_msg()
        message.header.frame_id = f"good-{self._good}"
        self._images.publish(message)
        self._sent += 1
        self._good += 1
        return str(message.header.frame_id)

    def _make_hostile(self, number: int) -> Any:
        return self._make(mutate_fields(number) if self._raw else {"data": mutate_file(number)})

    def _make(self, fields: dict[str, Any]) -> Any:
        return fill_message(Image() if self._raw else CompressedImage(format="jpeg"), fields)

    def _find_counts(self, messages: list[Any]) -> dict[str, str] | None:
        """Values of the newest task status, once it counts every image that was sent."""
        for message in reversed(messages):
            for status in message.status:
                values = {one.key: one.value for one in status.values}
                if sum(_pick(values, "outcome.").values()) == self._sent:
                    return values
        return None

    def _read_peak(self) -> int:
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = (line for line in text.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) >> 10


def _pick(values: dict[str, str], start: str) -> dict[str, int]:
    return {key.removeprefix(start): int(n) for key, n in values.items() if key.startswith(start)}
