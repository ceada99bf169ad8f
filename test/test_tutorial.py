# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every command of `docs/tutorial.md` runs, in its order, in one folder, as a user types it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.demo.builtin import weights_path
from jetson_dnn_rt.demo.scenes.generator import SceneGenerator

PAGE = Path(__file__).resolve().parent.parent / "docs/tutorial.md"
BLOCK = re.compile(r"```(sh|yaml)\n(.*?)```", re.DOTALL)
NAMED = re.compile(r"Save as `([\w.]+)`")

PROMISED = (
    "sheets",
    "boxes/annotated.mp4",
    "boxes/latency.png",
    "full.jsonl",
    "worst",
    "small",
    "drive_bag/metadata.yaml",
    "report/report.html",
    "coordinated/summary.json",
)
"""What the page says is written."""


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """A user's folder and empty home: a video of three seconds and a network of her own."""
    for package in ("rclpy", "torch", "onnxruntime", "openvino", "rosbags", "matplotlib"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copy(weights_path("detector"), folder / "net.onnx")
    drive, frame = SceneGenerator(7, (480, 640)), np.empty((480, 640, 3), np.uint8)
    writer = cv2.VideoWriter(
        str(folder / "drive.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 20.0, (640, 480)
    )
    for number in range(60):
        drive.render(number * 50_000_000, frame)
        writer.write(frame)
    writer.release()
    return folder


def find_blocks():
    """Commands and files of the page in their order: (name of a file or "", text)."""
    text = PAGE.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        names = NAMED.findall(text[: match.start()])
        yield (names[-1] if match[1] == "yaml" else ""), match[2]


def test_every_command_runs(user, monkeypatch):
    (user / "home").mkdir()
    environment = dict(os.environ, HOME=str(user / "home"))
    environment.pop("XDG_CACHE_HOME", None)
    run = 0
    for file, text in find_blocks():
        if file:
            (user / file).write_text(text, encoding="utf-8")
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words[0] != "jetson-dnn-rt":
                assert words[0] == "ros2", line  # test/launch runs the launch files
                continue
            command = [sys.executable, "-m", "jetson_dnn_rt.cli.main", *words[1:]]
            done = subprocess.run(
                command, cwd=user, env=environment, capture_output=True, text=True, timeout=300
            )
            # Which network is faster is measured, and may be decided by what else runs here.
            is_slower = words[1] == "compress" and "REFUSED     not faster than" in done.stdout
            expected = 1 if is_slower else 0
            shown = f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            assert done.returncode == expected, shown
            run += 1
    assert run >= 15
    for path in PROMISED:
        assert (user / path).exists(), path
