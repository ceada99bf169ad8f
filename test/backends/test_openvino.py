"""What OpenVINO leaves in a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("openvino", reason="openvino is not installed")

SIGNAL_AFTER_RUNNERS = """
import os, signal
from jetson_dnn_rt.backends.openvino import OpenVinoRunner, supports_bf16
from jetson_dnn_rt.models.sources.registry import load_model

supports_bf16()
part = load_model("builtin:detector").part
first, second = (OpenVinoRunner(part, "fp32", 1) for _ in range(2))
first.close()
second.close()
del first, second
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
for _ in range(3):
    os.kill(os.getpid(), signal.SIGINT)
print(len(seen))
"""


def test_a_signal_after_closed_runners_is_handled():
    """Ctrl-C in `build`: it ends in order, and not with a segmentation fault."""
    command = [sys.executable, "-c", SIGNAL_AFTER_RUNNERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
