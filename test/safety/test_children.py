# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Children run nothing out of the folder that their parent stands in (EDGES 16)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from fleet_work import lack_the_model
from traps import lay_traps

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.safety.children import CHILD_FOLDER, ROOT, child_environment, python_command


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """Stand in a folder full of traps; the file is there once one was run."""
    marker = lay_traps(tmp_path / "bags")
    monkeypatch.chdir(tmp_path / "bags")
    return marker


@pytest.mark.parametrize("python_path", ["", ".", "::", "relative"])
def test_a_module_beside_the_caller_is_not_imported(tmp_path, marker, monkeypatch, python_path):
    """EDGES 16: by the command and the environment, wherever the child stands."""
    lay_traps(tmp_path / "bags" / "relative")
    monkeypatch.setenv("PYTHONPATH", python_path)
    target = "import ctypes, sys\nimport jetson_dnn_rt.clock\nprint(sys.argv, __name__)"
    package = tmp_path / "absolute"
    package.mkdir()
    (package / "child_under_test.py").write_text(target)
    environment = child_environment()
    environment["PYTHONPATH"] += f":{package}"
    command = python_command("child_under_test", "one", "two")
    for folder in (CHILD_FOLDER, None):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split("', '")[1:] == ["one", "two'] __main__\n"]
    assert not marker.exists()


def render():
    from jetson_dnn_rt.cameras.live.synthetic import SyntheticSource

    source = SyntheticSource(96, 64, 10.0, 1)
    image = np.zeros((64, 96, 3), np.uint8)
    assert source.read(image) is image
    assert image.any()
    source.close()


def load(kind):
    from jetson_dnn_rt.lab.profile.co_runners import run_load

    with run_load(kind, count=1) as load:
        load.check()


def load_memory():
    load("memory")


def load_cpu():
    load("cpu")


def start_cold():
    from jetson_dnn_rt.lab.profile.cold_start import FRAMES, ColdSpec
    from jetson_dnn_rt.lab.profile.cold_start import start_cold as start

    frames = [Frame(np.zeros((8, 8, 3), np.uint8), "bgr8", 0, 1)]
    cold = start(ColdSpec("null:inference=1", "full@null", stages=1), frames)
    assert len(cold.stamps_ns) == FRAMES


def build_at_low_priority():
    # Without the environment: what it becomes is started as safely as it was itself.
    command = python_command(
        "jetson_dnn_rt.runtime.building.low_priority", str(os.getpid()), "0", "build", "-h"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--no-tuning" in done.stdout


def build_in_the_background():
    pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
    pytest.importorskip("torch", reason="torch is not installed: build needs it")
    import logging
    import threading
    from types import SimpleNamespace
    from typing import cast

    from jetson_dnn_rt.config.task import TaskConfig
    from jetson_dnn_rt.runtime.building import background_build
    from jetson_dnn_rt.runtime.realtime import Realtime
    from jetson_dnn_rt.runtime.task import Task

    config = TaskConfig("task", model="null:1", variants=("full@null",))
    task = cast(Task, SimpleNamespace(config=config, batch_tasks=1, threads=1, name="/task"))
    realtime = cast(Realtime, None)  # of what is loaded later
    build = background_build.BackgroundBuild(
        task, threading.Lock(), realtime, logging.getLogger(), bool
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background_build, "NICE", 0)  # not to wait for cores that others use
        assert build._run_process(["full@null"]) == {"full@null": ""}


def try_rights():
    from jetson_dnn_rt.cli.doctor import check_rights

    names = [check.name for check in check_rights()]
    assert names == ["sched_fifo", "mlockall"]


def evaluate():
    from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest
    from jetson_dnn_rt.lab.evaluate.fleet import Failure, run_with_processes

    request = ChunkRequest("/none", "/image", 0, 1, ())
    (answer,) = run_with_processes([request], lack_the_model, 1)
    assert isinstance(answer, Failure)


def replay():
    from benchmarks.harness.processes import BenchmarkError
    from benchmarks.replay.bench import evaluate as run_evaluate

    with pytest.raises(BenchmarkError, match=r"jetson_dnn_rt\.cli\.main evaluate .*ended with 2"):
        run_evaluate(["bag:/none"])


def run_networks_side_by_side():
    pytest.importorskip("torch", reason="torch is not installed")
    from benchmarks.multi_dnn.modes import Processes

    with Processes(1, "cpu", 1) as processes:
        assert len(processes) == 1


CHILDREN: list[Callable[[], None]] = [
    render, load_memory, load_cpu, start_cold, build_at_low_priority,
    build_in_the_background, try_rights, evaluate, replay, run_networks_side_by_side,
]  # fmt: skip


@pytest.mark.parametrize("start", CHILDREN, ids=lambda start: start.__name__)
def test_a_child_is_not_trapped(start, marker):
    """EDGES 16: every kind of child, started for real where a `ctypes.py` and the like lie."""
    start()
    assert not marker.exists(), marker.read_text()


def test_children_are_started_in_one_way_only():
    """EDGES 16: no other module names the interpreter, or spawns without `safe_spawning`."""
    for path in sorted((ROOT / "jetson_dnn_rt").rglob("*.py")):
        text = path.read_text()
        if path.name != "children.py":
            assert "sys.executable" not in text, f"{path}: use jetson_dnn_rt.safety.children"
            assert '"-m"' not in text, f"{path}: use jetson_dnn_rt.safety.children.python_command"
        if re.search(r"\b(get_context|ProcessPoolExecutor|LocalCluster)\(", text):
            assert "safe_spawning()" in text, f"{path}: see safety.children.safe_spawning"
