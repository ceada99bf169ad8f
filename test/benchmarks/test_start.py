# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark of starts: what it reads of a node's log, and one real start of each side."""

import pytest

from benchmarks import start
from benchmarks.harness.main import load, parse
from benchmarks.harness.tables import to_text
from jetson_dnn_rt.runtime.start_times import StartTimes

S = 1_000_000_000


def test_what_a_node_logs_is_read():
    times = StartTimes(0, lambda: 3 * S)
    times.end("imports", at_ns=S)
    times.end("front/detector", {"model": S // 4, "warm-up": S // 2}, at_ns=2 * S)
    times.end("front/detector's result")
    total_s, parts = start.read_parts(
        f"[perception-1] [INFO] [1.2] [perception]: {times}\x1b[0m\n"
    )
    assert total_s == 3.0
    assert parts == {
        "imports": 1.0,
        "front/detector": 1.0,
        "front/detector/model": 0.25,
        "front/detector/warm-up": 0.5,
        "front/detector's result": 1.0,
    }


def test_other_text_is_refused():
    with pytest.raises(ValueError, match="not the line of a start"):
        start.read_parts("[INFO] [perception]: schedulable")


def test_a_part_that_was_too_short_to_be_logged_took_nothing():
    starts = [
        {"total_s": 2.0, "parts_s": {"imports": 1.0, "waiting": 0.3}},
        {"total_s": 1.0, "parts_s": {"imports": 0.5}},
        {"total_s": 4.0, "parts_s": {"imports": 0.7}},
    ]
    assert start._summarize(starts) == {
        "total_s": {"median": 2.0, "least": 1.0, "most": 4.0},
        "parts_s": {"imports": 0.7, "waiting": 0.0},
    }


def test_both_sides_start_and_give_a_result():
    pytest.importorskip("rclpy", reason="rclpy is missing: it is of ROS 2")
    result = start.run(parse(load("start"), ["--quick", "--ways", "executable"], "start"))
    assert result["passed"] is None
    cold, second = result["starts"]
    assert (cold["side"], second["side"]) == start.SIDES
    for row in (cold, second):
        assert {"imports", "nodes", "detector/variants", "segmenter/warm-up"} <= set(
            row["parts_s"]
        )
        own = [seconds for name, seconds in row["parts_s"].items() if name.count("/") == 0]
        # Each is rounded to 0.01 s, and those below 0.005 s are left out.
        assert sum(own) == pytest.approx(row["total_s"]["median"], abs=0.01 * (len(own) + 3))
    assert "detector - variants" in to_text(start.report(result))
