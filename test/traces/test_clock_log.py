# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which clocks held when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.traces.clock_log import ClockLog


def test_before_between_and_after():
    assert ClockLog().at(5) == ""  # unknown
    log = ClockLog("slow")
    log.append(100, "fast")
    log.append(200, "slow")
    assert [log.at(t) for t in (-5, 99, 100, 199, 200, 10**18)] == [
        *("slow", "slow", "fast", "fast", "slow", "slow")
    ]
    assert log.last == "slow"


def test_a_change_that_overtakes_counts_from_the_others_time():
    log = ClockLog("a")
    log.append(100, "b")
    log.append(90, "c")
    assert [log.at(t) for t in (95, 100)] == ["a", "c"]


def test_entries_must_be_some():
    with pytest.raises(ValueError, match="entries"):
        ClockLog(entries=0)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=60), st.integers(1, 8)
)
def test_memory_is_bounded_and_the_latest_are_remembered(steps, entries):
    log = ClockLog("a", entries)
    whole = [(-1, "a")]
    time_ns = 0
    for step, text in steps:
        time_ns += step
        log.append(time_ns, text)
        if text != whole[-1][1]:
            whole.append((time_ns, text))
        assert len(log._entries) <= 2 * entries
    for time_ns, _ in whole[-entries:]:
        expected = [text for begin, text in whole if begin <= time_ns][-1]
        assert log.at(time_ns) == expected
