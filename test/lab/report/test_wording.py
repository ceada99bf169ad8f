# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

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


def test_times_have_three_digits():
    times_ns = (0, 4_200, 820_000, 18_240_000, 99_970_000, 142_400_000, 999_900_000, 1.33e9)
    texts = ["0 ms", "4.20 µs", "0.820 ms", "18.2 ms", "100 ms", "142 ms", "1.00 s", "1.33 s"]
    assert [format_ms(time_ns) for time_ns in times_ns] == texts
    assert format_ms(math.nan) == "–"
    found = [format_duration(seconds * 1e9) for seconds in (45.24, 3333.3, 7560)]
    assert found == ["45.2 s", "55.6 min", "2.10 h"]


def test_shares():
    shares = (0.0, 0.106, 0.0012, 1 / 1500, 1.315, 0.99999, 1.0, math.nan)
    texts = ["0 %", "10.6 %", "0.12 %", "0.067 %", "132 %", "99.999 %", "100.0 %", "–"]
    assert [format_share(share) for share in shares] == texts


@given(st.floats(1e-6, 1e9))
def test_digits_stay_near_the_value(value):
    text = format_digits(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-3, abs=6e-7)


def test_rarity():
    assert format_exceedance(1e-4) == "1 in 10,000"
    found = [format_every(probability, 33_333_333) for probability in (1e-3, 1e-4, 1e-6, 1e-9)]
    assert found == [f"about every {text}" for text in ("33 s", "5.6 min", "9.3 h", "390 days")]
    assert format_every(1e-4, 0) == ""


def test_words():
    assert [format_count(count, "frame") for count in (1, 1800)] == ["1 frame", "1,800 frames"]
    assert format_count(2, "miss", "misses") == "2 misses"
    assert [join_words(list(words)) for words in ("", "a", "abc")] == ["", "a", "a, b and c"]
