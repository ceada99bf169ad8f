# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`jetson-dnn-rt profile` as a script calls it, on a machine of its own."""

from __future__ import annotations

import json
import os

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.platforms.platform import UnknownPlatform


@pytest.fixture
def profile(tmp_path, capsys, monkeypatch):
    """Options to exit code, JSON of the only line, and stderr.

    By default the model is a scripted one of 0.1, 0.4 and 0.2 ms, and the frames are three small
    pictures. The machine has no clocks and an empty library.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    monkeypatch.setattr(
        "jetson_dnn_rt.platforms.detect.detect", lambda **options: UnknownPlatform()
    )
    folder = tmp_path / "images"
    folder.mkdir()
    for index in range(3):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((16, 24, 3), 60 * index, np.uint8))

    def run(options="", *, people=False):
        words = options.split()
        if "--model" not in words:
            words += ["--model", "camera=null:preprocess=0.1;inference=0.4;decode=0.2"]
        if "--frames" not in words:
            words += ["--frames", f"images:{folder}"]
        capsys.readouterr()
        code = main.main(["profile", *words, *([] if people else ["--json"])])
        captured = capsys.readouterr()
        if people:
            return code, captured.out, captured.err
        lines = captured.out.splitlines()
        assert len(lines) <= 1
        return code, json.loads(lines[0]) if lines else None, captured.err

    return run
