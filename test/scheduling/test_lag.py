"""NeuOS' sub-deadlines and LAG: identities that hold whatever the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.scheduling.lag import lag_ns, sub_deadlines_ns

profiles = st.lists(st.integers(0, 10**9), min_size=1, max_size=12).filter(any)


def test_sub_deadlines_are_shares_of_the_deadline_by_profiled_time():
    assert sub_deadlines_ns(100, (10, 30, 10)) == (20, 60, 20)


def test_lag_is_negative_when_behind():
    sub_deadlines = sub_deadlines_ns(100, (10, 30, 10))
    assert lag_ns(sub_deadlines, 1, 25) == -5
    assert lag_ns(sub_deadlines, 2, 70) == 10
    assert lag_ns(sub_deadlines, 0, 0) == 0


@given(st.integers(1, 10**10), profiles)
def test_sub_deadlines_add_up_to_the_deadline_and_prefixes_round_down(deadline, profile):
    sub_deadlines = sub_deadlines_ns(deadline, profile)
    assert sum(sub_deadlines) == deadline
    for stage in range(len(profile)):
        exact = deadline * sum(profile[: stage + 1])
        assert sum(sub_deadlines[: stage + 1]) == exact // sum(profile)


@given(st.integers(1, 10**10), profiles, st.data())
def test_lag_of_a_finished_frame_is_deadline_minus_elapsed(deadline, profile, data):
    elapsed = data.draw(st.integers(0, 2 * deadline))
    assert lag_ns(sub_deadlines_ns(deadline, profile), len(profile), elapsed) == deadline - elapsed


@given(st.integers(1, 10**10), profiles, st.integers(1, 100))
def test_a_faster_machine_has_the_same_sub_deadlines(deadline, profile, factor):
    assert sub_deadlines_ns(deadline, profile) == sub_deadlines_ns(
        deadline, [factor * time for time in profile]
    )


@pytest.mark.parametrize("profile", [(), (0, 0), (5, -1)])
def test_a_profile_that_says_nothing_is_refused(profile):
    with pytest.raises(ValueError, match="profile_ns"):
        sub_deadlines_ns(100, profile)
