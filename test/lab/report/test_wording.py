from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_digits,
    format_duration,
    format_every,
    format_exceedance,
    format_ms,
    format_share,
    join_words,
)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ms"),
        (820_000, "0.820 ms"),
        (18_240_000, "18.2 ms"),
        (99_970_000, "100 ms"),
        (142_400_000, "142 ms"),
        (1_330_000_000, "1.33 s"),
        (999_900_000, "1.00 s"),
        (4_200, "4.20 µs"),
        (math.nan, "–"),
    ],
)
def test_times_have_three_digits(time_ns, text):
    assert format_ms(time_ns) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.106, "10.6 %"),
        (0.0012, "0.12 %"),
        (1 / 1500, "0.067 %"),
        (1.315, "132 %"),
        (0.99999, "99.999 %"),
        (1.0, "100.0 %"),
    ],
)
def test_shares(share, text):
    assert format_share(share) == text


@given(st.floats(1e-6, 1e9))
def test_digits_stay_near_the_value(value):
    text = format_digits(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-3, abs=6e-7)


def test_rarity():
    assert format_exceedance(1e-4) == "1 in 10,000"
    assert format_every(1e-4, 33_333_333) == "about every 5.6 min"
    assert format_every(1e-3, 33_333_333) == "about every 33 s"
    assert format_every(1e-6, 33_333_333) == "about every 9.3 h"
    assert format_every(1e-9, 33_333_333) == "about every 390 days"
    assert format_every(1e-4, 0) == ""


def test_durations():
    found = [format_duration(seconds * 1e9) for seconds in (45.24, 3333.3, 7560)]
    assert found == ["45.2 s", "55.6 min", "2.10 h"]


def test_words():
    assert format_count(1, "frame") == "1 frame"
    assert format_count(1800, "frame") == "1,800 frames"
    assert format_count(2, "miss", "misses") == "2 misses"
    assert join_words([]) == ""
    assert join_words(["a"]) == "a"
    assert join_words(["a", "b", "c"]) == "a, b and c"
