# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Detections in every frame of a source, each with a deadline; no ROS.

Usage: python examples/minimal.py video:drive.mp4
"""

import sys

from jetson_dnn_rt.cameras.camera import open_camera
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.runtime.session import Session

SOURCE = sys.argv[1] if len(sys.argv) > 1 else "synthetic"


def show(record, result):
    """Print the outcome of a frame; there is no result where its deadline was missed."""
    print(record.task, record.outcome.value, f"{len(result)} boxes" if result is not None else "")


config = PerceptionConfig(tasks=[TaskConfig("detector", deadline_ms=100.0)])
with Session(config) as session:  # loads, measures and warms up; session.verdict says what fits
    session.observe(show)
    for frame in open_camera(SOURCE, limit=90):
        session.submit(frame)  # to every task, at one instant
    session.wait_idle(timeout_s=10.0)
