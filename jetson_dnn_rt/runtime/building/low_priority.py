# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs a command of the package so that it delays no other process.

It runs at a low priority, in a process group of its own, and ends with the thread that
started it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

from jetson_dnn_rt.safety.children import child_environment, python_command

PR_SET_PDEATHSIG = 1


def main(parent: int, nice: int, arguments: list[str]) -> None:
    """Lower the priority, then become ``jetson-dnn-rt ARGUMENTS``; end with the `parent`."""
    # Not a session of its own: Linux groups processes by session, and a nice value counts within
    # the group only.
    os.setpgrp()
    # The ROS thread may be a real-time one; its children would be, too, whatever their nice value.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(nice)
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that took effect
        sys.exit(1)
    command = python_command("jetson_dnn_rt.cli.main", *arguments)
    os.execve(command[0], command, child_environment())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
