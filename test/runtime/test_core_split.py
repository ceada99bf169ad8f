"""Which splits of the cores are tried, and which is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.runtime.sharing.core_split import (
    CAPACITY_MARGIN,
    MET_MARGIN,
    CoreSplit,
    SplitFigures,
    choose_split,
    describe_splits,
    list_splits,
)
from jetson_dnn_rt.runtime.sharing.forecast import Forecast


def figures(
    workers: int,
    threads: int,
    met: int = 100,
    capacity_hz: float = 50.0,
    response_ms: float = 20.0,
) -> SplitFigures:
    return SplitFigures(
        CoreSplit(workers, threads), {"a": 8.0}, capacity_hz, Forecast(100, met, response_ms)
    )


@pytest.mark.parametrize(
    ("cores", "tasks", "splits"),
    [
        (1, 4, "1 x 1"),
        (2, 2, "1 x 2, 2 x 1"),
        (2, 1, "1 x 2"),
        (4, 2, "1 x 4, 2 x 2"),
        # Four threads' worth of cores for three tasks: three workers, a core each.
        (4, 3, "1 x 4, 2 x 2, 3 x 1"),
        (6, 8, "1 x 6, 2 x 3, 3 x 2, 6 x 1"),
        (12, 8, "1 x 12, 2 x 6, 3 x 4, 4 x 3, 6 x 2, 8 x 1"),
        (7, 2, "1 x 7, 2 x 1"),
    ],
)
def test_splits_are_the_divisors_as_far_as_there_are_tasks(
    cores: int, tasks: int, splits: str
) -> None:
    assert ", ".join(map(str, list_splits(cores, tasks))) == splits


@given(cores=st.integers(1, 256), tasks=st.integers(1, 40))
def test_no_split_takes_more_threads_than_cores(cores: int, tasks: int) -> None:
    splits = list_splits(cores, tasks)
    assert splits[0] == CoreSplit(1, cores)
    assert all(split.workers * split.threads <= cores for split in splits)
    assert all(split.workers <= tasks for split in splits)
    assert len(set(splits)) == len(splits)


@pytest.mark.parametrize(("cores", "tasks"), [(0, 1), (1, 0)])
def test_there_is_a_core_and_a_task(cores: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="cores and tasks must be >= 1"):
        list_splits(cores, tasks)


def test_met_frames_go_before_capacity_and_capacity_before_response() -> None:
    one, two, four = figures(1, 4), figures(2, 2), figures(4, 1)
    # All the same: the fewest workers.
    assert choose_split([one, two, four]) is one
    fast = figures(2, 2, response_ms=10.0)
    assert choose_split([one, fast, four]) is fast
    # A few per cent of capacity are noise, more are not.
    assert choose_split([one, fast, figures(4, 1, capacity_hz=52.0)]) is fast
    wide = figures(4, 1, capacity_hz=60.0)
    assert choose_split([one, fast, wide]) is wide
    # Nothing is worth a missed deadline.
    assert choose_split(
        [figures(1, 4, met=90), fast, figures(4, 1, met=95, capacity_hz=90.0)]
    ) is (fast)


@given(
    st.lists(
        st.builds(
            figures,
            st.integers(1, 8),
            st.integers(1, 8),
            st.integers(0, 100),
            st.floats(0.1, 1e3),
            st.floats(0.1, 1e3),
        ),
        min_size=1,
    )
)
def test_what_is_chosen_is_near_the_best(tried: list[SplitFigures]) -> None:
    chosen = choose_split(tried)
    most = max(one.forecast.met_share for one in tried)
    assert chosen.forecast.met_share >= most - MET_MARGIN
    rivals = [one for one in tried if one.forecast.met_share >= most - MET_MARGIN]
    best_hz = max(one.capacity_hz for one in rivals)
    assert chosen.capacity_hz >= best_hz * (1 - CAPACITY_MARGIN)


def test_the_table_marks_what_is_taken() -> None:
    lines = describe_splits([figures(1, 2, met=98), figures(2, 1)])
    assert lines == [
        "   1 x 2: 98.0 % of the frames met, 50.0 frames/s, response 20.0 ms; a 8.0 ms",
        "-> 2 x 1: 100.0 % of the frames met, 50.0 frames/s, response 20.0 ms; a 8.0 ms",
    ]
