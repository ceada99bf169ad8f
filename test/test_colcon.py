# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""colcon builds the package where `ros2 run` and the shell find its programs, and tests it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from quick_compiler import make_quick_compiler

pytest.importorskip("colcon_core", reason="needs colcon")
pytest.importorskip("colcon_ros", reason="needs colcon")

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def colcon(workspace, *arguments):
    # Not the pytest options of this run, nor the checkout that it runs in.
    drop = ("PYTEST_ADDOPTS", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if name not in drop}
    env["CC"] = make_quick_compiler(workspace)
    answer = subprocess.run(
        [sys.executable, "-m", "colcon", "--log-base", "log", *arguments],
        cwd=workspace,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


def list_files(folder):
    """All but what is hidden: the environment, and caches that other tests write meanwhile."""
    found = set()
    for path, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if one != "__pycache__" and not one.startswith(".")]
        found.update(Path(path, file).relative_to(folder) for file in files)
    return found


@pytest.mark.parametrize("options", [[], ["--symlink-install"]], ids=["copy", "symlink"])
def test_build_and_test(tmp_path, options):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/jetson_dnn_rt").symlink_to(ROOT)
    before = list_files(ROOT)
    colcon(tmp_path, "build", *options)
    assert list_files(ROOT) == before, "setup.py writes into the checkout"

    installed = tmp_path / "install/jetson_dnn_rt"
    for program in ("bin/jetson-dnn-rt", "lib/jetson_dnn_rt/doctor"):
        shell = f'. install/setup.sh && exec "{installed / program}" --help'
        answer = subprocess.run(
            ["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert "usage: jetson-dnn-rt" in answer.stdout
    assert os.access(installed / "lib/jetson_dnn_rt/camera", os.X_OK)

    part = ("--pytest-args", "test/scheduling/test_queue.py", "test/test_tasks.py")
    colcon(tmp_path, "test", "--return-code-on-test-failure", *part)
    suite = ElementTree.parse(tmp_path / "build/jetson_dnn_rt/pytest.xml").find("testsuite")
    assert int(suite.get("tests")) > 10
    assert suite.get("failures") == suite.get("errors") == suite.get("skipped") == "0"
    assert f"{suite.get('tests')} tests, 0 errors, 0 failures" in colcon(tmp_path, "test-result")
