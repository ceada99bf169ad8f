"""The window of observed over expected time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.slowdown import SlowdownWindow

ratios = st.lists(st.floats(0.1, 50.0), min_size=1, max_size=40)


def test_nothing_seen_means_as_profiled():
    window = SlowdownWindow()
    assert (len(window), window.mean, window.latest, window.maximum) == (0, 1.0, 1.0, 1.0)
    assert window.quantile(0.99) == 1.0


@given(ratios, st.integers(1, 12), st.floats(0.0, 1.0))
def test_it_is_the_statistics_of_the_last_frames(seen, frames, share):
    window = SlowdownWindow(frames)
    for ratio in seen:
        window.observe(ratio)
    last = seen[-frames:]
    assert len(window) == len(last)
    assert window.mean == pytest.approx(sum(last) / len(last))
    assert (window.latest, window.maximum) == (last[-1], max(last))
    rank = max(1, math.ceil(share * len(last)))
    assert window.quantile(share) == sorted(last)[rank - 1]
