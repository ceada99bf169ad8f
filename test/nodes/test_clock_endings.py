# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Nodes that change clocks: those come back first, and whatever ends the process."""

from __future__ import annotations

import signal
import time

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from clock_ends import NODE, Board, Writer

from jetson_dnn_rt.nodes.process.running import KILLED
from jetson_dnn_rt.platforms.guardian import RESTORE_LIMIT_S

RESTORED_BY_GUARDIAN = "restored the clocks that process"


@pytest.mark.parametrize(
    ("number", "busy_s", "kind"),
    [
        (signal.SIGTERM, 0.0, "perception"),
        (signal.SIGTERM, 5.0, "coordinator"),
        (signal.SIGINT, 0.0, "coordinator"),
        (signal.SIGINT, 5.0, "perception"),
    ],
)
def test_a_node_gives_the_clocks_back_itself(tmp_path, number, busy_s, kind):
    """EDGES 6: SIGTERM while the ROS thread is busy for 5 s; not left to the guardian."""
    board = Board(tmp_path)
    with Writer(board, NODE, board.tables, kind, 1, busy_s) as writer:
        writer.wait_for("set")
        assert busy_s == 0.0 or not board.is_restored
        writer.end_in_time(number)
        assert writer.process.returncode == 0, writer.errors
        assert RESTORED_BY_GUARDIAN not in writer.errors
        assert "Traceback" not in writer.errors


def test_a_node_that_is_killed_has_its_clocks_given_back(tmp_path):
    """EDGES 6: kill -9."""
    board = Board(tmp_path)
    with Writer(board, NODE, board.tables, "coordinator", 1, 5.0) as writer:
        writer.wait_for("set")
        assert not board.is_restored
        writer.end_in_time(signal.SIGKILL)
        assert RESTORED_BY_GUARDIAN in writer.errors


@pytest.mark.parametrize("busy_s", [0.0, 5.0])
def test_clocks_that_hang_do_not_delay_the_end(tmp_path, busy_s):
    """EDGES 6: restoring has a thread of its own; what it leaves, the guardian does."""
    board = Board(tmp_path)
    hangs = (
        "import threading\n"
        "from jetson_dnn_rt.platforms.settable import SettablePlatform\n"
        "SettablePlatform.restore = lambda self: threading.Event().wait(60)\n"
    )
    with Writer(board, hangs + NODE, board.tables, "coordinator", 1, busy_s) as writer:
        writer.wait_for("set")
        writer.end_in_time(signal.SIGTERM)
        assert writer.process.returncode == 0, writer.errors
        assert RESTORED_BY_GUARDIAN in writer.errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clocks_come_back_though_no_python_can_run(tmp_path, number):
    """EDGES 6: a thread keeps the interpreter's lock for ever; the process is killed for it.

    The guardian does not wait for that.
    """
    board = Board(tmp_path)
    holds = (
        "import re, time\n"
        "sleep = time.sleep\n"
        "def hold(seconds):\n"
        "    re.match('(a+)+$', 'a' * 60 + 'b') if seconds == 5.0 else sleep(seconds)\n"
        "time.sleep = hold\n"
        "from jetson_dnn_rt.nodes.process import running\n"
        "running.KILL_LIMIT_S = 2.5\n"
    )
    with Writer(board, holds + NODE, board.tables, "coordinator", 1, 5.0) as writer:
        writer.wait_for("set")
        time.sleep(0.2)  # nothing could tell that the lock is held now
        writer.end_in_time(number)
        assert writer.process.returncode == KILLED
        assert RESTORED_BY_GUARDIAN in writer.errors
        assert f"{RESTORE_LIMIT_S:g} s after it was asked to end" in writer.errors
