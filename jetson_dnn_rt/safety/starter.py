# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The process that a node was started for, and must not outlive: that of `ros2 launch`.

`ros2 launch` that is ended with SIGTERM or SIGKILL leaves its processes running, with the camera.
So the launch files name it to the processes that they start, whose end watchers ask them to end
when it is gone. By its identifier and the time of its start, which a later process of the same
identifier does not have; not by `PR_SET_PDEATHSIG`, which is for the end of the parent's *thread*,
nor by the parent process, which may be a debugger or a terminal that the user put in between.
"""

from __future__ import annotations

import os

VARIABLE = "JETSON_DNN_RT_STARTED_BY"


def name_starter() -> dict[str, str]:
    """Environment of a process that is to end with this one; empty without /proc."""
    pid = os.getpid()
    ticks = find_start(pid)
    return {VARIABLE: f"{pid}:{ticks}"} if ticks else {}


def find_start(pid: int) -> int:
    """When a process was started, in clock ticks since the machine was; 0 = it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Behind the name of the program, which may have spaces and parentheses.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def find_starter() -> str:
    """The process that this one must not outlive, as ``IDENTIFIER:START``; empty = none."""
    pid, _, ticks = os.environ.get(VARIABLE, "").partition(":")
    return f"{pid}:{ticks}" if pid.isdecimal() and ticks.isdecimal() else ""
