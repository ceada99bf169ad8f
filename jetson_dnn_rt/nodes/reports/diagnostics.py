"""What goes to ``/diagnostics`` once a second, whether frames come or not.

diagnostic_updater is not used: it is not to be had everywhere, and its tasks are tied to it. The
names and keys are Autoware's and NVIDIA greenwave's, so that their monitors understand them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType

from jetson_dnn_rt.nodes.process.guard import describe
from jetson_dnn_rt.nodes.tasks.streams import STALE_PERIODS, ArrivalSnapshot
from jetson_dnn_rt.safety.faults import FAULTS

if TYPE_CHECKING:
    from rclpy.node import Node

PERIOD_S = 1.0
PROCESS_STATUS = "process_status"
OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)

RECENT_FAULT_NS = 60_000_000_000
"""So long a fault is a warning; later it is only counted."""

TEXT_LIMIT = 200
"""Characters of a fault's last text that are shown."""

LONGEST_TEXT = 2000
"""Characters of a status' message, and of each of its values."""


class DiagnosticsPublisher:
    """Publishes a node's statuses at 1 Hz of the steady clock, in every lifecycle state.

    Parameters
    ----------
    node : Node
        Publishes and owns the timer.
    statuses : mapping of str to callable
        By the status' name without the node's, such as ``task_status``, what makes it. One that
        raises is published as an ERROR of that name; the others go out all the same.
    process : bool
        Publish ``<node>: process_status``, too: one node of a process does.
    """

    def __init__(
        self,
        node: Node,
        statuses: Mapping[str, Callable[[], DiagnosticStatus]],
        *,
        process: bool = False,
    ) -> None:
        self._node, self._statuses = node, dict(statuses)
        if process:
            # Last: it counts the others' faults of this round, too.
            self._statuses[PROCESS_STATUS] = lambda: process_status(node.get_name())
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # Steady: with simulated time a paused bag would silence the diagnostics.
        self._timer = node.create_timer(
            PERIOD_S, self.publish, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    def publish(self) -> None:
        """Publish now."""
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        for name, make in self._statuses.items():
            status = self._make(name, make)
            status.hardware_id = self._node.get_fully_qualified_name()
            message.status.append(status)
        self._publisher.publish(message)

    def _make(self, name: str, make: Callable[[], DiagnosticStatus]) -> DiagnosticStatus:
        try:
            return make()
        except Exception as error:
            node = self._node.get_name()
            FAULTS.note(f"{node}: {name}", error)
            return make_status(
                f"{node}: {name}", ERROR, f"the status cannot be made: {describe(error)}", {}
            )


def make_status(
    name: str, level: bytes, message: str, values: Mapping[str, object]
) -> DiagnosticStatus:
    """Make one status; floats get three decimals, and texts are cut off where too long."""
    return DiagnosticStatus(
        name=name,
        level=level,
        message=message[:LONGEST_TEXT],
        values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()],
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)[:LONGEST_TEXT]


def process_status(node: str) -> DiagnosticStatus:
    """Make the status ``<node>: process_status``: faults of the whole process, dead threads.

    ERROR while a thread is missing that is needed, WARN for a minute after a fault.
    """
    faults, dead = FAULTS.snapshot(), FAULTS.dead_threads
    values: dict[str, object] = {
        "faults": sum(fault.count for fault in faults),
        "dead_threads": ", ".join(dead) or "none",
    }
    values |= {f"dead.{thread}": reason for thread, reason in dead.items()}
    for fault in faults:
        values[f"fault.{fault.kind}"] = f"{fault.count}, last: {fault.text[:TEXT_LIMIT]}"
    level, message = OK, "no fault" if not faults else "no fault in the last minute"
    now_ns = time.monotonic_ns()
    recent = [fault for fault in faults if now_ns - fault.last_ns < RECENT_FAULT_NS]
    if dead:
        level, message = ERROR, "threads have died: " + ", ".join(dead)
    elif recent:
        last = max(recent, key=lambda fault: fault.last_ns)
        level, message = WARN, f"{last.kind}: {last.text[:TEXT_LIMIT]}"
    return make_status(f"{node}: {PROCESS_STATUS}", level, message, values)


def camera_status(
    node: str,
    arrivals: ArrivalSnapshot,
    *,
    expected_hz: float,
    tolerance: float,
    node_state: str,
    error: str = "",
    ended: bool = False,
    extra: Mapping[str, object] | None = None,
) -> DiagnosticStatus:
    """State of a stream of frames.

    Parameters
    ----------
    node : str
        Name of the node that reports.
    arrivals : ArrivalSnapshot
        Rates and delays.
    expected_hz, tolerance : float
        Expected rate, 0 = unknown, and the share by which it may differ.
    node_state : str
        Lifecycle state: silence is a fault of an active node only.
    error : str
        Why nothing comes, where the source says it.
    ended : bool
        The stream has come to its end.
    extra : mapping, optional
        More keys and values.
    """
    values: dict[str, object] = {
        "frame_rate_node": arrivals.rate_node_hz,
        "frame_rate_msg": arrivals.rate_message_hz,
        "current_delay_from_realtime_ms": arrivals.delay_ms,
        "expected_frequency": expected_hz,
        "tolerance": tolerance,
        "frames_received": arrivals.count,
        "silence_ms": arrivals.silence_ms,
        **(extra or {}),
    }
    level, message = _judge_camera(arrivals, expected_hz, tolerance, node_state, error, ended)
    return make_status(f"{node}: camera_status", level, message, values)


def _judge_camera(
    arrivals: ArrivalSnapshot,
    expected_hz: float,
    tolerance: float,
    node_state: str,
    error: str,
    ended: bool,
) -> tuple[bytes, str]:
    if error:
        return ERROR, error
    if node_state != "active":
        return OK, node_state
    if ended:
        return OK, "the stream has ended"
    if not arrivals.count:
        return STALE, "no frame yet"
    longest_ms = STALE_PERIODS * 1000.0 / (expected_hz or 1.0)
    if arrivals.silence_ms > longest_ms:
        return STALE, f"no frame for {arrivals.silence_ms / 1000.0:.1f} s"
    rate_hz = arrivals.rate_node_hz
    # Not a number compares false: one frame alone has no rate.
    if expected_hz and abs(rate_hz - expected_hz) > tolerance * expected_hz:
        return WARN, f"{rate_hz:.1f} Hz instead of {expected_hz:.1f} Hz"
    return OK, "frames arrive as expected"


@dataclass(frozen=True)
class ProcessingLimits:
    """When processing is too slow; 0 = never.

    `allowed_ms` is a warning for one frame, `consecutive_delay_ms` an error for how long every
    frame has been over it.
    """

    allowed_ms: float
    consecutive_delay_ms: float


def processing_status(
    node: str,
    limits: ProcessingLimits,
    *,
    node_state: str,
    fault: str,
    processing_ms: float,
    inference_ms: float,
    output_latency_ms: float,
    consecutive_delay_ms: float,
) -> DiagnosticStatus:
    """How long processing takes, with Autoware's keys; NaN where nothing was processed yet."""
    slow = bool(limits.allowed_ms) and processing_ms > limits.allowed_ms
    values: dict[str, Any] = {
        "processing_time_ms": processing_ms,
        "is_processing_time_ms_in_expected_range": not slow,
        "consecutive_processing_delay_ms": consecutive_delay_ms,
        "inference_time_ms": inference_ms,
        "output_latency_ms": output_latency_ms,
    }
    level, message = OK, "OK"
    if fault:
        level, message = ERROR, fault
    elif node_state != "active":
        message = node_state
    elif limits.consecutive_delay_ms and consecutive_delay_ms > limits.consecutive_delay_ms:
        level = ERROR
        message = f"processing has been too slow for {consecutive_delay_ms:.0f} ms"
    elif slow:
        level, message = WARN, f"processing took {processing_ms:.1f} ms"
    elif math.isnan(processing_ms):
        level, message = STALE, "no frame was processed yet"
    return make_status(f"{node}: processing_time_status", level, message, values)
