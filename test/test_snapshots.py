# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What users see, against the files in test/snapshots: see tools/snapshots.py."""

from __future__ import annotations

import os
import sys

import pytest
from snapshots import FOLDER, SNAPSHOTS, UNTESTED, collect, compare, render, snapshot_file

NEEDED = {
    "parameters": ("rclpy",),
    "interfaces": ("rclpy", "vision_msgs.msg"),
    "json_keys": ("rclpy", "vision_msgs.msg", "cv2", "rosbags", "pyarrow", "scipy", "xlsxwriter"),
    "trace_schema": ("pyarrow", "xlsxwriter"),
    "help_benchmarks": ("rclpy", "torch"),
}
"""Snapshots of what needs libraries that are not always there."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SNAPSHOTS if name not in UNTESTED])
def test_nothing_that_users_see_has_changed(name, tmp_path, monkeypatch):
    for module in NEEDED.get(name, ()):
        pytest.importorskip(module)
    if name.startswith("help") and sys.version_info >= (3, 13):
        pytest.skip("argparse of Python 3.13 breaks lines in other places")
    if name == "decisions_simulated":
        from snapshot_decisions import fingerprint

        if f"fingerprint: {fingerprint()}\n" not in snapshot_file(name).read_text("utf-8"):
            pytest.skip("numpy rounds otherwise on this processor than where this was written")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    diff = compare(name, collect(name))
    assert not diff, (
        f"{name} is not what it was. If that is meant: python tools/snapshots.py --write {name}"
        f"\n{diff}"
    )


def test_every_snapshot_is_there_and_no_other():
    assert {file.stem for file in FOLDER.iterdir()} == set(SNAPSHOTS)


def test_a_difference_is_shown_line_by_line(monkeypatch):
    text = snapshot_file("executables").read_text("utf-8")
    assert compare("executables", text) == ""
    diff = compare("executables", text.replace("pip: jetson-dnn-rt: is there\n", ""))
    assert "-pip: jetson-dnn-rt: is there" in diff.splitlines()
    assert render({"b": 1, "a": {"y": None, "x": "ä"}}) == 'a: {"x": "ä", "y": null}\nb: 1\n'
