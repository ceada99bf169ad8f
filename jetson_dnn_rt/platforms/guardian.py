# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A process that restores the clocks however the process that set them terminates.

It is started before the first clock is written, inherits the lock, and waits for its parent to
exit on a pipe whose other end only the parent should hold. If a forked process holds it too, the
parent's exit is still detected. Then it restores the values in the state file, releases the lock
and exits; a parent that restored the clocks itself has left no file. A parent that is a node's
process and is still there some time after SIGINT or SIGTERM, because it cannot run any Python, has
its clocks restored already then.

It ignores the polite termination signals and has its own session: a Ctrl-C in the terminal, or a
signal to the parent's group, stops only the parent. Killing every process of a service or a
container at once kills it too: then the next process that opens the platform for writing restores
the clocks.

``python -m jetson_dnn_rt.platforms.guardian`` imports nothing heavy: it is ready in 0.1 s.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.state import ClockState
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command
from jetson_dnn_rt.safety.end_watcher import asks_to_end, stop_signals
from jetson_dnn_rt.safety.faults import FAULTS, start_thread

logger = logging.getLogger("jetson_dnn_rt.platforms.guardian")

NAME = "clock guardian"  # name of the thread that watches it, also in diagnostics

START_LIMIT_S = 5.0  # without a guardian that is ready by then no clock is set

END_LIMIT_S = 1.0
"""It exits within milliseconds after the parent is done; after this time it is killed."""

MOST_RESTARTS = 3  # restarts of a guardian that gets killed; then the clocks are restored

RESTORE_LIMIT_S = 1.4
"""After SIGINT or SIGTERM the parent's clocks are restored, whether it is done or not."""

LOOK_S = 0.25  # interval of polling the parent where the kernel (before 5.3) cannot signal its end

_READY, _DONE = b"r", b"d"
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE)


class Guardian:
    """The parent's side: starts a guardian, and another one if it gets killed.

    `root` is that of the kernel's files; the lock of `state` is held and its folder is absolute.
    `on_lost` is called on a thread with the reason when there is no guardian any more and none can
    be started: the caller must restore the clocks. PlatformError when none can be started.
    """

    def __init__(self, root: Path, state: ClockState, on_lost: Callable[[str], None]) -> None:
        module = "jetson_dnn_rt.platforms.guardian"
        paths = os.fspath(root), os.fspath(state.folder)
        signals = stop_signals()
        self._inherited = [state.lock, *([signals.fileno()] if signals else ())]
        numbers = os.getpid(), *self._inherited
        self._command = python_command(module, *paths, *map(str, numbers))
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._wanted = True
        self._ended = threading.Event()
        self._parent = os.getpid()
        self._process = self._start()
        start_thread(self._watch, NAME)

    @property
    def pid(self) -> int:
        """Process ID."""
        return self._process.pid

    def stop(self) -> None:
        """Stop it and wait; it first restores what is still in the state file."""
        if os.getpid() != self._parent:
            return  # in a forked process: not its guardian
        self._wanted = False
        with self._lock:
            # A forked process may hold the pipe's end too: closing it may have no effect.
            _close_pipe(self._process, _DONE)
        if not self._ended.wait(END_LIMIT_S):
            self._process.kill()
            self._ended.wait(END_LIMIT_S)

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                cwd=CHILD_FOLDER,
                env=child_environment(),
                pass_fds=self._inherited,
                start_new_session=True,
            )
        except OSError as error:
            raise PlatformError(
                f"the guardian of the clocks cannot be started: {error}"
            ) from error
        assert process.stdout is not None
        with process.stdout as answer:
            poll = select.poll()
            poll.register(answer, select.POLLIN)
            if poll.poll(START_LIMIT_S * 1e3) and os.read(answer.fileno(), 1) == _READY:
                return process
        process.kill()
        _close_pipe(process)
        code = process.wait()
        raise PlatformError(
            f"the guardian of the clocks was not ready in {START_LIMIT_S:g} s (code {code})"
        )

    def _watch(self) -> None:
        restarts, reason = 0, ""
        while True:
            code = self._process.wait()
            with self._lock:
                if not self._wanted:
                    break
                reason = f"the guardian of the clocks was ended (code {code})"
                FAULTS.note(NAME, PlatformError(reason))
                _close_pipe(self._process)
                if restarts == MOST_RESTARTS:
                    break
                restarts += 1
                try:
                    self._process = self._start()
                except PlatformError as error:
                    reason = str(error)
                    break
        self._ended.set()
        if self._wanted:
            FAULTS.note_dead(NAME, reason)
            self._on_lost(reason)


def _close_pipe(process: subprocess.Popen[bytes], word: bytes = b"") -> None:
    assert process.stdin is not None
    if not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(word)


def main(root: str, folder: str, parent: str, lock: str, signals: str = "") -> int:
    """Wait for the parent to exit, then restore what it left; 1 when that failed.

    `lock` and `signals` are inherited: the lock of the state, the socket of the signals.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        # The thread that started it may be a real-time one.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):  # needs root
        Path("/proc/self/oom_score_adj").write_text("-1000")
    state = ClockState(SystemFiles(Path(root)), Path(folder), lock=int(lock))
    os.write(sys.stdout.fileno(), _READY)
    early, failed = "", 0
    left = f"restored the clocks that process {parent} had left changed"
    if signals and not _wait_for_end(int(parent), socket.socket(fileno=int(signals))):
        # The file stays, in case the parent changes one when it runs again.
        when = f"{RESTORE_LIMIT_S:g} s after it was asked to end"
        early, failed = _give_back(state, f"{left} {when}", keep=True)
    _wait_for_end(int(parent))
    message, code = _give_back(state, f"{left} when it ended")
    if early and not (failed or code):
        message = early
    state.close()
    for line in dict.fromkeys((*state.remarks, message)):  # last: the log's reader may hang
        if line:
            logger.warning("%s", line)
    return code


def _give_back(state: ClockState, text: str, *, keep: bool = False) -> tuple[str, int]:
    """Restore the clocks; `text` if there were any, or the error, and the exit code."""
    try:
        return (text if state.give_back(keep=keep) else ""), 0
    except PlatformError as error:
        return str(error), 1


def _wait_for_end(parent: int, signals: socket.socket | None = None) -> bool:
    """Return True when the parent is done, or has exited.

    With `signals` False `RESTORE_LIMIT_S` after the parent was asked to end.
    """
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    pause_ms = math.inf
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
    except (OSError, AttributeError):  # old kernel; Python built on an old kernel
        pause_ms = LOOK_S * 1e3
    if signals is not None:
        poll.register(signals, select.POLLIN)
    end_s = math.inf
    while os.getppid() == parent:
        wait_ms = min(pause_ms, (end_s - time.monotonic()) * 1e3)
        if wait_ms <= 0.0:
            return False
        ready = [number for number, _ in poll.poll(wait_ms if wait_ms < math.inf else None)]
        if signals is None or signals.fileno() not in ready:
            if ready:
                return True
        elif asks_to_end(signals):
            end_s = time.monotonic() + RESTORE_LIMIT_S
            poll.unregister(signals)
            signals = None
        else:
            time.sleep(LOOK_S)  # another signal's number: the parent takes it out
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
