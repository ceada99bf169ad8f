"""Fifty configure, activate, deactivate, cleanup cycles leave memory as it was."""

from __future__ import annotations

import gc
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from ros_graph import Ros

from jetson_dnn_rt.nodes.perception import PerceptionNode

pytestmark = pytest.mark.freezes

CYCLES = 50
WARM_UP_CYCLES = 15  # until the allocators have their arenas: +11 MB, then flat
LIMIT = 1.05


def resident_bytes() -> int:
    """Memory of this process that is not shared with files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


@pytest.mark.slow
def test_memory_after_fifty_cycles(ros: Ros, shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    cv2.imwrite(str(tmp_path / "0.png"), np.zeros((64, 64, 3), np.uint8))
    detector = {
        "model": f"onnx:{shared_data}/models/yolox_nano.onnx",
        "variants": ["full@onnxruntime-fp32"],
        "warmup_runs": 2,
    }
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": ["detector"]},
            "camera": {"source": f"images:{tmp_path}", "rate": 100.0},
            "detector": detector,
        },
    )

    def cycle() -> None:
        assert ros.call(node.autostart), node.fault
        ros.wait(lambda: node.tasks["detector"].snapshot.released > 1)
        ros.call(node.trigger_deactivate)
        ros.call(node.trigger_cleanup)

    for _ in range(WARM_UP_CYCLES):
        cycle()
    gc.collect()
    before = resident_bytes()
    for _ in range(CYCLES):
        cycle()
    gc.collect()
    assert resident_bytes() <= LIMIT * before
