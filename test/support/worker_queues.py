# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which tests of a run with pytest-xdist may run beside each other."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Frames in real time: each has a core for itself as long as no other such test runs beside it.
# Of the benchmarks these alone need it; the others only measure, or simulate.
REAL_TIME = (
    *(f"test/benchmarks/test_{name}.py" for name in ("coordinate", "overload", "scale")),
    *("test/benchmarks/test_threads.py", "test/runtime/", "test/launch/", "test/nodes/"),
    *("test/cli/test_run.py", "test/lab/profile/test_co_runners.py"),
    "test/lab/evaluate/test_realtime.py",
)
# Among these: they build, whatever the time.
NOT_TIMED = tuple(f"test/runtime/test_{name}.py" for name in ("builder", "builder_tvm", "task"))
QUEUE = "real time"
# The longest of the others: begun last, one of them would run on beside nothing.
LONG = tuple(f"test/test_{name}.py" for name in ("tutorial", "colcon", "imports", "compiled"))


class WorkerQueues(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Hands out whole files, in their order; the real-time ones go to one worker, one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return find_queue(nodeid)


def rank(nodeid: str) -> int:
    """Return the place of a queue: the real-time one, as the longest of all, comes first."""
    return 0 if find_queue(nodeid) == QUEUE else 1 if nodeid.startswith(LONG) else 2


def find_queue(nodeid: str) -> str:
    """Return the name of the queue of a test: tests of one queue never overlap."""
    file = nodeid.split("::", 1)[0]
    return QUEUE if file.startswith(REAL_TIME) and file not in NOT_TIMED else file
