# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`jetson-dnn-rt top` as scripts and people start it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: there is no graph to watch")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.watch import table, top
from jetson_dnn_rt.watch.graph import Graph

COMMAND = [sys.executable, "-m", "jetson_dnn_rt.cli.main", "top"]
TIMEOUT_S = 120
VALUES = {"outcome": "met", "response_ms": "11.0", "deadline_ms": "33.0", "variant": "full@a"}


@pytest.fixture
def task(ros):
    """A task that publishes timing ten times a second."""
    status = DiagnosticStatus(values=[KeyValue(key=k, value=v) for k, v in VALUES.items()])
    publisher = ros.advertise(DiagnosticArray, "/front/detector/debug/timing", 10)
    message = DiagnosticArray(status=[status])
    ros.call(lambda: ros.probe.create_timer(0.1, lambda: publisher.publish(message)))


def start(*arguments, **options):
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, **options
    )


def test_json_is_the_last_line_and_the_table_is_for_people(task):
    done = start("--json", "--seconds", "5")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    (found,) = json.loads(line)["tasks"]
    assert (found["name"], found["variant"], found["p50_ms"]) == ("/front/detector", "full@a", 11)
    assert found["counts"]["met"] > 0
    assert "/front/detector" in done.stderr


def test_a_pipe_gets_plain_tables(task):
    done = start("--seconds", "5")
    assert done.returncode == 0, done.stderr
    assert "/front/detector" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("arguments", [[], ["--namespace", "/rear"]], ids=["none", "elsewhere"])
def test_without_a_task_it_fails_and_says_where_to_look(arguments, request):
    if arguments:
        request.getfixturevalue("task")
    done = start("--once", "--seconds", "0.1", *arguments)
    assert done.returncode == 1
    assert done.stdout.startswith(table.NO_TASK)
    assert f"no task was found within {top.FIND_S:g} s" in done.stderr


class Later:
    """A wait that does what is due at its poll of that number, and ends after some more."""

    def __init__(self, due):
        self.due, self.polls = due, 0

    def __call__(self, period_s):
        self.polls += 1
        for action in self.due.pop(self.polls, ()):
            action()
        return self.polls < 1000


SETTLED = round(top.SETTLE_S / top.POLL_S)


def test_one_table_waits_for_data_and_not_for_a_time():
    """Before, discovery took the three seconds of `--once`, and the table had no frame."""
    graph = Graph()
    wait = Later(
        {
            100: [lambda: graph.set_present(["/a"])],
            105: [lambda: graph.set_present(["/a", "/b"])],
            110: [lambda: graph.add_frame("/a", VALUES)],
            200: [lambda: graph.add_frame("/b", VALUES)],
        }
    )
    top.wait_for_frames(graph, wait)
    assert wait.polls == 200


def test_tasks_that_are_found_one_after_the_other_are_all_waited_for():
    graph = Graph()

    def add(name, *others):
        return [lambda: graph.set_present([name, *others]), lambda: graph.add_frame(name, VALUES)]

    wait = Later({1: add("/a"), SETTLED: add("/b", "/a")})
    top.wait_for_frames(graph, wait)
    assert wait.polls == 2 * SETTLED


@pytest.mark.parametrize(
    ("present", "text"),
    [([], "no task was found within 15 s"), (["/a"], "/a: no frame within 15 s")],
)
def test_what_did_not_come_is_said(present, text, capsys):
    graph = Graph()
    graph.set_present(present)
    top.wait_for_frames(graph, Later({}))
    assert capsys.readouterr().err == f"{text}\n"


def test_on_a_terminal_it_draws_until_ctrl_c_and_leaves_the_terminal_as_it_was(task):
    """Both signals: of the second the same is asked."""
    for number in (signal.SIGINT, signal.SIGTERM):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            COMMAND, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "150", "LINES": "20"},
        )  # fmt: skip
        os.close(theirs)
        text = read_until(ours, "/front/detector.*full@a")
        assert "\x1b[?1049h" in text  # the other screen
        process.send_signal(number)
        text = read_until(ours, None)
        assert process.wait(TIMEOUT_S) == 0
        os.close(ours)
        assert "\x1b[?1049l" in text
        assert "\x1b[?25h" in text  # the cursor is back
        assert "/front/detector" in text.rpartition("\x1b[?1049l")[2]
        assert "Traceback" not in text


def read_until(terminal, pattern):
    """Read until a pattern comes, None = the end."""
    text = b""
    while pattern is None or not re.search(pattern, text.decode(errors="replace"), re.DOTALL):
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            chunk = b""
        if not chunk:
            assert pattern is None, text.decode(errors="replace")
            break
        text += chunk
    return text.decode(errors="replace")


def test_the_page_is_served_until_the_signal(task):
    process = subprocess.Popen([*COMMAND, "--web", "0"], stdout=subprocess.PIPE, text=True)
    with process:
        url = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{url}events", timeout=TIMEOUT_S) as events:
            while not (tasks := json.loads(events.readline().strip()[6:] or "{}").get("tasks")):
                pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    assert tasks[0]["name"] == "/front/detector"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--web", "0", "--json"], "--web serves until it ends"),
        (["--host", "0.0.0.0"], "add --web PORT"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, text, capsys):
    assert main.main(["top", *arguments]) == main.BAD_ARGUMENTS
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_a_port_that_is_none(port, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(["top", "--web", port])
    assert ended.value.code == main.BAD_ARGUMENTS
    assert "must be a port, 0 to 65535" in capsys.readouterr().err


def test_without_rich_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(JetsonDnnRtError, match=r"pip install 'jetson_dnn_rt\[watch\]'"):
        table.open_console()
