# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The process that guards changed clocks: started before them, replaced, and gone after them."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from clock_ends import Board
from sysfs_trees import FakeKernel

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms import guardian
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command
from jetson_dnn_rt.safety.faults import FAULTS

TIMEOUT_S = 60.0
GUARDIAN = "jetson_dnn_rt.platforms.guardian"


@pytest.fixture
def board(tmp_path):
    return Board(tmp_path)


def wait(condition):
    """Wait for another process, or the thread that watches it."""
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def test_there_is_one_from_before_the_first_write_to_the_end(board):
    """EDGES 6: and none where nobody is going to write."""
    with detect(board.root) as platform:
        assert board.find_processes(GUARDIAN) == []
    files = FakeKernel(board.root)
    with detect(files=files, allow_writes=True) as platform:
        assert board.find_guardian()
        assert files.writes == []
        platform.apply(0)
        assert len(board.find_processes(GUARDIAN)) == 1
        platform.restore()
        platform.apply(1)
    assert board.is_restored
    assert board.find_processes(GUARDIAN) == []
    wait(lambda: guardian.NAME not in {thread.name for thread in threading.enumerate()})


def test_polite_signals_do_not_end_it(board):
    """EDGES 6: they are for the process that it guards, whose group and terminal it left."""
    with detect(board.root, allow_writes=True) as platform:
        platform.apply(0)
        number = board.find_guardian()
        assert os.getsid(number) == number
        status = Path(f"/proc/{number}/status").read_text()
        ignored = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16)
        for polite in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(number, polite)
            assert ignored >> (polite - 1) & 1
        assert board.find_guardian() == number
    assert board.is_restored


def test_one_that_is_killed_is_replaced_and_said(board, caplog):
    """EDGES 6: the process that sets the clocks notices, and is guarded again."""
    with caplog.at_level(logging.ERROR), detect(board.root, allow_writes=True) as platform:
        platform.apply(0)
        first = board.find_guardian()
        os.kill(first, signal.SIGKILL)
        wait(lambda: board.find_processes(GUARDIAN) not in ([], [first]))
        wait(lambda: len(FAULTS.snapshot()) == 1)
        (fault,) = FAULTS.snapshot()
        assert (fault.kind, fault.count) == ("clock guardian: PlatformError", 1)
        assert fault.text == "the guardian of the clocks was ended (code -9)"
        assert "clock guardian failed" in caplog.text
        assert FAULTS.dead_threads == {}
        assert platform.writable
        platform.apply(1)
    assert board.is_restored
    wait(lambda: board.find_processes(GUARDIAN) == [])


def test_one_that_is_killed_again_and_again_leaves_the_clocks_restored(board):
    """EDGES 6: without a guardian no clock stays changed, and nobody changes one."""
    platform = detect(board.root, allow_writes=True)
    platform.apply(0)
    watched = platform._guardian
    killed = [0]
    for _ in range(1 + guardian.MOST_RESTARTS):
        wait(lambda: watched.pid != killed[-1])
        killed.append(watched.pid)
        os.kill(killed[-1], signal.SIGKILL)
    wait(lambda: not platform.writable)
    wait(lambda: "was ended" in platform.reason)
    assert board.is_restored
    assert FAULTS.dead_threads == {guardian.NAME: platform.reason}
    with pytest.raises(PlatformError, match="guardian of the clocks was ended"):
        platform.apply(0)
    platform.close()
    assert board.is_restored
    # The next one that opens the platform begins anew.
    with detect(board.root, allow_writes=True) as platform:
        platform.apply(0)
        assert FAULTS.dead_threads == {}


@pytest.mark.parametrize(
    ("interpreter", "reason"),
    [
        ("/nowhere/python", "cannot be started: .*/nowhere/python"),
        ("/bin/false", r"was not ready in 5 s \(code 1\)"),
        ("hangs", r"was not ready in 0.2 s \(code -9\)"),
    ],
)
def test_without_one_no_clock_is_set(board, monkeypatch, tmp_path, caplog, interpreter, reason):
    """EDGES 6: it fails to the safe side, and says so once."""
    if interpreter == "hangs":
        interpreter = os.fspath(tmp_path / "hangs")
        Path(interpreter).write_text("#!/bin/sh\nexec sleep 60\n")
        Path(interpreter).chmod(0o755)
        monkeypatch.setattr(guardian, "START_LIMIT_S", 0.2)
    monkeypatch.setattr(sys, "executable", interpreter)
    with caplog.at_level(logging.WARNING), detect(board.root, allow_writes=True) as platform:
        assert not platform.writable
        with pytest.raises(PlatformError, match=reason):
            platform.apply(0)
    assert board.is_restored
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.undo()
    # The lock is free.
    with detect(board.root, allow_writes=True) as platform:
        assert platform.writable


def test_what_the_process_cannot_give_back_the_guardian_tries_too(board):
    """EDGES 6: a state file that is left is restored by whoever comes first."""
    files = FakeKernel(board.root)
    platform = detect(files=files, allow_writes=True)
    platform.apply(0)
    files.refuse = "scaling_max_freq"
    with pytest.raises(PlatformError, match="were not restored"):
        platform.close()
    assert board.is_restored
    assert not (board.root / "run/jetson_dnn_rt/clocks.json").exists()


def test_it_imports_nothing_heavy():
    code = f"import {GUARDIAN}, sys; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_kernel_that_cannot_tell_the_end_of_a_process():
    """EDGES 6: before Linux 5.3, with the pipe held by another process: it looks by itself."""
    code = (
        "import os, sys\n"
        "def refuse(pid): raise OSError('no such call')\n"
        "os.pidfd_open = refuse\n"
        f"from {GUARDIAN} import _wait_for_end\n"
        "parent = os.getppid()\n"  # before this process may kill it
        "print('waits', flush=True)\n"
        "_wait_for_end(parent)\n"
        "print('seen', flush=True)\n"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, env=child_environment(), **pipes) as process:
        assert process.stdout.readline() == "waits\n"
        process.kill()
        # This process holds the pipe's other end.
        assert process.stdout.read() == "seen\n"


def test_a_parent_that_ended_before_it_was_ready(board):
    """EDGES 6: it takes nobody else for its parent."""
    with detect(board.root, allow_writes=True) as platform:
        lock = platform._state.lock
        lock, (read_end, write_end) = os.dup(lock), os.pipe()
        root = str(board.root)
        subprocess.run(
            python_command(GUARDIAN, root, f"{root}/run/jetson_dnn_rt", str(lock), "1"),
            cwd=CHILD_FOLDER,
            env=child_environment(),
            stdin=read_end,
            capture_output=True,
            pass_fds=(lock,),
            timeout=TIMEOUT_S,
            check=True,
        )
        for descriptor in (read_end, write_end, lock):
            os.close(descriptor)
