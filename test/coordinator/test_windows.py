"""Who runs beside a frame, calculated by hand."""

from __future__ import annotations

import pytest
from cohorts import MS, make_member, make_table

from jetson_dnn_rt.coordinator.policies.horizon.windows import (
    count_beside,
    count_others,
    find_window,
    interpolate,
)

NEVER = float("-inf")


def test_window_of_a_frame_in_flight() -> None:
    member = make_member(make_table(), stage=1, running_since_ns=3 * MS, last_release_ns=0)
    begin, end, until, again = find_window(member, 4 * MS, 0.5)
    assert (begin, end) == (-1 * MS, 6 * MS)
    assert (until, again) == (3 * MS, 29 * MS)


def test_window_of_the_next_frame() -> None:
    member = make_member(make_table(), active=False, last_release_ns=1 * MS)
    assert find_window(member, 4 * MS, 0.5) == (30 * MS, 40 * MS, NEVER, 30 * MS)
    late = find_window(member, 50 * MS, 0.5)
    assert late == (0, 10 * MS, NEVER, 0)


def test_a_frame_that_is_late_is_expected_to_end_now() -> None:
    member = make_member(make_table(), stage=1, last_release_ns=0)
    assert find_window(member, 12 * MS, 0.5)[2] == 0.0


@pytest.mark.parametrize(
    ("other", "beside"),
    [
        ((0, 10, 5.0, 100), 0.5),  # there for half of the window
        ((0, 30, 30.0, 100), 1.0),  # there all the time
        ((0, 10, 5.0, 5), 0.625),  # and once more, for a quarter of the other half
        ((20, 30, NEVER, 20), 0.0),  # comes afterwards
        ((4, 10, NEVER, 4), 0.15),  # comes meanwhile: a quarter of six tenths
    ],
)
def test_others(other: tuple[float, float, float, float], beside: float) -> None:
    mine = (0, 10, 9.0, 33)
    assert count_others(0, [mine, other], [0.3, 0.25], 2) == pytest.approx(beside)
    assert count_others(1, [other, mine], [0.25, 0.3], 2) == pytest.approx(beside)


def test_no_more_beside_than_workers() -> None:
    windows = [(0, 10, 10.0, 100)] * 4
    assert count_others(0, windows, [0.5] * 4, 4) == 3.0
    assert count_others(0, windows, [0.5] * 4, 2) == 1.0


def test_those_who_are_there_when_a_frame_begins() -> None:
    windows = [(0, 20, 8.0, 33), (5, 15, NEVER, 5), (6, 9, NEVER, 6), (5, 30, NEVER, 5)]
    assert count_beside(windows, 5) == 3


def test_interference_between_whole_numbers() -> None:
    assert interpolate([1.0, 1.4, 2.0], 0.0) == 1.0
    assert interpolate([1.0, 1.4, 2.0], 1.5) == pytest.approx(1.7)
    assert interpolate([1.0, 1.4, 2.0], 2.0) == 2.0
