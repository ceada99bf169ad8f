# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Overhead: its arithmetic by hand, and one short run from end to end."""

import benches
import pytest

from benchmarks.harness.tables import UNDECIDED
from benchmarks.overhead.bench import Measured, describe, find_lost, is_within
from benchmarks.overhead.parts import Ended, Received, summarize_parts

JOB = Ended(stamp_ns=2, release_ns=5, completion_ns=50, publish_ns=57, published_ns=60, busy_ns=34)


def test_overhead_is_neither_execution_nor_waiting():
    assert JOB.overhead_ns == 60 - 2 - 34
    assert JOB.response_overhead_ns == 50 - 5 - 34


@pytest.mark.parametrize(
    ("sent_ns", "begin"), [(None, {"camera": 3}), (4, {"camera": 2, "topic": 1})]
)
def test_parts_add_up(sent_ns, begin):
    parts = JOB.split(sent_ns)
    assert parts == {**begin, "executor": 11, "delivery": 7, "publish": 3}
    assert sum(parts.values()) == JOB.overhead_ns


def test_parts_of_a_bare_subscription_add_up():
    parts = Received(2, 7, 15, 31).split(3)
    assert parts == {"camera": 1, "serialise": 4, "transport": 8, "wake-up and take": 16}


def test_each_part_is_summarised_over_the_frames_that_have_it():
    parts = summarize_parts([{"camera": 3_000_000}, {"camera": 1_000_000, "topic": 2_000_000}])
    assert parts["camera"] == {"p50": 1.0, "p99": 3.0, "max": 3.0}
    assert parts["topic"] == {"p50": 2.0, "p99": 2.0, "max": 2.0}


def test_frames_sent_before_and_after_do_not_count_as_lost():
    assert find_lost([1, 2, 3, 4, 5, 6], {2, 5}) == [3, 4]
    assert find_lost([1, 2], set()) == [1, 2]


def test_bars():
    row = {"jobs": 1, "overhead_ms": {"p50": 2.5}, "bars_ms": {"p50": 2.5}}
    assert is_within(row) is True
    assert is_within({**row, "lost": 1}) is False
    assert is_within({**row, "overhead_ms": {"p50": 2.6}}) is False
    none = {"jobs": 0, "overhead_ms": {"p50": None}, "bars_ms": {"p50": 2.5}}
    assert is_within(none) is False


def measure(*overheads_us, **found):
    times_ns = [1000 * one for one in overheads_us]
    return Measured(times_ns, times_ns, [{"camera": one} for one in times_ns], **found)


@pytest.mark.parametrize(
    ("rounds", "passed"),
    [
        ([(400, 500)] * 10, True),
        ([(600, 700)] * 10, False),
        ([(400, 700)] * 2 + [(600, 700)] * 8, UNDECIDED),
        ([(400, 500)] * 9, UNDECIDED),
        ([(400, 500)] * 9 + [()], False),  # nothing came in a round
    ],
)
def test_bars_are_those_of_the_rounds(rounds, passed):
    row = describe([measure(*one) for one in rounds], {"p50": 0.5})
    assert is_within(row) == passed


def test_rounds_of_a_part_are_put_together():
    row = describe([measure(100, 300, sent=5, lost_at_s=[0.5]), measure(200, sent=3)], {})
    assert (row["jobs"], row["sent"], row["lost"], row["lost_at_s"]) == (3, 8, 1, [0.5])
    assert row["overhead_ms"]["p50"] == 0.2
    assert row["by_round"]["p50"] == [0.1, 0.2]
    assert is_within(row) is False  # an image was lost
    assert is_within(describe([measure(100, sent=5)], {})) is True  # without a bar
    assert "lost" not in describe([measure(100)], {})


@pytest.mark.nightly
def test_every_part_is_measured():
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    _, result = benches.run("overhead", "--size 160x120 --seconds 2 --rounds 1")
    composed, bare, two = result["rows"]
    assert [row["part"] for row in result["rows"]] == ["composed", "bare", "two processes"]
    assert all(row["jobs"] > 0 for row in result["rows"])
    assert list(composed["parts_ms"]) == ["camera", "executor", "delivery", "publish"]
    assert list(bare["parts_ms"]) == ["camera", "serialise", "transport", "wake-up and take"]
    assert list(two["parts_ms"]) == ["camera", "topic", "executor", "delivery", "publish"]
