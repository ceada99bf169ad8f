# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Configure, activate, deactivate, cleanup, again and again, leave memory as it was."""

from __future__ import annotations

import gc
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from networks import make_onnx

from jetson_dnn_rt.nodes.perception import PerceptionNode

pytestmark = pytest.mark.freezes

CYCLES = 10
WARM_UP_CYCLES = 5  # until the allocators have their arenas: +5 MB, then flat
GROWTH_BYTES = 12_000_000
"""A cycle that forgets a task leaves at least the network's input behind, 3.1 MB: 31 MB in all.

Allocators of a process that has just begun take up to 7 MB more now and then."""


def resident_bytes():
    """Memory of this process that is not shared with files."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@pytest.mark.slow
def test_memory_after_many_cycles(ros, tmp_path):
    cv2.imwrite(str(tmp_path / "0.png"), np.zeros((64, 64, 3), np.uint8))
    network = make_onnx(tmp_path / "network.onnx", shape=(1, 3, 512, 512))
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": ["segmenter"]},
            "camera": {"source": f"images:{tmp_path}", "rate": 100.0},
            "segmenter": {
                "model": f"onnx:{network}",
                "variants": ["full@onnxruntime-fp32"],
                "warmup_runs": 2,
            },
        },
    )

    def run(cycles):
        for _ in range(cycles):
            assert node.autostart(), node.fault
            ros.wait(lambda: node.tasks["segmenter"].snapshot.released > 1)
            node.trigger_deactivate()
            node.trigger_cleanup()
        return resident_bytes()

    before = run(WARM_UP_CYCLES)
    assert run(CYCLES) <= before + GROWTH_BYTES
