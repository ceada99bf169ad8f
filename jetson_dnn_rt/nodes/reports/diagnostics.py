"""Statuses on ``/diagnostics``, once a second, whether frames come or not.

diagnostic_updater is not used: it is not available everywhere, and its tasks are tied to it. Names
and keys are those of Autoware and NVIDIA greenwave, so that their monitors understand them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from jetson_dnn_rt.nodes.reports.arrivals import STALE_PERIODS, ArrivalSnapshot
from jetson_dnn_rt.nodes.reports.task_timing import TimingSnapshot
from jetson_dnn_rt.safety.faults import FAULTS, describe_error

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode

PERIOD_S = 1.0
PROCESS_STATUS = "process_status"
OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)

RECENT_FAULT_NS = 60_000_000_000
"""A fault is a warning for this long; later it is only counted."""

TEXT_LIMIT = 200
"""Characters of a fault's last text that are shown."""

LONGEST_TEXT = 2000
"""Characters of a status' message, and of each of its values."""


class DiagnosticsPublisher:
    """Publishes a node's statuses at 1 Hz of the steady clock, in every lifecycle state.

    `statuses` has a function for each status, by its name without the node's, such as
    ``task_status``. One that raises is published as an ERROR of that name, the others as usual.
    With `process` it publishes ``<node>: process_status``, too: one node of each process does.
    """

    def __init__(
        self,
        node: ManagedNode,
        statuses: Mapping[str, Callable[[], DiagnosticStatus]],
        *,
        process: bool = False,
    ) -> None:
        self._node, self._statuses = node, dict(statuses)
        if process:
            # Last, so that it counts the faults of the others in this round.
            self._statuses[PROCESS_STATUS] = lambda: process_status(node.get_name())
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        node.create_timer(PERIOD_S, self.publish)

    def publish(self) -> None:
        """Publish now."""
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        for name, make in self._statuses.items():
            try:
                status = make()
            except Exception as error:
                place = f"{self._node.get_name()}: {name}"
                FAULTS.note(place, error)
                text = f"the status cannot be made: {describe_error(error)}"
                status = make_status(place, ERROR, text, {})
            status.hardware_id = self._node.get_fully_qualified_name()
            message.status.append(status)
        self._publisher.publish(message)


def make_status(
    name: str, level: bytes, message: str, values: Mapping[str, object]
) -> DiagnosticStatus:
    """Make a status; floats get three decimals, and long texts are cut."""
    texts = {
        key: f"{value:.3f}" if isinstance(value, float) else str(value)[:LONGEST_TEXT]
        for key, value in values.items()
    }
    return DiagnosticStatus(
        name=name,
        level=level,
        message=message[:LONGEST_TEXT],
        values=[KeyValue(key=key, value=text) for key, text in texts.items()],
    )


def process_status(node: str) -> DiagnosticStatus:
    """Make the status ``<node>: process_status``: faults of the whole process, dead threads.

    ERROR while a thread that is needed is missing, WARN for a minute after a fault.
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
    """Make the status ``<node>: camera_status`` of a stream of frames.

    `expected_hz` is 0 where it is unknown, `tolerance` the share by which the rate may differ,
    `node_state` the lifecycle state (only an active node should get frames), `error` the source's
    reason for the lack of frames, if it reports one.
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
    rate_hz = arrivals.rate_node_hz
    level, message = OK, "frames arrive as expected"
    if error:
        level, message = ERROR, error
    elif node_state != "active":
        message = node_state
    elif ended:
        message = "the stream has ended"
    elif not arrivals.count:
        level, message = STALE, "no frame yet"
    elif arrivals.silence_ms > STALE_PERIODS * 1000.0 / (expected_hz or 1.0):
        level, message = STALE, f"no frame for {arrivals.silence_ms / 1000.0:.1f} s"
    # The rate of a single frame is NaN, which compares false.
    elif expected_hz and abs(rate_hz - expected_hz) > tolerance * expected_hz:
        level, message = WARN, f"{rate_hz:.1f} Hz instead of {expected_hz:.1f} Hz"
    return make_status(f"{node}: camera_status", level, message, values)


def processing_status(
    node: str,
    timing: TimingSnapshot,
    *,
    allowed_ms: float,
    acceptable_delay_ms: float,
    node_state: str,
    fault: str,
) -> DiagnosticStatus:
    """Make the status ``<node>: processing_time_status``, with Autoware's keys.

    A frame above `allowed_ms` is a warning; every frame above it for longer than
    `acceptable_delay_ms` is an error; 0 = never.
    """
    processing_ms, delay_ms = timing.processing_ms, timing.consecutive_delay_ms
    slow = bool(allowed_ms) and processing_ms > allowed_ms
    values: dict[str, Any] = {
        "processing_time_ms": processing_ms,
        "is_processing_time_ms_in_expected_range": not slow,
        "consecutive_processing_delay_ms": delay_ms,
        "inference_time_ms": timing.inference_ms,
        "output_latency_ms": timing.output_latency_ms,
    }
    level, message = OK, "OK"
    if fault:
        level, message = ERROR, fault
    elif node_state != "active":
        message = node_state
    elif acceptable_delay_ms and delay_ms > acceptable_delay_ms:
        level, message = ERROR, f"processing has been too slow for {delay_ms:.0f} ms"
    elif slow:
        level, message = WARN, f"processing took {processing_ms:.1f} ms"
    elif math.isnan(processing_ms):
        level, message = STALE, "no frame was processed yet"
    return make_status(f"{node}: processing_time_status", level, message, values)
