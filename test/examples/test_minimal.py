# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The examples run as they are."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from jetson_dnn_rt.config.perception import load_config

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_minimal_example_prints_every_frame(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="torch is not installed")
    import cv2
    import numpy as np

    for number in range(3):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.full((48, 64, 3), 114, np.uint8))
    monkeypatch.setattr(sys, "argv", ["minimal.py", f"images:{tmp_path}"])
    runpy.run_path(str(EXAMPLES / "minimal.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("detector ") for line in lines)
    # The last is never replaced by a newer one.
    assert lines[-1].split()[1] in ("met", "late", "skipped")


def test_two_cameras_have_two_tasks_each():
    config = load_config(EXAMPLES / "two_cameras.param.yaml")
    assert [camera.name for camera in config.cameras] == ["front/camera", "rear/camera"]
    assert {task.name: (task.camera, task.deadline_ms) for task in config.tasks} == {
        "front/detector": ("front/camera", 100.0),
        "rear/detector": ("rear/camera", 150.0),
        "front/segmenter": ("front/camera", 200.0),
        "rear/segmenter": ("rear/camera", 200.0),
    }
    assert config.process.workers == 2
