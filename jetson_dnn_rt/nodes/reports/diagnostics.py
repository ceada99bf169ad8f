# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Statuses on ``/diagnostics``, once a second, whether frames come or not.

diagnostic_updater is not used: it is not available everywhere, and its tasks are tied to it. Names
and keys are those of Autoware and NVIDIA greenwave, so that their monitors understand them. STALE
is not used: it is the aggregator's word for a status that is no longer published.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from jetson_dnn_rt.nodes.reports.arrivals import ArrivalSnapshot
from jetson_dnn_rt.nodes.reports.duplicates import DuplicateWatch
from jetson_dnn_rt.nodes.reports.losses import LOST_SHARE, MOST_LOST_SHARE, LossSnapshot
from jetson_dnn_rt.nodes.reports.stream_rules import Stream, judge_stream
from jetson_dnn_rt.nodes.reports.task_timing import TimingSnapshot
from jetson_dnn_rt.platforms.load import LOAD
from jetson_dnn_rt.safety.faults import FAULTS, STUCK_ERROR_S, describe_error

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode

PERIOD_S = 1.0
PROCESS_STATUS, NAME_STATUS = "process_status", "name_status"
OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR

RECENT_FAULT_NS = 60_000_000_000
"""A fault is a warning for this long; later it is only counted."""

TEXT_LIMIT = 200
"""Characters of a fault's last text that are shown."""

LONGEST_TEXT = 2000
"""Characters of a status' message, and of each of its values."""


class DiagnosticsPublisher:
    """Publishes a node's statuses at 1 Hz of the steady clock, in every lifecycle state.

    `statuses` has a function for each status, by its name without the node's, such as
    ``task_status``. It is published as ``/front/detector: task_status``, with the full name of the
    node, as two of one name would overwrite each other; a status that has a name keeps it. None is
    left out; a function that raises makes an ERROR, the others are published as usual. Besides,
    every node has ``name_status``, for other nodes with its name or its topics, and one node of
    each process (`process`) has ``process_status``. The hardware id is the machine's name.
    """

    def __init__(
        self,
        node: ManagedNode,
        statuses: Mapping[str, Callable[[], DiagnosticStatus | None]],
        *,
        process: bool = False,
    ) -> None:
        self._node, self._duplicates = node, DuplicateWatch(node)
        self._statuses = {**statuses, NAME_STATUS: self._make_name_status}
        if process:
            # Last, so that it counts the faults of the others in this round.
            self._statuses[PROCESS_STATUS] = process_status
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        node.create_timer(PERIOD_S, self.publish)

    def publish(self) -> None:
        """Publish now."""
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        node = self._node.get_fully_qualified_name()
        for name, make in self._statuses.items():
            place = f"{node}: {name}"
            try:
                status = make()
            except Exception as error:
                FAULTS.note(place, error)
                status = make_status(
                    ERROR, f"the status cannot be made: {describe_error(error)}", {}
                )
            if status is not None:
                status.name, status.hardware_id = status.name or place, platform.node()
                message.status.append(status)
        self._publisher.publish(message)

    def _make_name_status(self) -> DiagnosticStatus:
        text, lasting = self._duplicates.look()
        if not text:
            return make_status(OK, "no other node has this name or publishes these topics", {})
        return make_status(ERROR if lasting else WARN, text, {})


def make_status(level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
    """Make a status without a name; floats get three decimals, and long texts are cut."""
    texts = {
        key: f"{value:.3f}" if isinstance(value, float) else str(value)[:LONGEST_TEXT]
        for key, value in values.items()
    }
    return DiagnosticStatus(
        level=level,
        message=message[:LONGEST_TEXT],
        values=[KeyValue(key=key, value=text) for key, text in texts.items()],
    )


def process_status() -> DiagnosticStatus:
    """Make the status ``process_status``: faults, dead and stuck threads, load of the machine.

    ERROR while a thread that is needed is missing or stuck; WARN for a minute after a fault, and
    while other programs take the cores.
    """
    faults, dead, stuck = FAULTS.snapshot(), FAULTS.dead_threads, FAULTS.stuck_threads
    values: dict[str, object] = {
        "faults": sum(fault.count for fault in faults),
        "dead_threads": ", ".join(dead) or "none",
        "stuck_threads": ", ".join(stuck) or "none",
    }
    values |= {f"dead.{thread}": reason for thread, reason in dead.items()}
    values |= {f"stuck.{thread}": where for thread, where in stuck.items()}
    for fault in faults:
        values[f"fault.{fault.kind}"] = f"{fault.count}, last: {fault.text[:TEXT_LIMIT]}"
    level, message = OK, "no fault" if not faults else "no fault in the last minute"
    now_ns = time.monotonic_ns()
    recent = [fault for fault in faults if now_ns - fault.last_ns < RECENT_FAULT_NS]
    if dead:
        level, message = ERROR, "threads have died: " + ", ".join(dead)
    elif stuck:
        thread, longest = next(iter(stuck.items()))
        level = ERROR if longest.seconds >= STUCK_ERROR_S else WARN
        message = f"thread {thread} does not go on: {longest}"
    elif recent:
        last = max(recent, key=lambda fault: fault.last_ns)
        level, message = WARN, f"{last.kind}: {last.text[:TEXT_LIMIT]}"
    if (load := LOAD.look()) is not None:
        values |= {key: "unknown" if v is None else v for key, v in load.to_dict().items()}
        if load.is_crowded and level == OK:
            level, message = WARN, str(load)
    return make_status(level, message, values)


def stream_status(
    arrivals: ArrivalSnapshot,
    *,
    expected_hz: float,
    tolerance: float,
    node_state: str,
    topic: str = "",
    error: str = "",
    silence: Callable[[], str] | None = None,
    ended: bool = False,
    extra: Mapping[str, object] | None = None,
    delivery: tuple[bytes, str] = (OK, ""),
    max_age_ms: float = 0.0,
    stamp_fault: str = "",
) -> DiagnosticStatus:
    """Make the status of a stream of frames or results, with greenwave's keys and their units.

    It is named by the topic, for greenwave's monitor; without one the publisher names it.
    `expected_hz` is 0 where it is unknown, `tolerance` the share by which the rate may differ,
    `node_state` the lifecycle state (only an active node should get frames), `error` the source's
    reason for the lack of frames, if it reports one; else `silence` explains it. `delivery` is the
    level of the way from the publishers to here, and what is wrong with it. `max_age_ms` is the
    limit by which `arrivals` were counted as stale, `stamp_fault` what is wrong with the stamps.
    """
    node, message = arrivals.jitter_node, arrivals.jitter_message
    values: dict[str, object] = {
        "frame_rate_node": _zero_if_nan(arrivals.rate_node_hz),
        "frame_rate_msg": _zero_if_nan(arrivals.rate_message_hz),
        "current_delay_from_realtime_ms": (
            "N/A" if math.isnan(arrivals.delay_ms) else arrivals.delay_ms
        ),
        "expected_frequency": expected_hz,
        "tolerance": 100.0 * tolerance,  # percent
        # Greenwave counts an interval out of tolerance as a dropped frame.
        "total_dropped_frames": message.outliers,
        "num_non_increasing_msg": arrivals.non_increasing,
        "num_jitter_outliers_msg": message.outliers,
        "num_jitter_outliers_node": node.outliers,
        "max_abs_jitter_msg": message.max_us,
        "max_abs_jitter_node": node.max_us,
        "mean_abs_jitter_msg": message.mean_us,
        "mean_abs_jitter_node": node.mean_us,
        "frames_received": arrivals.count,
        "silence_ms": arrivals.silence_ms,
        "unchanged_stamp_ms": arrivals.unchanged_ms,
        "stale_share": arrivals.recent_stale / max(1, arrivals.recent),
        "recent_zero_stamps": arrivals.recent_zero,
        "recent_distrusted_stamps": arrivals.recent_doubtful,
        "recent_non_increasing_stamps": arrivals.recent_non_increasing,
        **(extra or {}),
    }
    silent = False
    if error:
        level, text = ERROR, error
    elif node_state != "active":
        level, text = OK, node_state
    elif ended:
        level, text = OK, "the stream has ended"
    elif not arrivals.count:
        level, text, silent = WARN, "no frame yet", True
    else:
        level, text, silent = judge_stream(
            Stream(arrivals, expected_hz, tolerance, max_age_ms, stamp_fault)
        )
    if silent and silence is not None:
        text += f": {silence()}"
    if node_state == "active" and not error and delivery[0] >= max(level, WARN):
        if not silent:  # `silence` has explained it
            text = delivery[1] if level == OK else f"{text}: {delivery[1]}"
        level = delivery[0]
    status = make_status(level, text, values)
    status.name = topic
    return status


def judge_losses(losses: LossSnapshot, explain: Callable[[], str]) -> tuple[bytes, str]:
    """Level of the share of published messages that do not arrive, and a description."""
    if losses.lost_share <= LOST_SHARE:
        return OK, ""
    level = ERROR if losses.lost_share > MOST_LOST_SHARE else WARN
    rates = f"{losses.arriving_hz:.1f} of {losses.published_hz:.1f} Hz arrive"
    return level, f"{rates}: {explain()}"


def _zero_if_nan(rate_hz: float) -> float:
    return 0.0 if math.isnan(rate_hz) else rate_hz


def processing_status(
    timing: TimingSnapshot,
    *,
    allowed_ms: float,
    acceptable_delay_ms: float,
    node_state: str,
    fault: str,
) -> DiagnosticStatus:
    """Make the status ``processing_time_status``, with Autoware's keys.

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
        level, message = WARN, "no frame was processed yet"
    return make_status(level, message, values)
