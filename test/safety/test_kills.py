# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `kills`, for some seconds: real processes, real files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

CAMPAIGN = Path(__file__).resolve().parents[1] / "campaigns" / "kills.py"

NEEDED = {
    "build": ("onnx2torch", "onnxruntime", "openvino", "torch"),
    "run": ("rclpy", "vision_msgs.msg"),
    "clocks": ("rclpy", "vision_msgs.msg"),
}


@pytest.mark.parametrize(
    ("subject", "kills"),
    [("store", 10), ("import", 10), ("build", 1), ("trace", 8), ("run", 1), ("clocks", 2)],
)
def test_what_is_killed_leaves_nothing_damaged(subject, kills):
    """EDGES, campaign 4: store, import, build, trace, run, clocks."""
    for module in NEEDED.get(subject, ()):
        pytest.importorskip(module)
    # What takes how long says something on a quiet machine only: the campaign by hand looks.
    patience = ("--minutes", "30", "--lost-s", "600", "--limit-s", "60")
    command = [sys.executable, CAMPAIGN, "--subjects", subject, "--kills", str(kills), *patience]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["faults"] == []
    assert report["passed"]
