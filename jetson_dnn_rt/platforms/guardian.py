# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A process that restores the clocks however the process that set them terminates.

It is started before the first clock is written, inherits the lock, and waits for its parent to
exit on a pipe whose other end only the parent should hold. If a forked process holds it too, the
parent's exit is still detected. Then it restores the values in the state file, releases the lock
and exits; a parent that restored the clocks itself has left no file.

It ignores the polite termination signals and has its own session: a Ctrl-C in the terminal, or a
signal to the parent's group, stops only the parent. Killing every process of a service or a
container at once kills it too: then the next process that opens the platform for writing restores
the clocks.

``python -m jetson_dnn_rt.platforms.guardian`` imports nothing heavy: it is ready in 0.1 s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.state import ClockState
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command
from jetson_dnn_rt.safety.faults import FAULTS, start_thread

logger = logging.getLogger("jetson_dnn_rt.platforms.guardian")

NAME = "clock guardian"  # name of the thread that watches it, also in diagnostics

START_LIMIT_S = 5.0  # without a guardian that is ready by then no clock is set

END_LIMIT_S = 1.0
"""It exits within milliseconds after the parent is done; after this time it is killed."""

MOST_RESTARTS = 3  # restarts of a guardian that gets killed; then the clocks are restored

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
        self._command = python_command(module, *paths, str(state.lock), str(os.getpid()))
        self._inherited = state.lock
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
                pass_fds=(self._inherited,),
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


def main(root: str, folder: str, lock: str, parent: str) -> int:
    """Wait for the parent to exit, then restore what it left; 1 when that failed."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        # The thread that started it may be a real-time one.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):  # needs root
        Path("/proc/self/oom_score_adj").write_text("-1000")
    state = ClockState(SystemFiles(Path(root)), Path(folder), lock=int(lock))
    os.write(sys.stdout.fileno(), _READY)
    _wait_for_end(int(parent))
    message, code = "", 0
    try:
        if state.give_back():
            message = f"restored the clocks that process {parent} had left changed when it ended"
    except PlatformError as error:
        message, code = str(error), 1
    state.close()
    for line in (*state.remarks, message):  # last: the reader of the log may hang
        if line:
            logger.warning("%s", line)
    return code


def _wait_for_end(parent: int) -> None:
    """Return when the parent is done, or has exited."""
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    pause_ms: float | None = None
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
    except (OSError, AttributeError):  # old kernel; Python built on an old kernel
        pause_ms = LOOK_S * 1e3
    while os.getppid() == parent and not poll.poll(pause_ms):
        pass


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
