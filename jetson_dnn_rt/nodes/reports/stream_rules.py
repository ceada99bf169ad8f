# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Thresholds from which a stream's status is a warning or an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticStatus

from jetson_dnn_rt.cameras.stamps import ZERO_FIX
from jetson_dnn_rt.nodes.reports.arrivals import SILENT_PERIODS, ArrivalSnapshot

WARN, ERROR = DiagnosticStatus.WARN, DiagnosticStatus.ERROR


@dataclass(frozen=True)
class Stream:
    """What the rules judge."""

    arrivals: ArrivalSnapshot
    expected_hz: float
    tolerance: float
    max_age_ms: float
    stamp_fault: str

    @property
    def longest_silence_ms(self) -> float:
        """Longest time without a frame, or without a new stamp, that is no error."""
        return SILENT_PERIODS * 1000.0 / (self.expected_hz or 1.0)


@dataclass(frozen=True)
class StreamRule:
    """When a quantity of a stream raises the level of its status.

    `key` is that of the quantity in the status; `threshold` describes it for docs/topics.md;
    `judge` returns the message of the status, empty within the threshold.
    """

    key: str
    level: bytes
    threshold: str
    judge: Callable[[Stream], str]


LONGEST_DELAY_MS = 1000.0
"""Age of a frame at its arrival that is a warning where no `max_age_ms` is set."""


def _judge_silence(stream: Stream) -> str:
    silence_ms = stream.arrivals.silence_ms
    # Of a stream without a frame it is NaN, which compares false.
    return (
        f"no frame for {silence_ms / 1e3:.1f} s" if silence_ms > stream.longest_silence_ms else ""
    )


def _judge_frozen(stream: Stream) -> str:
    same_ms = stream.arrivals.unchanged_ms
    if same_ms <= stream.longest_silence_ms:
        return ""
    return f"frozen: the frames of the last {same_ms / 1e3:.1f} s have the same stamp"


def _judge_all_stale(stream: Stream) -> str:
    all_are = stream.arrivals.recent_stale == stream.arrivals.recent >= SILENT_PERIODS
    return _describe_stale(stream) if all_are else ""


def _judge_stale(stream: Stream) -> str:
    arrivals = stream.arrivals
    few = arrivals.recent_stale <= stream.tolerance * arrivals.recent
    return "" if few or _judge_all_stale(stream) else _describe_stale(stream)


def _describe_stale(stream: Stream) -> str:
    arrivals = stream.arrivals
    return (
        f"{arrivals.recent_stale} of the last {arrivals.recent} frames are skipped: older than "
        f"max_age_ms {stream.max_age_ms:g}, or of unknown age"
    )


def _judge_delay(stream: Stream) -> str:
    delay_ms, limit_ms = stream.arrivals.delay_ms, stream.max_age_ms or LONGEST_DELAY_MS
    if not delay_ms > limit_ms:  # NaN where it is not known
        return ""
    return (
        f"frames are {delay_ms:.0f} ms old when they arrive, more than {limit_ms:.0f} ms: they "
        "come late, or the clock of their stamps is that far behind"
    )


def _judge_zero(stream: Stream) -> str:
    count, recent = stream.arrivals.recent_zero, stream.arrivals.recent
    return f"{count} of the last {recent} stamps are zero; {ZERO_FIX}" if count else ""


def _judge_doubtful(stream: Stream) -> str:
    count, recent = stream.arrivals.recent_doubtful, stream.arrivals.recent
    if count <= stream.arrivals.recent_zero:
        return ""
    fault = f": they {stream.stamp_fault}" if stream.stamp_fault else ""
    return f"{count} of the last {recent} stamps do not tell the age of their frame{fault}"


def _judge_order(stream: Stream) -> str:
    arrivals = stream.arrivals
    if arrivals.recent_non_increasing <= arrivals.recent_zero:
        return ""
    return (
        f"{arrivals.recent_non_increasing} of the last {arrivals.recent} stamps are not later "
        "than the one before"
    )


def _judge_rate(stream: Stream) -> str:
    rate_hz, expected_hz = stream.arrivals.rate_node_hz, stream.expected_hz
    # The rate of a single frame is NaN, which compares false.
    if not (expected_hz and abs(rate_hz - expected_hz) > stream.tolerance * expected_hz):
        return ""
    return f"{rate_hz:.1f} Hz instead of {expected_hz:.1f} Hz"


_LONG = f"longer than {SILENT_PERIODS} expected periods"

STREAM_RULES = tuple(
    StreamRule(*rule)
    for rule in (
        ("silence_ms", ERROR, _LONG, _judge_silence),
        ("unchanged_stamp_ms", ERROR, _LONG, _judge_frozen),
        ("stale_share", ERROR, f"1, of at least {SILENT_PERIODS} frames", _judge_all_stale),
        ("stale_share", WARN, "above `tolerance`", _judge_stale),
        (
            *("current_delay_from_realtime_ms", WARN),
            f"above `max_age_ms`; where that is 0, above {LONGEST_DELAY_MS:.0f} ms",
            _judge_delay,
        ),
        ("recent_zero_stamps", WARN, "above 0", _judge_zero),
        ("recent_distrusted_stamps", WARN, "above `recent_zero_stamps`", _judge_doubtful),
        ("recent_non_increasing_stamps", WARN, "above `recent_zero_stamps`", _judge_order),
        (
            *("frame_rate_node", WARN),
            "differs from `expected_frequency` by more than `tolerance` of it",
            _judge_rate,
        ),
    )
)
"""By severity; docs/topics.md has the same table."""


def judge_stream(stream: Stream) -> tuple[bytes, str, bool]:
    """Return the level of a stream that has frames, its text, and whether it is silent."""
    found = [(rule, why) for rule in STREAM_RULES if (why := rule.judge(stream))]
    if not found:
        return DiagnosticStatus.OK, "frames arrive as expected", False
    worst, why = found[0]
    if worst.judge is _judge_silence:  # the other faults follow from it
        return worst.level, why, True
    return worst.level, "; ".join(why for _, why in found), False
