# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A watcher process that kills a node's process when it does not end after a signal.

Code that holds the interpreter's lock for ever (a hanging regular expression, a library that
writes to a full pipe) lets no Python run, so nothing in the process can act on the signal. The
interpreter's handler, in C, still writes the signal's number into a socket. The process and its
watcher both peek at it there without removing it, so that neither misses it.

The watcher ignores the signals that ask a process to end and has its own session. It runs
without ``site`` and imports the standard library only: it is ready in 0.1 s.

It also sends SIGTERM when the process that this one was started for is gone
(`jetson_dnn_rt.safety.starter`): a process that is stuck could not notice that itself.

It leaves time for a lock that is not held for ever: rclpy keeps the interpreter's lock while it
sends, and Fast DDS may wait some seconds then, for a lock in shared memory that another process
held when it was killed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import subprocess

from jetson_dnn_rt.safety.children import CHILD_FOLDER, code_command
from jetson_dnn_rt.safety.faults import FAULTS, start_thread

NAME = "end watcher"
"""Name of the thread that waits for it, also in diagnostics."""

STACKS = signal.SIGRTMAX
"""Signal on which the parent writes the stacks of its threads to stderr, in C."""

_watched: list[socket.socket] = []

_CODE = """
# End watcher of a jetson_dnn_rt node.
import os, select, signal, socket, sys, time

parent, limit_s, stacks = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
starter, started = map(int, (sys.argv[4] or "0:0").split(":"))
for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
try:  # the thread that started it may be a real-time one
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
except OSError:
    pass
signals = socket.socket(fileno=0)
poll = select.poll()
poll.register(signals, select.POLLIN)
pause_ms = None
for pid in filter(None, (parent, starter)):
    try:
        poll.register(os.pidfd_open(pid), select.POLLIN)
    except (OSError, AttributeError):  # an older kernel; a Python built on one; it is gone
        pause_ms = 250


def is_gone():
    "Whether the process is gone that the parent was started for."
    try:
        with open(f"/proc/{starter}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[19]) != started or fields[0] in (b"Z", b"X")
    except OSError:
        return True


while os.getppid() == parent:
    poll.poll(pause_ms)
    if starter and is_gone():
        os.kill(parent, signal.SIGTERM)
        starter = 0
        poll = select.poll()
        poll.register(signals, select.POLLIN)
        pause_ms = 250
    try:
        seen = signals.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        continue
    if not seen:
        sys.exit()
    if signal.SIGINT in seen or signal.SIGTERM in seen:
        break
    time.sleep(0.05)  # another signal's number: the parent takes it out
# Steps of at most 0.1 s: a machine may stand still, such as a virtual one that is moved.
while os.getppid() == parent and limit_s > 0.0:
    begin_s = time.monotonic()
    time.sleep(0.02)
    limit_s -= min(time.monotonic() - begin_s, 0.1)
for number in (stacks, signal.SIGKILL):
    if os.getppid() == parent:
        os.kill(parent, number)
        time.sleep(0.1)
"""


def start_end_watcher(signals: socket.socket, limit_s: float, starter: str = "") -> None:
    """Start a watcher of this process; if the watcher ends, it is noted as a missing thread.

    `signals` receives the numbers of signals; `limit_s` after SIGINT or SIGTERM the stacks are
    written and the process is killed. When `starter` (see `safety.starter`) is gone, this process
    gets SIGTERM.
    """
    _watched[:] = [signals]
    faulthandler.register(STACKS, file=2)
    command = code_command(_CODE, str(os.getpid()), str(limit_s), str(int(STACKS)), starter)

    def watch() -> None:
        process = subprocess.Popen(
            command,
            stdin=signals.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=CHILD_FOLDER,
            start_new_session=True,
        )
        FAULTS.note_dead(NAME, f"it was terminated (code {process.wait()})")

    start_thread(watch, NAME)


def stop_signals() -> socket.socket | None:
    """Return the socket that receives the numbers of signals; None without a watcher."""
    return _watched[0] if _watched else None


def asks_to_end(signals: socket.socket) -> bool:
    """Whether SIGINT or SIGTERM is among the numbers in a socket, which stay there."""
    try:
        seen = signals.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False
    return signal.SIGINT in seen or signal.SIGTERM in seen
