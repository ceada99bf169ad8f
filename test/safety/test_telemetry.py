# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Libraries report nothing about their use."""

from __future__ import annotations

import subprocess

import pytest

from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command

_PROGRAM = """
import os, sys
import jetson_dnn_rt
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
import openvino
from openvino.tools.ovc import telemetry_utils
print(telemetry_utils.tm.__name__)
"""


def test_openvino_has_no_way_to_send_anything(tmp_path):
    """Campaign 8: importing it looked up an address of Google Analytics."""
    pytest.importorskip("openvino")
    (tmp_path / "importing.py").write_text(_PROGRAM)
    environment = child_environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        python_command("importing"), cwd=CHILD_FOLDER, env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip().endswith("telemetry_stub")
