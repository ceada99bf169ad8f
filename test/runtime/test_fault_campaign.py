# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `faults`, for some calls of each kind of thread: its short form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: diagnostics are messages")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: traces need it")

PROGRAM = Path(__file__).resolve().parents[1] / "campaigns" / "faults.py"
KINDS = {"worker", "watchdog", "delivery", "trace", "clock", "camera"}


def run(*arguments):
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        env={**os.environ, "JETSON_DNN_RT_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_exceptions_and_hangs_in_every_kind_of_thread_are_named_and_survived():
    """EDGES, campaign 3. Times are judged by the campaign by hand: here they are generous."""
    code, report = run(
        *("--sample", "3", "--seed", "5", "--scenarios", "plain,troubles", "--no-ros"),
        *("--look-s", "0.7", "--stuck-s", "0.3", "--patience", "15"),
    )
    assert (code, report["faults"]) == (0, []), report
    tried = report["counts"]["tried"]
    assert {name.split()[0] for name in tried} == KINDS
    assert {name.split()[1] for name in tried} == {"raise", "hang"}
    listed, reached = report["counts"]["listed"], report["counts"]["reached"]
    assert all(0 < reached[kind] <= listed[kind] for kind in KINDS)
