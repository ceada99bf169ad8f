# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A node builds the variants it lacks while it runs with the others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import cv2
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import ros_graph
from diagnostic_msgs.msg import DiagnosticArray
from task_bench import Bench, Log, diagnostics_of, make_image, wait_for_value

from jetson_dnn_rt.nodes.process.lifecycle import SUCCESS
from jetson_dnn_rt.runtime.building import background_build
from jetson_dnn_rt.tasks import Outcome

TUCKER, FULL = "tucker-0.50@onnxruntime-fp32", "full@onnxruntime-fp32"
BUILD_TIMEOUT_S = 600.0
NICE = background_build.NICE
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A build takes its time, but does not wait for cores that other tests use."""
    monkeypatch.setattr(background_build, "NICE", 0)
    monkeypatch.setattr(ros_graph, "TIMEOUT_S", BUILD_TIMEOUT_S)


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    from jetson_dnn_rt.demo.scenes import random_scene

    for seed in range(4):
        cv2.imwrite(str(folder / f"{seed}.png"), random_scene(seed, (240, 320)).image)
    return f"images:{folder}"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """For tests that let no build come to its end: what is exported once serves them all."""
    return tmp_path_factory.mktemp("library")


def make_bench(ros, library, **values):
    return Bench(
        ros,
        **{
            "model": "builtin:detector",
            "variants": [TUCKER, FULL],
            "engine_cache": str(library),
            "deadline_ms": 20_000.0,
            "threads": 1,
            "least_agreement": 0.0,  # it is built on a few pictures
            **values,
        },
    )


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_is_missing_is_built_and_switched_to_while_frames_run(
    ros, tmp_path, pictures, monkeypatch
):
    monkeypatch.setattr(background_build, "LOG_PERIOD_S", 0.0)
    bench = make_bench(ros, tmp_path / "library", build_frames=pictures)
    log = Log(bench.node)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.MET) == 1
    # What is missing is said, and no fault.
    found = wait_for_value(inbox, "/detector: task_status", "left_out", TUCKER)
    assert found["variants"] == FULL
    assert "not in the library" in found[f"left_out.{TUCKER}"]
    assert not found[""].startswith("left out")
    assert log.count("not in the library") == 1
    result = ros.set(bench.node, variant=TUCKER)
    assert not result.successful
    assert f"variant {TUCKER} is being built" in result.reason
    assert bench.node.get_parameter("variant").value == ""
    # Other parameters are not concerned.
    assert ros.set(bench.node, confidence_threshold=0.5).successful

    count = 1

    def has_switched():
        nonlocal count
        assert not log.count("is left out"), log.lines
        time.sleep(0.2)  # a slow camera: frames one after the other would starve the build
        count += 1
        bench.send(make_image(ros), count)
        return bench.node.snapshot.parameters.variant == TUCKER

    ros.wait(has_switched, "the new variant")
    bench.send(make_image(ros), count + 1)
    assert bench.count(Outcome.MET) == count + 1
    assert list(dict.fromkeys(bench.seen.variants)) == [FULL, TUCKER]
    assert bench.seen.variants[-1] == TUCKER
    assert log.count(f"building: detector {TUCKER}") >= 2
    assert log.count(f"variant {TUCKER} runs from the next frame on") == 1
    ros.wait(lambda: bench.node.session.find_build("detector") is None, "the end of the build")
    inbox.clear()
    found = wait_for_value(inbox, "/detector: task_status", "left_out", "none")
    assert found["variants"] == f"{FULL}, {TUCKER}"
    assert f"budget_ms.{TUCKER}" in found
    assert ros.set(bench.node, variant=FULL).successful

    # The next start finds it in the library.
    bench.node.trigger_deactivate()
    bench.node.trigger_cleanup()
    assert ros.set(bench.node, variant="").successful
    assert bench.node.autostart()
    assert bench.node.loaded.variant_names == (TUCKER, FULL)
    assert bench.node.session.find_build("detector") is None


@pytest.mark.parametrize("how", ["clean up", "shut down"])
def test_a_build_ends_with_its_node(ros, library, how, monkeypatch):
    monkeypatch.setattr(background_build, "NICE", 5)
    bench = make_bench(ros, library)
    log = Log(bench.node)
    bench.start()
    build = bench.node.session.find_build("detector")
    waiting = ("waits for its turn", "starts")
    ros.wait(lambda: build.progress not in waiting, "the build's progress")
    process = build._process
    assert is_alive(process.pid)
    own = os.getpriority(os.PRIO_PROCESS, 0)  # this run may have a low priority itself
    wanted = min(own + background_build.NICE, 19)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == wanted
    if how == "clean up":
        # It outlives the inactive state.
        bench.node.trigger_deactivate()
        assert bench.node.session.find_build("detector") is build
        bench.node.trigger_cleanup()
        assert build.over
        assert bench.node.is_unconfigured
    else:
        bench.node.trigger_shutdown()
    ros.wait(lambda: build.over, "the end of the thread")
    ros.wait(lambda: not is_alive(process.pid), "the end of the process")
    assert bench.node.session.find_build("detector") is None
    assert log.count("left out") == 0  # a build that was stopped has not failed
    if how == "clean up":
        assert ros.set(bench.node, build_missing=False).successful
        assert bench.node.autostart(), bench.node.fault
        assert bench.node.session.find_build("detector") is None


def test_a_failed_build_is_said_once_and_the_task_goes_on(ros, library):
    bench = make_bench(ros, library, build_frames="images:/nowhere", variant=TUCKER)
    log = Log(bench.node)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    ros.wait(lambda: bench.node.session.find_build("detector") is None, "the end of the build")
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.MET) == 1
    assert log.count(f"variant {TUCKER} is left out: ") == 1
    inbox.clear()
    found = diagnostics_of(inbox, "/detector: task_status", b"\x01")
    assert found[""] == f"left out: {TUCKER}"
    assert "/nowhere" in found[f"left_out.{TUCKER}"]
    assert found["variant"] == FULL
    result = ros.set(bench.node, variant=f"{TUCKER}")
    assert result.successful  # it is what the parameter says already
    assert ros.set(bench.node, variant=FULL).successful
    result = ros.set(bench.node, variant=TUCKER)
    assert not result.successful
    assert "/nowhere" in result.reason
    # It is not tried again before the next configuration.
    bench.node.trigger_deactivate()
    assert bench.node.autostart()
    assert bench.node.session.find_build("detector") is None


@pytest.mark.parametrize(
    ("lacking", "values", "why"),
    [
        (TUCKER, {"engine_cache": "none"}, "not in the library"),
        (
            "full@openvino-fp32",
            {"variants": [FULL, "full@openvino-fp32"], "memory_limit_mb": 0.001},
            "memory_limit_mb",
        ),
    ],
    ids=["no library", "no memory"],
)
def test_what_cannot_be_had_is_left_out_and_not_built(ros, library, lacking, values, why):
    if "openvino" in lacking:
        pytest.importorskip("openvino", reason="openvino is not installed")
    bench = make_bench(ros, library, **values)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    found = diagnostics_of(inbox, "/detector: task_status", b"\x01")
    assert found[""] == f"left out: {lacking}"
    assert found["left_out"] == lacking
    assert why in found[f"left_out.{lacking}"]
    assert bench.node.session.find_build("detector") is None
    result = ros.set(bench.node, variant=lacking)
    assert (result.successful, why in result.reason) == (False, True)
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.MET) == 1


def test_stages_are_those_asked_for(ros, library):
    bench = make_bench(ros, library, variants=["full@torch-fp32", FULL], stages=3)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    bench.send(make_image(ros), 1)
    ((record, _),) = bench.seen.items
    assert len(record.stages) == 5  # preprocess, three of the network, decode
    wait_for_value(inbox, "/detector: task_status", "stages", "3")


def test_a_configuration_in_progress_is_in_the_diagnostics(ros, library, monkeypatch):
    bench = make_bench(ros, library, variants=[FULL])
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    ros.wait(lambda: bench.node._diagnostics._publisher.get_subscription_count())
    configure = bench.node.configure

    def configure_when_seen():
        wait_for_value(inbox, "/detector: task_status", "state", "configuring")
        configure()

    monkeypatch.setattr(bench.node, "configure", configure_when_seen)
    assert bench.node.trigger_configure() == SUCCESS


def test_a_low_priority_process_dies_with_its_parent():
    def wait(condition):
        end_s = time.monotonic() + BUILD_TIMEOUT_S
        while not condition():
            assert time.monotonic() < end_s
            time.sleep(0.01)

    # Its standard input stays open: only the death of its parent can end it.
    code = (
        "import os, subprocess, sys, time\n"
        "from jetson_dnn_rt.safety.children import python_command\n"
        "child = subprocess.Popen(python_command('jetson_dnn_rt.runtime.building.low_priority',\n"
        f"    str(os.getpid()), '{NICE}', 'build', '--params', '/dev/stdin'))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=read_end, stdout=subprocess.PIPE, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            command = Path(f"/proc/{child}/cmdline")
            wait(lambda: b"cli.main" in command.read_bytes())
            assert os.getpriority(os.PRIO_PROCESS, child) == 19
            assert os.sched_getscheduler(child) == os.SCHED_BATCH
            assert os.getpgid(child) == child
            assert os.getsid(child) == os.getsid(0)
            parent.kill()
            wait(lambda: not is_alive(child))
        finally:
            parent.kill()
            os.close(read_end)
            os.close(write_end)
