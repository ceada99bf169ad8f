# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Processes: signals end them at once with code 0, from whatever they are doing."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from node_process import END_TIMEOUT_S, ROOT, Process

from jetson_dnn_rt.nodes.process.running import END_LIMIT_S, KILLED, SIGNAL

NULL = [
    "-p", "detector:model:=null:1", "-p", "segmenter:model:=null:1,segmentation",
    "-p", "camera:source:=synthetic:64x64",
]  # fmt: skip


@pytest.fixture
def start(request):
    processes: list[Process] = []

    def make(executable, *arguments):
        processes.append(Process(executable, *arguments))
        return processes[-1]

    yield make  # type: ignore[misc]
    for process in processes:
        process.close()


def wait(condition):
    end_s = time.monotonic() + END_TIMEOUT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def end_with_descendants(process, *signals):
    """End a process that has two others."""
    wait(lambda: len(process.descendants()) == 2)
    descendants = process.descendants()
    assert process.end(*signals) == 0, process.said
    assert "Traceback" not in process.said, process.said
    wait(lambda: not any(one.exists() for one in descendants))


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT, signal.SIGTERM)],
    ids=["one", "several"],
)
def test_signals_end_a_running_process_cleanly(start, signals):
    process = start("perception", "-p", "autostart:=true", *NULL)
    process.wait_for("schedulable")
    end_with_descendants(process, *signals)  # the watcher, the synthetic camera's renderer


def test_a_signal_does_not_wait_for_a_transition(start):
    # The warm-up takes a minute; the end does not wait for it.
    slow = ["-p", "detector:model:=null:20000", "-p", "camera:source:=synthetic:64x64"]
    process = start("perception", "-p", "autostart:=true", *slow)
    process.wait_for("null:20000")
    assert process.end(signal.SIGINT) == 0, process.said


def test_a_signal_ends_a_build_in_the_background_too(start, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    variants = "[tucker-0.50@onnxruntime-fp32, full@torch-fp32]"
    values = [f"variants:={variants}", f"engine_cache:={tmp_path}", "autostart:=true"]
    process = start("detector", *(part for value in values for part in ("-p", value)))
    process.wait_for("built in the background")
    end_with_descendants(process, signal.SIGINT)  # the watcher, the build


def test_a_machine_that_stands_still_makes_no_orderly_end_a_failure(start):
    """As a virtual one does while it is saved or moved: the process and its watcher stop."""
    process = start("detector", "-p", "model:=null:1", "-p", "autostart:=true")
    process.wait_for("schedulable")
    wait(lambda: len(process.descendants()) == 1)
    both = [process.pid, int(process.descendants()[0].name)]
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.02)  # the end has begun, which no event tells
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in both:
            os.kill(pid, number)
        time.sleep(2.0 if number == signal.SIGSTOP else 0.0)
    assert process.end() == 0, process.said


@pytest.mark.parametrize(
    "executable", [("perception", *NULL), ("detector", "-p", "model:=null:1")], ids=("four", "one")
)
def test_an_orderly_end_leaves_no_shared_memory_behind(start, executable):
    """Up to 35 MB a process; and one that dies in the middle of sending holds up the others.

    An end that does not get the processor in its time, beside busy programs, is cut off.
    """
    for _ in range(5):
        process = start(*executable, "-p", "autostart:=true")
        process.wait_for("schedulable")
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        segments = set(re.findall(r"/dev/shm/fast\w+_[0-9a-f]{16}\b", maps))
        assert segments  # of the DDS participant
        begin_s = time.monotonic()
        assert process.end(signal.SIGTERM) == 0, process.said
        was_cut_off = time.monotonic() - begin_s > END_LIMIT_S
        left = [segment for segment in segments if os.path.exists(segment)]
        if not (left and was_cut_off):
            break
    assert not left


def test_the_segmenter_comes_up_alone_and_ends(start):
    """The other executables do in test_rogue.py."""
    process = start("segmenter", "-p", "autostart:=true", "-p", "model:=null:1,segmentation")
    process.wait_for("schedulable")
    assert process.end(signal.SIGTERM) == 0, process.said


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("workers:=0", "workers"),
        ("discipline:=rms", "discipline must be one of edf, fifo, priority: 'rms'"),
        ("detector:deadline_ms:=soon", "deadline_ms must be a number: 'soon'"),
        ("detector:dedline_ms:=5.0", "parameter dedline_ms; did you mean deadline_ms?"),
        ("detektor:model:=null:1", "there is no node detektor here; did you mean detector?"),
    ],
)
def test_a_bad_configuration_ends_it_with_code_2(start, argument, text):
    process = start("perception", "-p", argument)
    assert process.end() == 2, process.said
    assert text in "".join(process.lines)


@pytest.mark.parametrize("executable", ["detector", "perception"])
def test_a_file_whose_section_is_for_another_namespace_ends_it_with_code_2(
    start, tmp_path, executable
):
    """Before, the demonstration network ran."""
    file = tmp_path / "p.yaml"
    file.write_text("detector: {ros__parameters: {model: 'null:1'}}")
    process = start(executable, "-r", "__ns:=/front", "--params-file", str(file))
    assert process.end() == 2, process.said
    assert "did you mean /front/detector, or /**/detector" in process.said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--params-file", "/nofile"), "parameter file /nofile does not exist"),
        (("-p", "model=x"), "Couldn't parse parameter override rule: '-p model=x'"),
        (("--no-such",), "there is no ROS argument ['--no-such']"),
    ],
)
def test_arguments_that_ros_cannot_use_end_it_with_code_2(start, arguments, text):
    """Before, it was a traceback."""
    process = start("detector", *arguments)
    assert process.end() == 2, process.said
    assert text in process.said
    assert "Traceback" not in process.said


def test_an_unconfigured_node_says_what_it_waits_for(start):
    """Before, nothing was logged."""
    process = start("detector", "-r", "__ns:=/front")
    process.wait_for("unconfigured: nothing is loaded and nothing is published yet")
    assert "ros2 lifecycle set /front/detector configure" in process.said
    assert "--ros-args -p autostart:=true" in process.said
    assert process.end(signal.SIGINT) == 0


STARTER = """
import subprocess, sys
from jetson_dnn_rt.safety.starter import name_starter
code = "from jetson_dnn_rt.nodes.process.main import detector; detector()"
import os
process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **name_starter()})
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_ends_when_what_started_it_is_gone(number):
    """Before, `ros2 launch` that is ended so leaves its processes, with the camera."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as starter:
        pid = int(starter.stdout.readline())
        watched = os.pidfd_open(pid)
        for line in starter.stderr:
            if "unconfigured" in line:
                break
        starter.send_signal(number)
        ended, _, _ = select.select([watched], [], [], END_TIMEOUT_S)
        os.close(watched)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        assert ended


def test_a_misspelt_section_ends_it_with_code_2(start, tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("/**/detektor: {ros__parameters: {stages: 2}}\n")
    process = start("perception", "--params-file", str(file))
    assert process.end() == 2, process.said
    said = "".join(process.lines)
    assert said.count("params.yaml, line 1: section /**/detektor matches no node") == 1
    assert "did you mean /**/detector?" in said


def test_an_unused_task_waits_unconfigured(start):
    process = start("detector", "-p", "model:=onnx:/nowhere.onnx", "-p", "autostart:=true")
    process.wait_for("cannot configure")
    assert process.end(signal.SIGINT) == 0, process.said


def test_requests_that_rclpy_chokes_on_end_no_process(start, ros):
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
    # "schedulable" is logged while the node is activated.
    ros.wait(
        lambda: (
            ros.request(GetState, "detector/get_state", GetState.Request()).current_state.label
            == "active"
        ),
        "active",
    )
    assert process.end(signal.SIGTERM) == 0, process.said


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


@contextlib.contextmanager
def running(code, errors=subprocess.STDOUT):
    """A process and the end of the pipe that it writes to, which nobody reads."""
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code], cwd=ROOT, stdout=write_end, stderr=errors
    ) as process:
        os.close(write_end)
        try:
            yield process, read_end
        finally:
            process.kill()
            os.close(read_end)


ENDLESS = {
    "pow": "pow(10, 10**9)",
    "regular expression": "re.match('(a+)+$', 'a' * 60 + 'b')",
    # rclpy writes while it has the interpreter's lock.
    "full pipe": "node.get_logger().warning('x' * 1000)",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_signal_ends_a_process_that_cannot_run_any_python(kind):
    """EDGES 6: with the interpreter's lock held for ever, or output that nobody reads."""
    full = kind == "full pipe"
    statement = ENDLESS[kind]
    begin = (
        f"hold.__globals__['node'] = node; node.create_timer(0.001, lambda: {statement})"
        if full
        else "threading.Thread(target=hold, daemon=True).start()"
    )
    code = HOLDING.format(statement="pass" if full else statement, start=begin)
    code = code.replace("running.run_node", "running.KILL_LIMIT_S = 1.5\nrunning.run_node")
    with running(code) as (process, read_end):
        if full:
            # Full when it no longer grows: a write that does not fit into what is left of a page
            # begins the next, so that the bytes never add up to the size.
            half = fcntl.fcntl(read_end, fcntl.F_GETPIPE_SZ) // 2
            unread = [-1, 0]

            def is_full():
                time.sleep(0.2)
                unread.append(_count_unread(read_end))
                return unread[-1] >= half and unread[-1] == unread[-2]

            wait(is_full)
        else:
            assert os.read(read_end, 7) == b"holding"
        time.sleep(0.2)  # nothing could tell that the lock is held now
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_TIMEOUT_S) == KILLED
        if not full:
            with open(read_end, closefd=False) as output:
                text = output.read()
            assert "in hold" in text, text  # the stack of the thread


def test_a_lock_that_is_held_for_some_seconds_makes_no_orderly_end_a_failure():
    """Fast DDS waits for a lock of a process that was killed; rclpy has the interpreter's then."""
    statement = "import ctypes; ctypes.PyDLL(None).usleep(2_500_000)"
    begin = "threading.Thread(target=hold, daemon=True).start()"
    with running(HOLDING.format(statement=statement, start=begin)) as (process, read_end):
        assert os.read(read_end, 7) == b"holding"
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_TIMEOUT_S) == SIGNAL


def test_output_that_nobody_reads_does_not_delay_the_end():
    """EDGES 6: Python's own buffers are written out at the end; that may wait for ever."""
    begin = "sys.stdout = open(1, 'w', 1 << 20); print('x' * 200_000); print('!', file=sys.stderr)"
    code = HOLDING.format(statement="pass", start=begin)
    with running(code, subprocess.PIPE) as (process, _):
        while b"!" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_TIMEOUT_S) == SIGNAL


def _count_unread(descriptor):
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def test_only_the_endings_of_the_list_end_a_process():
    """EDGES 0: what ends a process is a list, in one place."""
    import ast

    import jetson_dnn_rt.nodes

    ends = {"os._exit", "os.abort", "sys.exit", "exit", "quit", "SystemExit"}
    found = {
        f"{file.name}: {ast.unparse(node.func)}"
        for file in Path(jetson_dnn_rt.nodes.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ends
    }
    assert found == {"running.py: os._exit"}  # `run_node`, with a code of the list
