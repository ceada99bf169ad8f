"""What may end a process of the nodes, each with its reason and exit code; nothing else may.

Everything else that goes wrong is a fault: it costs the callback or the frame that it hit, is
counted in `safety.faults.FAULTS` and stands in ``/diagnostics``. Callbacks are guarded by
`jetson_dnn_rt.nodes.process.guard`, threads by `jetson_dnn_rt.safety.faults.start_thread`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ending:
    """One way for a process to end: its name, its exit code, and why that is right."""

    name: str
    code: int
    reason: str


SIGNAL = Ending("signal", 0, "SIGINT or SIGTERM: somebody wants it to end")

BAD_CONFIGURATION = Ending(
    "bad configuration",
    2,
    "a parameter cannot be used when the nodes are made: whoever started the process has to "
    "change it, and sees at once that there is something to change",
)

START_FAILED = Ending(
    "start failed",
    1,
    "the nodes could not be made or spun at all: there is nothing that could report the fault",
)

SPIN_FAILED = Ending(
    "spinning failed",
    1,
    "rclpy fails without end, or its context was shut down: no message, timer or service is "
    "served any more, so whoever supervises the process has to start a new one",
)

END_HANGS = Ending(
    "end hangs",
    1,
    "a signal came and the end does not come to its end: the process is ended from below, with "
    "the stacks of all threads on stderr",
)

KILLED = Ending(
    "killed by its watcher",
    -9,
    "a signal came and nothing in the process can act on it, because a library keeps the "
    "interpreter's lock or nobody reads stderr: its watcher writes the stacks of all threads on "
    "stderr if that is possible, then sends SIGKILL (`jetson_dnn_rt.nodes.process.end_watcher`)",
)

ENDINGS = (SIGNAL, BAD_CONFIGURATION, START_FAILED, SPIN_FAILED, END_HANGS, KILLED)
"""All of them."""
