"""What the coordinator does, as numbers for rqt_plot."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from std_msgs.msg import Float64

from jetson_dnn_rt.nodes.process.qos import RELIABLE

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.publisher import Publisher

OF_ALL = ("cohort_size", "clocks", "power_w", "energy_per_met_frame_j", "decisions_per_s")
OF_TASK = ("variant", "lag_ms")

WINDOW_S = 1.0
"""Energy is averaged over so long: power sensors are too slow for single frames."""


class CoordinatorTopics:
    """``~/debug/...`` of all tasks and ``~/debug/<task>/...``, one Float64 each.

    Published only while somebody subscribes.

    Parameters
    ----------
    node : Node
        The coordinator's.
    tasks : sequence of str
        Names of the tasks.
    """

    def __init__(self, node: Node, tasks: Sequence[str]) -> None:
        self._node = node
        names = [*OF_ALL, *(f"{task}/{name}" for task in tasks for name in OF_TASK)]
        self._publishers: dict[str, Publisher] = {
            name: node.create_publisher(Float64, f"~/debug/{name}", RELIABLE) for name in names
        }
        self._message = Float64()

    def publish(self, values: Mapping[str, float]) -> None:
        """Publish values by the ends of their topics' names."""
        for name, value in values.items():
            publisher = self._publishers[name]
            if publisher.get_subscription_count():
                self._message.data = float(value)
                publisher.publish(self._message)

    def close(self) -> None:
        """Drop the publishers."""
        for publisher in self._publishers.values():
            self._node.destroy_publisher(publisher)
        self._publishers = {}


@dataclass
class Rates:
    """Rates over windows of `WINDOW_S`, from counts that only grow; NaN before the first."""

    decisions_per_s: float = math.nan
    energy_per_met_frame_j: float = math.nan
    _begin_ns: int = field(default_factory=time.monotonic_ns)
    _begin: tuple[int, float, int] | None = None

    def observe(self, decisions: int, energy_j: float, met: int) -> None:
        """Take the counts of this moment."""
        now_ns, now = time.monotonic_ns(), (decisions, energy_j, met)
        before = self._begin
        if before is None or decisions < before[0] or met < before[2]:  # all began anew
            self._begin_ns, self._begin = now_ns, now
            return
        seconds = (now_ns - self._begin_ns) / 1e9
        if seconds < WINDOW_S:
            return
        self.decisions_per_s = (decisions - before[0]) / seconds
        frames = met - before[2]
        # Energy of a second without a met frame is nobody's: it goes into the next window.
        if frames == 0:
            self.energy_per_met_frame_j = math.nan
            self._begin = (decisions, before[1], met)
        else:
            self.energy_per_met_frame_j = (energy_j - before[1]) / frames
            self._begin = now
        self._begin_ns = now_ns
