# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `disk`, for some seconds: real processes, real disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("rclpy")
pytest.importorskip("rosbags")
pytest.importorskip("vision_msgs.msg")

from disk_commands import COMMANDS, list_words, words_of
from small_disk import NotAllowedError, small_disk

CAMPAIGN = Path(__file__).resolve().parents[1] / "campaigns" / "disk.py"


def test_every_command_has_a_case():
    """EDGES, campaign 5: a new command is run on disks with faults, too."""
    assert {" ".join(words_of(case)) for case in COMMANDS} == list_words()


def run_campaign(tmp_path, *arguments):
    try:
        with small_disk(tmp_path / "try", 1 << 20):
            pass
    except NotAllowedError as error:
        pytest.skip(str(error))
    patience = ("--quick", "--minutes", "30", "--recovery-s", "600")
    command = [sys.executable, CAMPAIGN, *patience, *arguments]
    environment = {**os.environ, "TMPDIR": os.fspath(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["faults"] == []
    assert report["passed"]


def test_a_command_writes_all_or_says_in_one_line_why_not(tmp_path):
    """EDGES, campaign 5: full, read-only, EIO in write, fsync and read, a full stdout."""
    cases = "library export;library import;bag;export, csv;simulate"
    run_campaign(tmp_path, "--cases", cases, "--graphs", "0")


def test_a_trace_goes_on_when_there_is_room_again(tmp_path):
    """EDGES, campaign 5: written + lost = jobs."""
    run_campaign(tmp_path, "--cases", "library list", "--graphs", "1")
