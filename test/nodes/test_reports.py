# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Arrivals, windows, timing and the levels of diagnostics, without a graph."""

from __future__ import annotations

import math
import os
import queue
import threading
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from jetson_dnn_rt.nodes.reports.arrivals import WINDOW, Arrivals, ArrivalSnapshot, JitterFigures
from jetson_dnn_rt.nodes.reports.diagnostics import (
    ERROR,
    OK,
    WARN,
    processing_status,
    stream_status,
)
from jetson_dnn_rt.nodes.reports.losses import LOST_SHARE, MOST_LOST_SHARE
from jetson_dnn_rt.nodes.reports.stream_rules import STREAM_RULES
from jetson_dnn_rt.nodes.reports.task_timing import TaskTiming, TimingSnapshot
from jetson_dnn_rt.nodes.reports.timing_reports import summarize
from jetson_dnn_rt.nodes.tasks.mailbox import Mailbox
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import JobRecord, Outcome, StageRecord

MS = 1_000_000
ROOT = Path(__file__).resolve().parents[2]


def test_rates_are_by_arrival_and_by_stamp():
    arrivals = Arrivals()
    for k in range(11):
        arrivals.observe(100 * MS * k, 50 * MS * k, 100 * MS * k - 7 * MS)
    found = arrivals.snapshot(1040 * MS)
    assert found.count == 11
    assert found.rate_node_hz == pytest.approx(10.0)
    assert found.rate_message_hz == pytest.approx(20.0)
    assert (found.delay_ms, found.silence_ms) == (7.0, 40.0)


def test_the_rate_of_a_dead_camera_sinks():
    arrivals = Arrivals()
    for k in range(11):
        arrivals.observe(100 * MS * k, 0, 0)
    assert arrivals.snapshot(3100 * MS).rate_node_hz == pytest.approx(10 / 3.0)


def test_nothing_is_known_of_no_frame_and_no_rate_of_one():
    arrivals = Arrivals()
    assert math.isnan(arrivals.snapshot(5).rate_node_hz)
    arrivals.observe(1, 1, 1)
    assert math.isnan(arrivals.snapshot(2).rate_node_hz)
    assert arrivals.snapshot(2).count == 1


def arrived(rate_hz=30.0, silence_ms=10.0, count=50):
    return ArrivalSnapshot(count, rate_hz, rate_hz, 1.0, silence_ms)


@pytest.mark.parametrize(
    ("arrivals", "state", "error", "ended", "level"),
    [
        (arrived(), "active", "", False, OK),
        (arrived(27.1), "active", "", False, OK),
        (arrived(26.9), "active", "", False, WARN),
        (arrived(33.1), "active", "", False, WARN),
        (arrived(silence_ms=166.0), "active", "", False, OK),
        (arrived(silence_ms=167.0), "active", "", False, ERROR),
        (arrived(count=0), "active", "", False, WARN),
        (arrived(silence_ms=9999.0), "inactive", "", False, OK),
        (arrived(silence_ms=9999.0), "active", "", True, OK),
        (arrived(), "active", "unplugged", False, ERROR),
        (arrived(math.nan, count=1), "active", "", False, OK),
    ],
)
def test_levels_of_a_stream(arrivals, state, error, ended, level):
    status = stream_status(
        arrivals, expected_hz=30.0, tolerance=0.1, node_state=state, error=error, ended=ended
    )
    assert status.level == level


@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({}, OK, "frames arrive as expected"),
        ({"unchanged_ms": 166.0}, OK, ""),
        ({"unchanged_ms": 167.0}, ERROR, "frozen: the frames of the last 0.2 s"),
        ({"recent_stale": 6}, OK, ""),
        ({"recent_stale": 7}, WARN, "7 of the last 60 frames are skipped: older than max_age_ms"),
        ({"recent_stale": 60}, ERROR, "60 of the last 60 frames are skipped"),
        ({"recent_stale": 4, "recent": 4}, WARN, "4 of the last 4"),
        ({"delay_ms": 200.0}, OK, ""),
        ({"delay_ms": 201.0}, WARN, "frames are 201 ms old when they arrive, more than 200 ms"),
        ({"delay_ms": math.nan}, OK, ""),
        ({"recent_zero": 1, "recent_doubtful": 1}, WARN, "1 of the last 60 stamps are zero; the"),
        ({"recent_doubtful": 2}, WARN, "2 of the last 60 stamps do not tell the age of their "
         "frame: they go backwards; set it"),
        ({"recent_non_increasing": 3}, WARN, "3 of the last 60 stamps are not later than the one"),
        ({"recent_zero": 2, "recent_doubtful": 2, "recent_non_increasing": 1}, WARN, "2 of the"),
    ],
)  # fmt: skip
def test_every_quantity_of_a_stream_has_a_level(changes, level, text):
    arrivals = replace(arrived(), **{"recent": 60, **changes})
    status = stream_status(
        arrivals, expected_hz=30.0, tolerance=0.1, node_state="active", max_age_ms=200.0,
        stamp_fault="go backwards; set it",
    )  # fmt: skip
    assert status.level == level
    assert status.message.startswith(text)


def test_an_age_of_more_than_a_second_is_a_warning_without_a_limit():
    for delay_ms, level in ((1000.0, OK), (1001.0, WARN)):
        status = stream_status(
            replace(arrived(), recent=60, delay_ms=delay_ms),
            expected_hz=30.0, tolerance=0.1, node_state="active",
        )  # fmt: skip
        assert status.level == level


def test_the_page_has_the_table_of_quantities_levels_and_thresholds():
    page = (ROOT / "docs" / "topics.md").read_text()
    names = {WARN: "WARN", ERROR: "ERROR"}
    rows = [f"| `{rule.key}` | {names[rule.level]} | {rule.threshold} |" for rule in STREAM_RULES]
    assert "\n".join(rows) in page
    status = stream_status(ArrivalSnapshot(), expected_hz=30.0, tolerance=0.1, node_state="active")
    assert {rule.key for rule in STREAM_RULES} <= {item.key for item in status.values}


def test_the_page_has_the_thresholds_of_losses():
    page = (ROOT / "docs" / "topics.md").read_text()
    assert f"| WARN | above {100 * LOST_SHARE:.0f} % |\n" in page
    assert f"| | ERROR | above {100 * MOST_LOST_SHARE:.0f} % |\n" in page


def test_what_is_recent_is_of_the_last_frames():
    arrivals = Arrivals()
    # Two zero stamps, one that is late, one twice; the last is 300 ms old.
    for number, (stamp_ms, age_ms, doubt) in enumerate(
        [(0, 0, "stamp"), (0, 0, "stamp"), (50, 10, ""), (100, 250, ""), (100, 300, "frozen")]
    ):
        at_ns = 100 * MS * number
        arrivals.observe(at_ns, stamp_ms * MS, at_ns - age_ms * MS, doubt)
    found = arrivals.snapshot(450 * MS, 200 * MS)
    assert (found.recent, found.recent_zero, found.recent_doubtful) == (5, 2, 2)
    assert (found.recent_non_increasing, found.non_increasing) == (2, 2)
    assert (found.recent_stale, found.delay_ms, found.unchanged_ms) == (4, 300.0, 100.0)
    assert arrivals.snapshot(450 * MS).recent_stale == 0
    for number in range(WINDOW):
        arrivals.observe(500 * MS + number, 500 * MS + number, 500 * MS + number)
    found = arrivals.snapshot(501 * MS, 200 * MS)
    assert (found.recent_zero, found.recent_stale, found.non_increasing) == (0, 0, 2)
    arrivals.observe(600 * MS, 0, 600 * MS, "stamp")
    assert math.isnan(arrivals.snapshot(601 * MS).delay_ms)


GREENWAVE_KEYS = (
    *("frame_rate_node", "frame_rate_msg", "current_delay_from_realtime_ms"),
    *("expected_frequency", "tolerance", "total_dropped_frames", "num_non_increasing_msg"),
    *("num_jitter_outliers_msg", "num_jitter_outliers_node"),
    *("max_abs_jitter_msg", "max_abs_jitter_node", "mean_abs_jitter_msg", "mean_abs_jitter_node"),
)


def describe(arrivals, now_ns):
    status = stream_status(
        arrivals.snapshot(now_ns), expected_hz=10.0, tolerance=0.1, node_state="active",
        topic="/image_raw",
    )  # fmt: skip
    assert status.name == "/image_raw"
    return {item.key: item.value for item in status.values}


def test_a_topic_s_status_has_greenwave_s_keys_in_its_units():
    """Jitter in whole microseconds from the expected period, tolerance in percent."""
    arrivals = Arrivals(100 * MS, 0.1)
    assert {key: describe(arrivals, 0)[key] for key in GREENWAVE_KEYS} == {
        **dict.fromkeys(GREENWAVE_KEYS, "0"),
        "frame_rate_node": "0.000",
        "frame_rate_msg": "0.000",
        "current_delay_from_realtime_ms": "N/A",
        "expected_frequency": "10.000",
        "tolerance": "10.000",
    }
    # Intervals of arrival 100, 110 and 130 ms, of stamps 100, 0 and -50 ms.
    for arrival_ms, stamp_ms in ((1000, 500), (1100, 600), (1210, 600), (1340, 550)):
        arrivals.observe(arrival_ms * MS, stamp_ms * MS, (arrival_ms - 7) * MS)
    assert {key: describe(arrivals, 1340 * MS)[key] for key in GREENWAVE_KEYS} == {
        "frame_rate_node": "8.824",
        "frame_rate_msg": "60.000",
        "current_delay_from_realtime_ms": "7.000",
        "expected_frequency": "10.000",
        "tolerance": "10.000",
        "total_dropped_frames": "2",
        "num_non_increasing_msg": "2",
        "num_jitter_outliers_msg": "2",
        "num_jitter_outliers_node": "1",  # 10 ms is within the tolerance
        "max_abs_jitter_msg": "150000",
        "max_abs_jitter_node": "30000",
        "mean_abs_jitter_msg": "83333",
        "mean_abs_jitter_node": "13333",
    }


def test_jitter_is_not_counted_without_an_expected_rate():
    arrivals = Arrivals()
    for k in range(3):
        arrivals.observe(k * k * MS, k * k * MS, 0)
    assert arrivals.snapshot(9 * MS).jitter_node == JitterFigures()


@pytest.mark.parametrize(
    ("processing_ms", "delay_ms", "fault", "level"),
    [
        (10.0, 0.0, "", OK),
        (31.0, 5.0, "", WARN),
        (31.0, 101.0, "", ERROR),
        (10.0, 0.0, "no model", ERROR),
        (math.nan, 0.0, "", WARN),
    ],
)
def test_levels_of_processing(processing_ms, delay_ms, fault, level):
    status = processing_status(
        TimingSnapshot(processing_ms, 1.0, 2.0, consecutive_delay_ms=delay_ms),
        allowed_ms=30.0,
        acceptable_delay_ms=100.0,
        node_state="active",
        fault=fault,
    )
    assert status.level == level
    keys = [value.key for value in status.values]
    assert keys == [
        "processing_time_ms", "is_processing_time_ms_in_expected_range",
        "consecutive_processing_delay_ms", "inference_time_ms", "output_latency_ms",
    ]  # fmt: skip


def test_window_figures():
    values = (2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0)
    assert summarize(values) == pytest.approx((5.0, 2.0, 9.0, 2.0, 8))
    assert math.isnan(summarize(())[0])
    assert summarize(())[-1] == 0.0


def record(outcome, end_ms, run_ms=10):
    end_ns = end_ms * MS
    stages = (StageRecord("inference", "v", end_ns - run_ms * MS, end_ns),)
    return JobRecord(
        "t", 0, "v", outcome, "", end_ns - 20 * MS, end_ns - 15 * MS, end_ns - run_ms * MS,
        end_ns, end_ns + 5 * MS, 0, 0, False, stages if outcome is Outcome.MET else (),
    )  # fmt: skip


def test_misses_are_frames_without_a_result_that_no_newer_one_replaced():
    timing = TaskTiming(1e-3)
    for outcome in Outcome:
        timing.observe(record(outcome, 100), 101 * MS, 0.0)
    found = timing.snapshot()
    assert (found.released, found.misses) == (6, 4)
    assert found.miss_ratio == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("frames", "half_life", "p99", "p999"),
    [
        (99, math.inf, False, False),
        (100, math.inf, True, False),
        (999, math.inf, True, False),
        (1000, math.inf, True, True),
        # All that is remembered weighs as much as 144 frames: never enough for a p99.9.
        (5000, 100.0, True, False),
    ],
)
def test_a_percentile_that_no_time_lies_above_is_not_given(frames, half_life, p99, p999):
    """At 221 frames the p99.9 was the highest time under another name."""
    timing = TaskTiming(1e-3, half_life)
    for number in range(frames):
        timing.observe(record(Outcome.MET, 20 * number, 10), 20 * number * MS, 0.0)
    found = timing.snapshot()
    for figures in (found.whole, found.variants["v"]):
        assert figures.p50_ms == pytest.approx(10.0, rel=1e-3)
        assert (not math.isnan(figures.p99_ms), not math.isnan(figures.p999_ms)) == (p99, p999)


def test_timing_of_one_frame_and_of_slow_ones():
    timing = TaskTiming(1e-3)
    now = timing.observe(record(Outcome.MET, 100), 103 * MS, 12.0)
    assert (now.processing_ms, now.inference_ms, now.output_latency_ms) == (10.0, 10.0, 23.0)
    assert math.isnan(now.cyclic_ms)
    now = timing.observe(record(Outcome.MET, 140, 15), 141 * MS, 12.0)
    assert (now.cyclic_ms, now.consecutive_delay_ms) == (40.0, 0.0)
    now = timing.observe(record(Outcome.MET, 180, 15), 181 * MS, 12.0)
    assert now.consecutive_delay_ms == 40.0
    now = timing.observe(record(Outcome.MET, 220, 11), 221 * MS, 12.0)
    assert now.consecutive_delay_ms == 0.0
    assert timing.hwm_ms("v") == 15.0
    assert math.isnan(timing.hwm_ms("w"))
    assert timing.snapshot().variants["v"].best_ms == 10.0


def test_neither_a_batch_nor_a_narrow_network_is_taken_for_a_slow_frame():
    timing = TaskTiming(1e-3)
    timing.observe(record(Outcome.MET, 100), 103 * MS, 0.0)
    alone = record(Outcome.MET, 140, 25)
    stages = tuple(replace(stage, batch=3) for stage in alone.stages)
    timing.observe(replace(alone, stages=stages), 141 * MS, 0.0)
    assert timing.hwm_ms("v") == 10.0
    assert timing.hwm_ms("v (batch of 3)") == 25.0
    stages = tuple(replace(stage, narrow=True) for stage in alone.stages)
    timing.observe(replace(alone, stages=stages), 141 * MS, 0.0)
    assert timing.hwm_ms("v") == 10.0
    assert timing.hwm_ms("v (narrow)") == 25.0
    assert timing.snapshot().whole.count == 3


def test_a_mailbox_keeps_the_newest_and_remembers_no_texts_of_errors(caplog):
    """EDGES 0: it kept, and logged, every different text of an exception for ever."""
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    handled: list[int] = []

    def handle(item):
        begun.set()
        assert go_on.wait(60.0)
        handled.append(item)
        if item < 44:
            raise RuntimeError(f"cannot draw frame {item}")
        done.set()

    mailbox = Mailbox("drawing", handle, slots=40)
    mailbox.put(1)
    assert begun.wait(60.0)
    for item in range(2, 45):
        mailbox.put(item)
    go_on.set()
    assert done.wait(60.0)
    mailbox.close()
    assert handled == [1, *range(5, 45)]
    assert mailbox.dropped == 3
    (fault,) = FAULTS.snapshot()
    assert (fault.kind, fault.count) == ("thread drawing: RuntimeError", 40)
    assert len(caplog.records) == 1


def test_a_mailbox_whose_thread_is_killed_goes_on():
    """EDGES 0: the thread of a mailbox that died was not said and not replaced."""
    handled: queue.Queue[int] = queue.Queue()

    def handle(item):
        if item == 1:
            raise SystemExit("killed")
        handled.put(item)

    mailbox = Mailbox("drawing", handle, slots=2)
    mailbox.put(1)
    mailbox.put(2)
    assert handled.get(timeout=60.0) == 2
    mailbox.close()
    assert [one.kind for one in FAULTS.snapshot()] == ["thread drawing: SystemExit"]


def test_a_mailbox_adds_to_the_niceness_of_the_process():
    """Else a process that was started by `nice` would have threads more urgent than its work."""
    found = []

    def handle(item):
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def work():
        found.append(os.nice(3))
        mailbox = Mailbox("drawing", handle, nice=10)
        mailbox.put(1)
        mailbox.close(5.0, finish=True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    own, inside = found
    assert inside == min(19, own + 10)
