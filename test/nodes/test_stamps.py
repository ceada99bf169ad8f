# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Stamps that are believed, and those that cannot be true."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.nodes.tasks.stamps import LATEST_NS, OLDEST_NS, StampClock

NOW_NS = 1_700_000_000_000_000_000
ARRIVAL_NS = 5_000_000_000


@pytest.fixture
def stamps():
    return StampClock("/image_raw", lambda: NOW_NS)


def test_age_of_the_stamp_is_age_on_the_steady_clock(stamps):
    assert stamps.capture_ns(NOW_NS - 7_000_000, ARRIVAL_NS) == ARRIVAL_NS - 7_000_000
    assert stamps.distrusted == 0


def test_a_stamp_slightly_ahead_is_now(stamps):
    assert stamps.capture_ns(NOW_NS + LATEST_NS, ARRIVAL_NS) == ARRIVAL_NS
    assert stamps.distrusted == 0


@pytest.mark.parametrize(
    ("stamp_ns", "word"),
    [
        (0, "zero"),
        (NOW_NS + LATEST_NS + 1, "in the future"),
        (NOW_NS + 10**18, "in the future"),
        (NOW_NS - OLDEST_NS - 1, "too old"),
        (1, "too old"),
        (-(10**18), "too old"),
    ],
)
def test_a_stamp_that_cannot_be_true_gives_way_to_the_arrival(stamps, stamp_ns, word, caplog):
    for _ in range(3):
        assert stamps.capture_ns(stamp_ns, ARRIVAL_NS) == ARRIVAL_NS
    assert stamps.distrusted == 3
    assert len(caplog.records) == 1
    assert f"/image_raw: stamps are {word}" in caplog.text


def test_stamps_that_go_backwards_are_said_once(stamps, caplog):
    assert stamps.capture_ns(NOW_NS - 5, ARRIVAL_NS) == ARRIVAL_NS - 5
    assert stamps.capture_ns(NOW_NS - 9, ARRIVAL_NS) == ARRIVAL_NS
    # The next one goes forward again from there, as a bag does that starts anew.
    assert stamps.capture_ns(NOW_NS - 8, ARRIVAL_NS) == ARRIVAL_NS - 8
    assert stamps.capture_ns(NOW_NS - 9, ARRIVAL_NS) == ARRIVAL_NS
    assert "going backwards" in caplog.text
    assert len(caplog.records) == 1
