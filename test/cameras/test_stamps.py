# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""With a limit of the age no frame that is older is met, whatever its stamp."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stamped_streams import EPOCH_NS, MAX_AGE_NS, MS, Arrival, S, deliver, judge

from jetson_dnn_rt.cameras.stamps import (
    DRIFT_PPM,
    FALLING_WINDOWS,
    FROZEN,
    LATEST_NS,
    OLDEST_NS,
    SETTLE_NS,
    STAMP,
    WINDOW_NS,
    StampClock,
)

NOW_NS = EPOCH_NS
ARRIVAL_NS = 5_000_000_000


@pytest.fixture
def stamps():
    return StampClock("/image_raw", lambda: NOW_NS)


def test_age_of_the_stamp_is_age_on_the_steady_clock(stamps):
    assert stamps.judge(NOW_NS - 7 * MS, ARRIVAL_NS) == (ARRIVAL_NS - 7 * MS, "")
    assert stamps.distrusted == 0


def test_a_stamp_slightly_ahead_is_now_and_shows_how_far_the_clock_is_ahead(stamps):
    assert stamps.judge(NOW_NS + LATEST_NS - 5, ARRIVAL_NS) == (ARRIVAL_NS, "")
    # The next one that is now by the node's clock is that much older than the first was.
    assert stamps.judge(NOW_NS + LATEST_NS, ARRIVAL_NS) == (ARRIVAL_NS, "")
    late_ns = ARRIVAL_NS + 40 * MS
    assert stamps.judge(NOW_NS + LATEST_NS + 1, late_ns) == (late_ns, STAMP)
    assert stamps.distrusted == 1


@pytest.mark.parametrize(
    ("stamp_ns", "word"),
    [(0, "zero"), (NOW_NS + LATEST_NS + 1, "in the future"), (NOW_NS + 10**18, "in the future")],
)
def test_a_stamp_that_tells_no_age_is_said_once(stamps, stamp_ns, word, caplog):
    for number in range(3):
        assert stamps.judge(stamp_ns and stamp_ns + number, ARRIVAL_NS) == (ARRIVAL_NS, STAMP)
    assert stamps.distrusted == 3
    assert len(caplog.records) == 1
    assert f"/image_raw: stamps are {word}" in caplog.text


@pytest.mark.parametrize("stamp_ns", [NOW_NS - OLDEST_NS - 1, 1, -(10**18)])
def test_an_old_stamp_is_an_age_however_old(stamps, stamp_ns, caplog):
    """A constant offset cannot be told from a delay; the log names it, and the way out."""
    age_ns = NOW_NS - stamp_ns
    assert stamps.judge(stamp_ns, ARRIVAL_NS) == (ARRIVAL_NS - age_ns, "")
    assert f"clock minus stamp: {age_ns / 1e9:.3f} s" in caplog.text
    assert "set stamp_clock to unsynchronised" in caplog.text
    assert stamps.describe()["stamp_offset_ms"] == pytest.approx(age_ns / 1e6)


def test_with_simulated_time_nobody_is_told_to_set_it(caplog):
    """What a stranger met: "set use_sim_time", although it is set."""
    StampClock("/image_raw", lambda: NOW_NS, simulated=lambda: True).judge(5, ARRIVAL_NS)
    assert "use_sim_time is set: /clock and the images have to come from one" in caplog.text


def test_stamps_that_go_backwards_are_said_once(stamps, caplog):
    assert stamps.judge(NOW_NS - 5, ARRIVAL_NS) == (ARRIVAL_NS - 5, "")
    assert stamps.judge(NOW_NS - 9, ARRIVAL_NS) == (ARRIVAL_NS - 9, STAMP)
    # The next one goes forward again from there, as a bag does that starts anew.
    assert stamps.judge(NOW_NS - 8, ARRIVAL_NS) == (ARRIVAL_NS - 8, "")
    assert stamps.judge(NOW_NS - 9, ARRIVAL_NS) == (ARRIVAL_NS - 9, STAMP)
    assert "go backwards" in caplog.text
    assert len(caplog.records) == 1


# -- Whole streams, of which the true ages are known ---------------------------------------------


def stall(captured_ns):
    """Delay of 10 ms, but of half a second and of three at times: the frames behind queue up."""
    second = captured_ns // S
    starts = captured_ns % S < S // 30
    return (
        10 * MS + (starts and second % 5 == 4) * 500 * MS + (starts and second % 20 == 9) * 3 * S
    )


def skew(rate):
    """Stamps of a clock that is that much too fast."""
    return lambda captured_ns: EPOCH_NS + captured_ns + int(captured_ns * rate)


def set_by(step_ns, at_s=30):
    """A clock that is set by so much once."""
    return lambda time_ns: EPOCH_NS + time_ns + (time_ns >= at_s * S) * step_ns


def from_then_on(late_ns, at_s=30):
    """Delay that becomes so long and stays."""
    return lambda captured_ns: 10 * MS + (captured_ns >= at_s * S) * late_ns


def simulate(time_ns):
    """Simulated time in steps of 10 ms: a pause, a loop back to its start, a jump ahead."""
    time_ns = time_ns // (10 * MS) * (10 * MS)
    if time_ns < 10 * S:
        return 1000 * S + time_ns
    if time_ns < 20 * S:
        return 1010 * S  # it stands still
    if time_ns < 40 * S:
        return 1000 * S + time_ns - 20 * S
    return 5000 * S + time_ns


H = 3600 * S

AGES_S = (0.01, 0.1, 0.19, 0.21, 0.5, 1.0, 5.0, 9.5, 10.5, 60.0, 3600.0)

# Name, seconds, the rest of `deliver`, and what comes of it: frames met, or None.
STREAMS = {
    **{
        f"all {s:g} s old": (60, {"delay_ns": lambda _, s=s: int(s * 1e9)}, 1800 * (s < 0.2))
        for s in AGES_S
    },
    "stalls of 0.5 s and 3 s": (60, {"delay_ns": stall}, None),
    "one stamp repeated": (60, {"stamp_ns": lambda c: EPOCH_NS}, 1),
    "frozen after 30 s": (60, {"stamp_ns": lambda c: EPOCH_NS + min(c, 30 * S)}, 901),
    "two stamps in turns": (60, {"stamp_ns": lambda c: EPOCH_NS + (c * 30 // S % 2) * MS}, None),
    "each stamp twice": (60, {"stamp_ns": lambda c: EPOCH_NS + c * 15 // S * S // 15}, 900),
    "slow motion": (60, {"stamp_ns": lambda c: EPOCH_NS + c // 50}, None),
    "going backwards": (60, {"stamp_ns": lambda c: EPOCH_NS - c}, 1),
    "zero": (60, {"stamp_ns": lambda c: 0}, 0),
    "since 1970": (60, {"stamp_ns": lambda c: 1 + c}, 0),
    "0.05 s ahead, stalls": (60, {"stamp_ns": set_by(50 * MS, 0), "delay_ns": stall}, None),
    "5 s ahead": (60, {"stamp_ns": set_by(5 * S, 0)}, 0),
    "3600 s ahead": (60, {"stamp_ns": set_by(3600 * S, 0)}, 0),
    "5 s ahead, then 5.1 s late": (
        *(60, {"stamp_ns": set_by(5 * S, 0), "delay_ns": from_then_on(5100 * MS)}, 0),
    ),
    "1 % fast, stalls": (300, {"stamp_ns": skew(0.01), "delay_ns": stall}, None),
    "1 % slow, stalls": (300, {"stamp_ns": skew(-0.01), "delay_ns": stall}, None),
    "1 % fast, 1 s late after 5 s": (
        *(300, {"stamp_ns": skew(0.01), "delay_ns": from_then_on(S, 5)}, None),
    ),
    "set by 5 s, stalls": (60, {"stamp_ns": set_by(5 * S), "delay_ns": stall}, None),
    "set by -5 s, stalls": (60, {"stamp_ns": set_by(-5 * S), "delay_ns": stall}, None),
    **{
        f"both clocks set by {h} h, stalls": (
            *(60, {"stamp_ns": set_by(h * H), "clock_ns": set_by(h * H), "delay_ns": stall}, None),
        )
        for h in (1, -1)
    },
}

LEADS_NS = {"0.05 s ahead, stalls": 11 * MS, "1 % fast, stalls": 10 * MS + 35 * MS}
"""Age that the stamps of a clock that is ahead may hide: that of its best frame, and what the
clock gains in the longest stall."""


@pytest.mark.parametrize("name", STREAMS)
def test_no_frame_older_than_the_limit_is_met(name):
    seconds, options, met = STREAMS[name]
    hz = 30 if seconds <= 60 else 10
    ends = judge(deliver(seconds, **options, hz=hz))
    print(name, dict(ends.reasons), f"oldest met {ends.oldest_ns / 1e6:.0f} ms")
    assert ends.oldest_ns <= MAX_AGE_NS + LEADS_NS.get(name, 0)
    assert sum(ends.reasons.values()) == seconds * hz
    assert met in (None, ends.reasons["met"])


@pytest.mark.parametrize("synchronised", [True, False])
@pytest.mark.parametrize("late", [False, True])
def test_no_old_frame_is_met_in_simulated_time(synchronised, late):
    """Paused, in a loop, and with jumps; no time goes by in a pause, and no frame is taken."""
    frames = []
    for frame in deliver(60, stall if late else lambda c: 10 * MS, simulate, simulate):
        captured_ns = frame.at_ns - frame.age_ns
        if not 10 * S <= captured_ns < 20 * S:
            paused_ns = max(0, min(frame.at_ns, 20 * S) - max(captured_ns, 10 * S))
            frames.append(replace(frame, age_ns=frame.age_ns - paused_ns))
    ends = judge(frames, synchronised=synchronised, simulated=True)
    print(synchronised, late, dict(ends.reasons), f"oldest met {ends.oldest_ns / 1e6:.0f} ms")
    assert ends.oldest_ns <= MAX_AGE_NS + (0 if synchronised else 11 * MS)
    if not late:
        # A loop and a jump cost some frames; with an offset to be learned a second each.
        assert ends.reasons["met"] >= len(frames) - (4 if synchronised else 64)


OFFSETS_S = (-3600, -5, -0.15, 0.15, 5, 3600)


def offset(offset_s):
    return lambda captured_ns: EPOCH_NS + captured_ns + int(offset_s * 1e9)


@pytest.mark.parametrize("offset_s", OFFSETS_S)
def test_an_unsynchronised_clock_costs_no_frame(offset_s):
    frames = deliver(60, stamp_ns=offset(offset_s))
    assert judge(frames, synchronised=False).reasons == {"met": 1800}


@pytest.mark.parametrize("ppm", [-DRIFT_PPM, -50, 50, DRIFT_PPM])
def test_quartz_clocks_that_drift_cost_no_frame(ppm):
    """In the end they are apart by more than the limit."""
    frames = deliver(2500, stamp_ns=skew(ppm / 1e6), hz=4)
    assert judge(frames, synchronised=False).reasons == {"met": 10_000}


UNSYNCHRONISED = {
    "stalls": (60, {"delay_ns": stall}),
    "0.3 s late after 30 s": (120, {"delay_ns": from_then_on(300 * MS)}),
    "10 s late after 30 s": (120, {"delay_ns": from_then_on(10 * S)}),
    "ever later": (60, {"delay_ns": lambda c: 10 * MS + c // 50}),
    "frozen after 30 s": (60, {"stamp_ns": lambda c: EPOCH_NS + min(c, 30 * S)}),
    "nearly frozen after 30 s": (
        *(60, {"stamp_ns": lambda c: EPOCH_NS + min(c, 30 * S + c // 1000)}),
    ),
    "zero": (60, {"stamp_ns": lambda c: 0}),
    "going backwards": (60, {"stamp_ns": lambda c: EPOCH_NS - c}),
    "1 % slow, stalls": (300, {"stamp_ns": skew(-0.01), "delay_ns": stall}),
    "1 % fast, 1 s late after 5 s": (
        *(300, {"stamp_ns": skew(0.01), "delay_ns": from_then_on(S, 5)}),
    ),
    "1 % fast, 3 s late after 100 s": (
        *(600, {"stamp_ns": skew(0.01), "delay_ns": from_then_on(3 * S, 100)}),
    ),
    "set by 5 s, stalls": (60, {"stamp_ns": set_by(5 * S), "delay_ns": stall}),
    "set by -5 s, stalls": (60, {"stamp_ns": set_by(-5 * S), "delay_ns": stall}),
    "the system's clock is set by 1 h, stalls": (
        *(60, {"clock_ns": set_by(3600 * S), "delay_ns": stall}),
    ),
}


@pytest.mark.parametrize("name", UNSYNCHRONISED)
@pytest.mark.parametrize("offset_s", [-5, 0, 5])
def test_an_unsynchronised_camera_that_falls_behind_its_best_loses_frames(name, offset_s):
    seconds, options = UNSYNCHRONISED[name]
    frames = deliver(seconds, **options, hz=30 if seconds <= 60 else 10)
    shifted = [
        replace(frame, stamp_ns=frame.stamp_ns and frame.stamp_ns + offset_s * S)
        for frame in frames
    ]
    ends = judge(shifted, synchronised=False)
    print(name, offset_s, dict(ends.reasons), f"oldest met {ends.oldest_ns / 1e6:.0f} ms")
    # Its best frame was 10 ms old, and quartz clocks may drift apart.
    lead_ns = LEADS_NS.get(name, 10 * MS)
    assert ends.oldest_ns <= MAX_AGE_NS + lead_ns + seconds * S * DRIFT_PPM // 10**6
    assert ends.reasons["met"] < len(frames)


def test_a_system_clock_that_is_set_does_not_matter_to_an_unsynchronised_camera():
    frames = deliver(60, stamp_ns=offset(5), clock_ns=set_by(-3600 * S))
    assert judge(frames, synchronised=False).reasons == {"met": 1800}


def test_a_system_clock_that_is_set_right_ends_the_doubt():
    """As on a board without a battery that starts in 1970: its camera's clock was ahead."""
    frames = deliver(60, clock_ns=lambda at_ns: at_ns + (at_ns >= 30 * S) * EPOCH_NS)
    assert judge(frames).reasons == {STAMP: 900, "met": 900}


def test_a_recording_that_starts_again_costs_a_second():
    """Played without simulated time, in a loop of 20 s."""
    frames = deliver(60, stamp_ns=lambda c: EPOCH_NS + c % (20 * S))
    ends = judge(frames, synchronised=False)
    lost = 2 * SETTLE_NS * 30 // S
    assert lost <= ends.reasons[STAMP] <= lost + 2
    assert ends.reasons["met"] == 1800 - ends.reasons[STAMP]


def test_without_a_limit_every_frame_runs():
    for _, options, _ in STREAMS.values():
        assert judge(deliver(20, **options), max_age_ns=0).reasons == {"met": 600}


def test_a_fast_clock_is_distrusted_until_it_is_steady_again():
    frames = deliver(120, stamp_ns=lambda c: EPOCH_NS + c + min(c, 60 * S) // 100)
    ends = judge(frames, synchronised=False)
    found_ns = next(b.at_ns for a, b in pairwise(ends.met) if b.at_ns - a.at_ns > S)
    assert ends.met[0].at_ns < WINDOW_NS * (FALLING_WINDOWS + 2)
    assert 60 * S < found_ns < 75 * S
    assert ends.met[-1] is frames[-1]


# -- Any stamps ----------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.integers(1, 3 * S),  # from one arrival to the next
        st.one_of(
            st.integers(-(10**19), 10**19),
            st.integers(-2 * S, 2 * S),
            st.sampled_from([0, -LATEST_NS, LATEST_NS, 1, -1]),
        ),  # stamp, from the clock
        st.sampled_from(["", "zero", "same"]),
    ),
    max_size=40,
)


@given(steps)
def test_what_is_met_was_young_by_its_stamp_and_had_a_new_one(given_steps):
    frames, at_ns = [], 0
    for step_ns, ahead_ns, kind in given_steps:
        at_ns += step_ns
        stamp_ns = EPOCH_NS + at_ns + ahead_ns
        if kind == "zero":
            stamp_ns = 0
        elif kind == "same" and frames:
            stamp_ns = frames[-1].stamp_ns
        frames.append(Arrival(at_ns, 0, stamp_ns, EPOCH_NS + at_ns))
    met = judge(frames).met
    last_ns = None
    for frame in frames:
        if frame in met:
            assert frame.stamp_ns != 0
            assert last_ns is None or frame.stamp_ns > last_ns
            assert -LATEST_NS <= frame.clock_ns - frame.stamp_ns <= MAX_AGE_NS
        last_ns = frame.stamp_ns or last_ns


delays = st.lists(
    st.one_of(st.integers(0, 50 * MS), st.integers(0, 5 * S)), min_size=30, max_size=120
)


@given(delays, st.integers(-3600 * S, 0), st.floats(-0.01, 0.0))
def test_a_clock_that_is_not_ahead_hides_no_age(delays_ns, behind_ns, rate):
    """True ages and the error of the stamps are drawn apart; at the start, too."""
    delay = iter(delays_ns)
    frames = deliver(
        len(delays_ns) / 30,
        lambda _: next(delay),
        lambda c: EPOCH_NS + c + behind_ns + int(rate * c),
    )
    assert judge(frames).oldest_ns <= MAX_AGE_NS


@given(delays, st.integers(0, 3600 * S), st.booleans())
def test_a_constant_offset_hides_no_age_beyond_the_best_frame_s(delays_ns, ahead_ns, synchronised):
    delay = iter([0, *delays_ns])
    frames = deliver(
        (1 + len(delays_ns)) / 30, lambda _: next(delay), lambda c: EPOCH_NS + c + ahead_ns
    )
    slack_ns = frames[0].age_ns + frames[-1].at_ns * DRIFT_PPM // 10**6
    assert judge(frames, synchronised=synchronised).oldest_ns <= MAX_AGE_NS + slack_ns


def test_frozen_is_said_of_the_second_frame(stamps):
    assert stamps.judge(NOW_NS - 5, ARRIVAL_NS)[1] == ""
    assert stamps.judge(NOW_NS - 5, ARRIVAL_NS + 1)[1] == FROZEN
