"""Processes: signals end them at once with code 0, from whatever they are doing."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from node_process import END_TIMEOUT_S, ROOT, Process
from ros_graph import Ros

from jetson_dnn_rt.nodes.process.running import END_HANGS, KILLED, SIGNAL

NULL = [
    "-p", "detector:model:=null:1", "-p", "segmenter:model:=null:1,segmentation",
    "-p", "camera:source:=synthetic:64x64",
]  # fmt: skip


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[type[Process]]:
    processes: list[Process] = []

    def make(executable: str, *arguments: str) -> Process:
        processes.append(Process(executable, *arguments))
        return processes[-1]

    yield make  # type: ignore[misc]
    for process in processes:
        process.close()


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGINT, signal.SIGINT, signal.SIGTERM)],
    ids=["SIGINT", "SIGTERM", "several"],
)
def test_signals_end_a_running_process_cleanly(start, signals) -> None:
    process = start("perception", "-p", "autostart:=true", *NULL)
    process.wait_for("schedulable")
    descendants = process.descendants()
    assert len(descendants) == 2  # the watcher, and the renderer of the synthetic camera
    assert process.end(*signals) == 0
    assert not any("Traceback" in line for line in process.lines), "".join(process.lines)
    end_s = time.monotonic() + END_TIMEOUT_S
    while any(one.exists() for one in descendants) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not any(one.exists() for one in descendants)


def test_a_signal_does_not_wait_for_a_transition(start) -> None:
    # The warm-up takes a minute; the end does not wait for it.
    slow = ["-p", "detector:model:=null:20000", "-p", "camera:source:=synthetic:64x64"]
    process = start("perception", "-p", "autostart:=true", *slow)
    process.wait_for("null:20000")
    assert process.end(signal.SIGINT) == 0


def test_a_signal_ends_a_build_in_the_background_too(start, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    variants = "[tucker-0.50@onnxruntime-fp32, full@onnxruntime-fp32]"
    values = [f"variants:={variants}", f"engine_cache:={tmp_path}", "autostart:=true"]
    process = start("detector", *(part for value in values for part in ("-p", value)))
    process.wait_for("built in the background")
    end_s = time.monotonic() + END_TIMEOUT_S
    while len(descendants := process.descendants()) < 2 and time.monotonic() < end_s:
        time.sleep(0.01)
    assert len(descendants) == 2  # the watcher, and the build
    assert process.end(signal.SIGINT) == 0
    assert not any("Traceback" in line for line in process.lines), "".join(process.lines)
    end_s = time.monotonic() + END_TIMEOUT_S
    while any(one.exists() for one in descendants) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not any(one.exists() for one in descendants)


@pytest.mark.parametrize("executable", ["camera", "detector", "segmenter"])
def test_every_executable_comes_up_alone_and_ends(start, executable: str) -> None:
    model = {"detector": "null:1", "segmenter": "null:1,segmentation"}.get(executable)
    arguments = ["-p", f"model:={model}"] if model else ["-p", "source:=synthetic:64x64"]
    process = start(executable, "-p", "autostart:=true", *arguments)
    process.wait_for("64x64 pixels at" if executable == "camera" else "schedulable")
    assert process.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("workers:=0", "workers"),
        ("discipline:=rms", "discipline must be one of edf, fifo, priority: 'rms'"),
        ("detector:deadline_ms:=soon", "deadline_ms must be a float: 'soon'"),
    ],
)
def test_a_bad_configuration_ends_it_with_code_2(start, argument: str, text: str) -> None:
    process = start("perception", "-p", argument)
    assert process.end() == 2
    assert text in "".join(process.lines)


def test_an_unused_task_waits_unconfigured(start) -> None:
    process = start("detector", "-p", "model:=onnx:/nowhere.onnx", "-p", "autostart:=true")
    process.wait_for("cannot configure")
    assert process.end(signal.SIGINT) == 0


def test_requests_that_rclpy_chokes_on_end_no_process(start, ros: Ros) -> None:
    """EDGES 0: a parameter of a type that does not exist, sent by anybody, gave exit code 1."""
    from lifecycle_msgs.srv import GetState
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import SetParameters

    process = start("detector", "-p", "model:=null:1", "-p", "autostart:=true")
    process.wait_for("schedulable")
    client = ros.call(lambda: ros.probe.create_client(SetParameters, "detector/set_parameters"))
    assert client.wait_for_service(60.0)
    unusable = Parameter(name="deadline_ms", value=ParameterValue(type=99))
    for _ in range(3):
        ros.call(lambda: client.call_async(SetParameters.Request(parameters=[unusable])))
    state = ros.request(GetState, "detector/get_state", GetState.Request()).current_state
    assert state.label == "active"
    assert process.end(signal.SIGTERM) == 0


HOLDING = """
import sys, threading
from jetson_dnn_rt.nodes.process import running
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode

def hold():
    import re
    print("holding", flush=True)
    {statement}

def make(context, args):
    node = ManagedNode("holder", context=context)
    node.declare_parameter("autostart", False)
    {start}
    return node

running.run_node(make, [])
"""
"""A node one of whose threads does something for ever."""

ENDLESS = {
    "pow": "pow(10, 10**9)",
    "regular expression": "re.match('(a+)+$', 'a' * 60 + 'b')",
    # rclpy writes while it has the interpreter's lock.
    "full pipe": "node.get_logger().warning('x' * 1000)",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_signal_ends_a_process_that_cannot_run_any_python(kind: str) -> None:
    """EDGES 6: with the interpreter's lock held for ever, or output that nobody reads."""
    full = kind == "full pipe"
    statement = ENDLESS[kind]
    start = (
        f"hold.__globals__['node'] = node; node.create_timer(0.001, lambda: {statement})"
        if full
        else "threading.Thread(target=hold, daemon=True).start()"
    )
    code = HOLDING.format(statement="pass" if full else statement, start=start)
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=write_end, stderr=write_end
    )
    os.close(write_end)
    try:
        end_s = time.monotonic() + END_TIMEOUT_S
        if full:
            # Full when it no longer grows: a write that does not fit into what is left of a page
            # begins the next, so that the bytes never add up to the size.
            half = fcntl.fcntl(read_end, fcntl.F_GETPIPE_SZ) // 2
            before, unread = -1, 0
            while (unread < half or unread != before) and time.monotonic() < end_s:
                time.sleep(0.2)
                before, unread = unread, _count_unread(read_end)
            assert unread >= half
            assert unread == before
        else:
            assert os.read(read_end, 7) == b"holding"
        time.sleep(0.2)  # nothing could tell that the lock is held now
        process.send_signal(signal.SIGTERM)
        # The first where the main thread was still able to begin the end.
        assert process.wait(END_TIMEOUT_S) in (END_HANGS.code, KILLED.code)
        if not full:
            with open(read_end, closefd=False) as output:
                text = output.read()
            assert "in hold" in text, text  # the stack of the thread
    finally:
        process.kill()
        process.wait()
        os.close(read_end)


def test_output_that_nobody_reads_does_not_delay_the_end() -> None:
    """EDGES 6: Python's own buffers are written out at the end; that may wait for ever."""
    start = "sys.stdout = open(1, 'w', 1 << 20); print('x' * 200_000); print('!', file=sys.stderr)"
    code = HOLDING.format(statement="pass", start=start)
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], cwd=ROOT, stdout=write_end, stderr=subprocess.PIPE
    )
    os.close(write_end)
    try:
        assert process.stderr is not None
        while b"!" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_TIMEOUT_S) == SIGNAL.code
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(read_end)


def _count_unread(descriptor: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def test_only_the_endings_of_the_list_end_a_process() -> None:
    """EDGES 0: what ends a process is a list, in one place."""
    import ast

    import jetson_dnn_rt.nodes
    from jetson_dnn_rt.nodes.process.running import ENDINGS

    ends = {"os._exit", "os.abort", "sys.exit", "exit", "quit", "SystemExit"}
    found = {
        f"{file.name}: {ast.unparse(node.func)}"
        for file in Path(jetson_dnn_rt.nodes.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ends
    }
    # `run_node` with the code of an ending; the other is the body of a child process.
    assert found <= {"running.py: os._exit", "low_priority.py: sys.exit"}
    assert len({ending.name for ending in ENDINGS}) == len(ENDINGS)
    assert all(ending.reason and ending.code in (0, 1, 2, -9) for ending in ENDINGS)
