# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `rogue`, for some seconds: real processes, real DDS."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: two back ends are needed")
pytest.importorskip("openvino", reason="openvino is not installed: two back ends are needed")

PROGRAM = Path(__file__).resolve().parents[1] / "campaigns" / "rogue.py"


@pytest.mark.usefixtures("empty_domain")
def test_nothing_that_a_stranger_sends_ends_a_process():
    """EDGES 0, 4: wrong values and types on every topic, service and parameter cost nobody."""
    # How many frames are met says something on a quiet machine only: the campaign by hand looks.
    arguments = ["--seconds", "4", "--seed", "7", "--deadline-ms", "2000", "--tolerance", "1"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["exits"] == {}
    assert report["ends"] == {"camera": 0, "detector": 0, "coordinator": 0}
    assert report["disturbed"]["frames"] > 0
    kinds = {name.split()[0] for name in report["sent"]}
    assert kinds == {"topic", "service"}
    for name in ("lag_ms (Float64)", "image_raw (String)", "detector/set_parameters"):
        assert any(name in sent for sent in report["sent"]), name
